//! Registered rooms and members, and what follows from them: who may read, who is told, and how a right ends.
//!
//! A change is in the store first, then every hub is made to read the members again ([`membership`](crate::membership)). A
//! right ends in the room's own order: after that a record between the events ends the streams that are open. A change whose
//! answer was lost is repeated, and does all of it again.

use bongsu_kernel::{Id, trace};
use bongsu_live::log::Recipients;
use bongsu_live::{Append, AppendError, LogError, control};

use crate::membership::Memberships;
use crate::options::Mode;
use crate::store::{Added, Standing, StoreError};
use crate::{Rooms, subject};

/// Members of a room, at most: in registered mode all of them are written down with an event that names no recipients.
pub const MOST_MEMBERS: usize = 10_000;

#[derive(Clone, Debug, thiserror::Error)]
pub enum RegisterError {
    #[error("no such room")]
    NoRoom,
    #[error("the room has as many members as it may")]
    Full,
    #[error("nothing is recorded: RECORDS is off")]
    NoRecords,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Why somebody may not read a room.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RightError {
    #[error("no such room")]
    NoRoom,
    #[error("not a member")]
    Stranger,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Rooms {
    pub async fn register(&self, room: &Id) -> Result<(), RegisterError> {
        let memberships = self.memberships()?;
        memberships.store().register(room).await?;
        Ok(memberships.changed(room).await?)
    }

    /// Ends the room's streams and deletes its log.
    pub async fn unregister(&self, room: &Id) -> Result<(), RegisterError> {
        let memberships = self.memberships()?;
        memberships.store().unregister(room).await?;
        memberships.changed(room).await?;
        self.write_removal(room, None).await?;
        self.0.log.purge(&subject(room)).await?;
        Ok(())
    }

    pub async fn add_member(&self, room: &Id, user: &Id) -> Result<(), RegisterError> {
        let memberships = self.memberships()?;
        match memberships.store().add(room, user, MOST_MEMBERS).await? {
            Added::Yes => Ok(memberships.changed(room).await?),
            Added::NoRoom => Err(RegisterError::NoRoom),
            Added::Full => Err(RegisterError::Full),
        }
    }

    /// Nothing that comes after this in the room's order reaches that person.
    pub async fn remove_member(&self, room: &Id, user: &Id) -> Result<(), RegisterError> {
        let memberships = self.memberships()?;
        if !memberships.store().remove(room, user).await? {
            return Err(RegisterError::NoRoom);
        }
        memberships.changed(room).await?;
        // In an open room membership is no right, only an address.
        if self.0.options.mode == Mode::Registered {
            self.write_removal(room, Some(user)).await?;
        }
        Ok(())
    }

    /// Whether somebody may read a room. Who opens a stream asks after it was subscribed: a right that ends later ends
    /// the stream by its record.
    pub async fn may_read(&self, room: &Id, user: &Id) -> Result<(), RightError> {
        if self.0.options.mode == Mode::Open {
            return Ok(());
        }
        let Some(memberships) = &self.0.memberships else { return Err(RightError::NoRoom) };
        match memberships.store().standing(room, user).await? {
            Standing::Member => Ok(()),
            Standing::Stranger => Err(RightError::Stranger),
            Standing::NoRoom => Err(RightError::NoRoom),
        }
    }

    fn memberships(&self) -> Result<&Memberships, RegisterError> {
        self.0.memberships.as_ref().ok_or(RegisterError::NoRecords)
    }

    async fn write_removal(&self, room: &Id, user: Option<&Id>) -> Result<(), LogError> {
        let unwritable = || LogError::Failed("the record of a removal cannot be written".to_owned());
        let (event_type, data) = control::removal(user).ok_or_else(unwritable)?;
        let record = Append {
            subject: subject(room),
            event_type,
            data,
            publisher: None,
            once: None,
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
