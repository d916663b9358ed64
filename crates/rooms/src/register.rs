//! Registered rooms and members, and what follows from them: who may read, who is told, and how a right ends.
//!
//! A right ends in the room's own order: the store forgets it first, so that nobody gets in any more, and then a record
//! between the events ends the streams that are open. A change whose answer was lost is repeated, and does both again.

use bongsu_kernel::{Id, trace};
use bongsu_live::log::Recipients;
use bongsu_live::{Append, AppendError, LogError, control};

use crate::options::Mode;
use crate::store::{Added, Standing, Store, StoreError};
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
        Ok(self.records()?.register(room).await?)
    }

    /// Ends the room's streams and deletes its log.
    pub async fn unregister(&self, room: &Id) -> Result<(), RegisterError> {
        self.records()?.unregister(room).await?;
        self.write_removal(room, None).await?;
        self.0.log.purge(&subject(room)).await?;
        Ok(())
    }

    pub async fn add_member(&self, room: &Id, user: &Id) -> Result<(), RegisterError> {
        match self.records()?.add(room, user, MOST_MEMBERS).await? {
            Added::Yes => Ok(()),
            Added::NoRoom => Err(RegisterError::NoRoom),
            Added::Full => Err(RegisterError::Full),
        }
    }

    /// Nothing that comes after this in the room's order reaches that person.
    pub async fn remove_member(&self, room: &Id, user: &Id) -> Result<(), RegisterError> {
        if !self.records()?.remove(room, user).await? {
            return Err(RegisterError::NoRoom);
        }
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
        let Some(store) = &self.0.store else { return Err(RightError::NoRoom) };
        match store.standing(room, user).await? {
            Standing::Member => Ok(()),
            Standing::Stranger => Err(RightError::Stranger),
            Standing::NoRoom => Err(RightError::NoRoom),
        }
    }

    /// The registered members of a room; nothing when it is not registered.
    pub(crate) async fn members(&self, room: &Id) -> Result<Option<Vec<Id>>, StoreError> {
        match &self.0.store {
            Some(store) if store.may_have_rooms() => store.members(room).await,
            _ => Ok(None),
        }
    }

    fn records(&self) -> Result<&dyn Store, RegisterError> {
        self.0.store.as_deref().ok_or(RegisterError::NoRecords)
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
            audience: 0,
            keep: self.0.options.keep(room),
            trace: trace::current(),
        };
        let written = self.0.log.append(vec![record]).await?.into_iter().next();
        match written.ok_or_else(unwritable)? {
            Ok(_) => Ok(()),
            Err(AppendError::Failed(error)) => Err(error),
            Err(AppendError::Conflict) => Err(unwritable()),
        }
    }
}
