//! Members of rooms, as publishing needs them: cached, and compared by the append.
//!
//! An entry has the version that the room's log gave before the records were read ([`Log::membership_version`]). The append
//! compares it and keeps nothing when the members have changed since, on whichever hub; the publisher then reads again. So
//! publishing reads no records while members stay the same. In open mode it never waits for a database server: only whether
//! a room is registered is cached, and read in the background unless the records are in a file of this process.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id, Millis, Recent};
use bongsu_live::{Log, LogError};
use futures_util::future::try_join_all;
use tokio::sync::mpsc;

use crate::options::Mode;
use crate::publish::PublishError;
use crate::store::sql::SqlStore;
use crate::subject;

/// An entry of this age, in milliseconds, is read again in the background.
const REFRESH_AGE: Millis = 30_000;
/// An entry of this age, in milliseconds, is not used while the records can be read. It bounds the effect of a change of members that was
/// committed and never answered, because the hub died before it changed the version.
const MAX_AGE: Millis = 60_000;
/// Rooms that wait to be read in the background at most. Beyond it a room is asked for again by its next event.
const QUEUE_SIZE: usize = 4_096;
/// Rooms read in the background in one turn.
const BATCH_SIZE: usize = 256;
/// What the cache holds at most, in members: about 50 MiB.
const CACHE_WEIGHT: usize = 500_000;
/// What a room weighs in the cache beside its members, in members.
const ROOM_WEIGHT: usize = 5;
/// Between two turns when the records or the log cannot be read.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// What is known of a room's members.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    /// What the append compares. None: nothing.
    pub(crate) version: Option<u64>,
    /// In order. None: the room is not registered. In open mode they are not read, and the list is empty.
    pub(crate) members: Option<Arc<[Id]>>,
}

/// Reads members, and changes versions where members change.
pub(crate) struct Memberships {
    reader: Arc<Reader>,
    queue: mpsc::Sender<Id>,
}

struct Reader {
    log: Arc<dyn Log>,
    store: SqlStore,
    mode: Mode,
    /// Whether the records are in a file of this process, which answers at once and is never away.
    is_local: bool,
    clock: Clock,
    /// With the time at which they were read.
    cache: Mutex<Recent<Id, (Membership, Millis)>>,
}

