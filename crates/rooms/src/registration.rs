//! Registration of rooms and members, and the check whether a person may read a room.
//!
//! A change is first stored in the records. Then the membership version of the room changes, so that every
//! instance reads the members again ([`membership`](crate::membership)). The deletion of a room and, in
//! registered mode, the removal of a member are also written to the room's log as a control record, which
//! closes the open streams at its position. A repeated request repeats all of these steps.

use bongsu_kernel::{Id, trace};
use bongsu_live::log::Recipients;
use bongsu_live::{Append, AppendError, LogError, control};

use crate::membership::Memberships;
use crate::options::Mode;
use crate::store::{AddOutcome, MembershipState, StoreError};
use crate::{Rooms, subject};

/// Maximum number of members of one room. In registered mode, an event may be stored with all members.
pub const MAX_MEMBERS: usize = 10_000;

#[derive(Clone, Debug, thiserror::Error)]
pub enum RegisterError {
    #[error("the room does not exist")]
    NoRoom,
    #[error("the room has reached the maximum number of members")]
    Full,
    #[error("records are off (RECORDS=off)")]
    NoRecords,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Why a person may not read a room.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AccessError {
    #[error("the room does not exist")]
    NoRoom,
    #[error("the person is not a member of the room")]
    NotMember,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Rooms {
    pub async fn register(&self, room: &Id) -> Result<(), RegisterError> {
        let memberships = self.memberships()?;
        memberships.store().register(room).await?;
        Ok(memberships.invalidate(room).await?)
    }

    /// Deletes a room and its members, closes its streams and deletes its log.
    pub async fn unregister(&self, room: &Id) -> Result<(), RegisterError> {
        let memberships = self.memberships()?;
        memberships.store().unregister(room).await?;
        memberships.invalidate(room).await?;
        self.write_removal(room, None).await?;
        self.0.log.purge(&subject(room)).await?;
        Ok(())
    }

    pub async fn add_member(&self, room: &Id, user: &Id) -> Result<(), RegisterError> {
        let memberships = self.memberships()?;
        match memberships.store().add(room, user, MAX_MEMBERS).await? {
            AddOutcome::Added => Ok(memberships.invalidate(room).await?),
            AddOutcome::NoRoom => Err(RegisterError::NoRoom),
            AddOutcome::Full => Err(RegisterError::Full),
        }
    }

    /// Removes a member. In registered mode, no later event of the room reaches that person.
    pub async fn remove_member(&self, room: &Id, user: &Id) -> Result<(), RegisterError> {
        let memberships = self.memberships()?;
        if !memberships.store().remove(room, user).await? {
            return Err(RegisterError::NoRoom);
        }
        memberships.invalidate(room).await?;
        // In open mode a person may read the room without being a member.
        if self.0.options.mode == Mode::Registered {
            self.write_removal(room, Some(user)).await?;
        }
        Ok(())
    }

    /// Checks that a person may read a room. For a stream, call it after the subscription: a membership that is removed
    /// later closes the stream by its control record.
    pub async fn may_read(&self, room: &Id, user: &Id) -> Result<(), AccessError> {
        if self.0.options.mode == Mode::Open {
            return Ok(());
        }
        let Some(memberships) = &self.0.memberships else { return Err(AccessError::NoRoom) };
        match memberships.store().membership_state(room, user).await? {
            MembershipState::Member => Ok(()),
            MembershipState::NotMember => Err(AccessError::NotMember),
            MembershipState::NoRoom => Err(AccessError::NoRoom),
        }
    }

    fn memberships(&self) -> Result<&Memberships, RegisterError> {
        self.0.memberships.as_ref().ok_or(RegisterError::NoRecords)
    }

    async fn write_removal(&self, room: &Id, user: Option<&Id>) -> Result<(), LogError> {
        let unwritable = || LogError::Failed("the control record of a removal was not written".to_owned());
        let (event_type, data) = control::removal(user).ok_or_else(unwritable)?;
        let record = Append {
            subject: subject(room),
            event_type,
            data,
            publisher: None,
            idempotency: None,
            recipients: Recipients::NONE,
            membership_version: None,
            audience: 0,
            keep: self.0.options.keep(room),
            trace: trace::current(),
        };
        let written = self.0.log.append(vec![record]).await?.into_iter().next();
        match written.ok_or_else(unwritable)? {
            Ok(_) => Ok(()),
            Err(AppendError::Failed(error)) => Err(error),
            Err(AppendError::Conflict | AppendError::StaleMembership) => Err(unwritable()),
        }
    }
}