impl Memberships {
    pub(crate) fn start(
        log: Arc<dyn Log>,
        store: SqlStore,
        mode: Mode,
        is_local: bool,
        clock: Clock,
        supervisor: &Supervisor,
    ) -> Self {
        let cache = Mutex::new(Recent::new(CACHE_WEIGHT));
        let reader = Arc::new(Reader { log, store, mode, is_local, clock, cache });
        let refreshed = reader.clone();
        let queue = supervisor.queue("room-memberships", (QUEUE_SIZE, BATCH_SIZE), move |rooms| {
            let reader = refreshed.clone();
            async move {
                if let Err(error) = reader.refresh(rooms).await {
                    tracing::debug!(%error, "failed to read members of rooms in the background");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        });
        Self { reader, queue }
    }

    pub(crate) fn store(&self) -> &SqlStore {
        &self.reader.store
    }

    /// What is known without waiting for a database server. Where that is nothing, or old, the room is read in the background.
    pub(crate) async fn cached(&self, room: &Id) -> Option<Membership> {
        let mut found = self.reader.find(room);
        if found.is_none() && self.reader.is_local {
            // What cannot be read now is read in the background.
            let _ = self.reader.load_registered(std::slice::from_ref(room)).await;
            found = self.reader.find(room);
        }
        if found.as_ref().is_none_or(|(_, age)| *age >= REFRESH_AGE) {
            self.refresh_later(room);
        }
        found.filter(|(_, age)| *age < MAX_AGE).map(|(known, _)| known)
    }

    /// What is known, or else what the records say. While these are away an old entry is used: it is right unless its change
    /// was never answered, and who was not answered cannot repeat it now.
    pub(crate) async fn get(&self, room: &Id) -> Result<Membership, PublishError> {
        let found = self.reader.find(room);
        match found {
            Some((known, age)) if age < MAX_AGE => {
                if age >= REFRESH_AGE {
                    self.refresh_later(room);
                }
                Ok(known)
            }
            found => match (self.reader.load(room).await, found) {
                (Err(PublishError::Store(error)), Some((known, _))) if error.may_pass() => Ok(known),
                (loaded, _) => loaded,
            },
        }
    }

    /// What the records say now, for an append that compares nothing.
    pub(crate) async fn read(&self, room: &Id) -> Result<Membership, PublishError> {
        let members = self.reader.store.members(room).await?;
        Ok(Membership { version: None, members: members.map(Arc::from) })
    }

    /// An append with this version was stale. An entry that was read again meanwhile stays.
    pub(crate) fn forget(&self, room: &Id, version: u64) {
        let mut cache = self.reader.cache();
        if cache.get(room).is_some_and(|(known, _)| known.version == Some(version)) {
            cache.remove(room);
        }
    }

    /// Has every hub read the members of a room again. The change is in the records, and is not answered before this.
    pub(crate) async fn changed(&self, room: &Id) -> Result<(), LogError> {
        self.reader.log.change_membership_version(&subject(room)).await
    }

    fn refresh_later(&self, room: &Id) {
        // When the queue is full, the next event of the room asks again.
        let _ = self.queue.try_send(room.clone());
    }
}

impl Reader {
    fn cache(&self) -> MutexGuard<'_, Recent<Id, (Membership, Millis)>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, room: &Id, known: Membership, read_at: Millis) {
        let members = known.members.as_ref().map_or(0, |members| members.len());
        self.cache().insert(room.clone(), (known, read_at), ROOM_WEIGHT + members);
    }

    /// An entry and its age. One that the clock says is still to come is too old: the clock went back.
    fn find(&self, room: &Id) -> Option<(Membership, Millis)> {
        let (known, read_at) = self.cache().get(room)?.clone();
        Some((known, self.clock.now().checked_sub(read_at).unwrap_or(MAX_AGE)))
    }

    /// The version first: a change between the two makes the entry stale, never wrong.
    async fn load(&self, room: &Id) -> Result<Membership, PublishError> {
        let started = self.clock.now();
        let version = self.log.membership_version(&subject(room)).await?;
        let members = self.store.members(room).await?.map(Arc::from);
        let known = Membership { version: Some(version), members };
        match known.members {
            Some(_) => self.keep(room, known.clone(), started),
            // An event for it is refused without an append, so that nothing would compare the version.
            None => self.cache().remove(room),
        }
        Ok(known)
    }

    async fn refresh(&self, rooms: Vec<Id>) -> Result<(), PublishError> {
        let is_old = |room: &Id| self.find(room).is_none_or(|(_, age)| age >= REFRESH_AGE);
        let rooms: BTreeSet<Id> = rooms.into_iter().filter(is_old).collect();
        let rooms = Vec::from_iter(rooms);
        match self.mode {
            Mode::Open => self.load_registered(&rooms).await,
            Mode::Registered => {
                for room in &rooms {
                    self.load(room).await?;
                }
                Ok(())
            }
        }
    }

    /// Which of these rooms are registered, by one question.
    async fn load_registered(&self, rooms: &[Id]) -> Result<(), PublishError> {
        let started = self.clock.now();
        let versions = rooms.iter().map(async |room| self.log.membership_version(&subject(room)).await);
        let versions = try_join_all(versions).await?;
        let registered = self.store.registered(rooms).await?;
        for (room, version) in rooms.iter().zip(versions) {
            let members = registered.contains(room).then(|| Arc::from([]));
            self.keep(room, Membership { version: Some(version), members }, started);
        }
        Ok(())
    }
}
