//! A cache of the members of rooms, for publishing.
//!
//! A cached membership has the version that the log had before the members were read ([`Log::membership_version`]). The
//! log refuses an append with an older version, so that the publisher reads the members again after they changed on any
//! instance. In open mode the cache only holds whether a room is registered, and publishing never waits for a database
//! server: a missing entry is read in the background, unless the records are a file of this process.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id, Millis, RecentCache, lock};
use bongsu_live::{Log, LogError};
use futures_util::future::try_join_all;
use tokio::sync::mpsc;

use crate::options::Mode;
use crate::publish::PublishError;
use crate::store::sql::SqlStore;
use crate::subject;

/// A cached membership of this age, in milliseconds, is read again in the background.
const REFRESH_AGE: Millis = 30_000;
/// A cached membership of this age, in milliseconds, is not used while the records can be read. This bounds the effect
/// of a change that was committed by an instance that ended before it changed the version.
const MAX_AGE: Millis = 60_000;
/// Rooms in the queue to be read in the background. A room that does not fit is queued by its next event.
const QUEUE_SIZE: usize = 4_096;
/// Rooms that are read in the background at once.
const BATCH_SIZE: usize = 256;
/// The capacity of the cache in members: about 50 MiB.
const MAX_CACHE_WEIGHT: usize = 500_000;
/// The weight of a room without its members, in members.
const ROOM_WEIGHT: usize = 5;
/// The delay after the records or the log could not be read in the background.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The members of a room at a version.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    /// The version that an append compares. None: the append compares no version.
    pub(crate) version: Option<u64>,
    /// Sorted. None: the room is not registered. In open mode the list is empty, because the members are not read.
    pub(crate) members: Option<Arc<[Id]>>,
}

/// Reads memberships through the cache, and invalidates them.
pub(crate) struct Memberships {
    reader: Arc<Reader>,
    queue: mpsc::Sender<Id>,
}

struct Reader {
    log: Arc<dyn Log>,
    store: SqlStore,
    mode: Mode,
    /// The records are in a file of this process, which is always available and fast.
    is_local: bool,
    clock: Clock,
    /// Memberships, each with the time at which it was read.
    cache: Mutex<RecentCache<Id, (Membership, Millis)>>,
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
        let cache = Mutex::new(RecentCache::new(MAX_CACHE_WEIGHT));
        let reader = Arc::new(Reader { log, store, mode, is_local, clock, cache });
        let queue_reader = reader.clone();
        let queue = supervisor.queue("room-memberships", (QUEUE_SIZE, BATCH_SIZE), move |rooms| {
            let reader = queue_reader.clone();
            async move {
                if let Err(error) = reader.refresh(rooms).await {
                    tracing::debug!(%error, "failed to refresh the cached members of rooms; retrying when a room is used next");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        });
        Self { reader, queue }
    }

    pub(crate) fn store(&self) -> &SqlStore {
        &self.reader.store
    }

    /// Returns the cached membership without waiting for a database server. If it is missing or old, the room is read
    /// in the background.
    pub(crate) async fn cached(&self, room: &Id) -> Option<Membership> {
        let mut found = self.reader.find(room);
        if found.is_none() && self.reader.is_local {
            // After a failure the room is read in the background.
            let _ = self.reader.load_registered(std::slice::from_ref(room)).await;
            found = self.reader.find(room);
        }
        if found.as_ref().is_none_or(|(_, age)| *age >= REFRESH_AGE) {
            self.refresh_later(room);
        }
        found.filter(|(_, age)| *age < MAX_AGE).map(|(membership, _)| membership)
    }

    /// Returns the cached membership, or reads it. While the records are unavailable, an old membership is used: it is
    /// correct unless an instance ended between a change of members and the change of the version.
    pub(crate) async fn get(&self, room: &Id) -> Result<Membership, PublishError> {
        let found = self.reader.find(room);
        match found {
            Some((membership, age)) if age < MAX_AGE => {
                if age >= REFRESH_AGE {
                    self.refresh_later(room);
                }
                Ok(membership)
            }
            found => match (self.reader.load(room).await, found) {
                (Err(PublishError::Store(error)), Some((membership, _))) if error.is_transient() => {
                    Ok(membership)
                }
                (loaded, _) => loaded,
            },
        }
    }

    /// Reads the members from the records, for an append that compares no version.
    pub(crate) async fn read(&self, room: &Id) -> Result<Membership, PublishError> {
        let members = self.reader.store.members(room).await?;
        Ok(Membership { version: None, members: members.map(Arc::from) })
    }

    /// Removes a membership from the cache after an append with this version was refused. A newer one stays.
    pub(crate) fn remove(&self, room: &Id, version: u64) {
        let mut cache = lock(&self.reader.cache);
        if cache.get(room).is_some_and(|(cached, _)| cached.version == Some(version)) {
            cache.remove(room);
        }
    }

    /// Changes the membership version of a room, so that every instance reads its members again. Call it after the
    /// change is in the records and before the request is answered.
    pub(crate) async fn invalidate(&self, room: &Id) -> Result<(), LogError> {
        self.reader.log.change_membership_version(&subject(room)).await
    }

    fn refresh_later(&self, room: &Id) {
        // When the queue is full, the next event of the room tries again.
        let _ = self.queue.try_send(room.clone());
    }
}

impl Reader {
    fn insert(&self, room: &Id, membership: Membership, read_at: Millis) {
        let members = membership.members.as_ref().map_or(0, |members| members.len());
        lock(&self.cache).insert(room.clone(), (membership, read_at), ROOM_WEIGHT + members);
    }

    /// Returns a cached membership and its age. If the clock was set back to before the read, the age is
    /// `MAX_AGE`.
    fn find(&self, room: &Id) -> Option<(Membership, Millis)> {
        let (membership, read_at) = lock(&self.cache).get(room)?.clone();
        Some((membership, self.clock.now().checked_sub(read_at).unwrap_or(MAX_AGE)))
    }

    /// Reads the version before the members: after a change in between, appends with this version are refused.
    async fn load(&self, room: &Id) -> Result<Membership, PublishError> {
        let started = self.clock.now();
        let version = self.log.membership_version(&subject(room)).await?;
        let members = self.store.members(room).await?.map(Arc::from);
        let membership = Membership { version: Some(version), members };
        match membership.members {
            Some(_) => self.insert(room, membership.clone(), started),
            // Not cached: events for the room are refused without an append, so no append would notice a new version.
            None => lock(&self.cache).remove(room),
        }
        Ok(membership)
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

    /// Reads with one query which of these rooms are registered.
    async fn load_registered(&self, rooms: &[Id]) -> Result<(), PublishError> {
        let started = self.clock.now();
        let versions = rooms.iter().map(async |room| self.log.membership_version(&subject(room)).await);
        let versions = try_join_all(versions).await?;
        let registered = self.store.registered(rooms).await?;
        for (room, version) in rooms.iter().zip(versions) {
            let members = registered.contains(room).then(|| Arc::from([]));
            self.insert(room, Membership { version: Some(version), members }, started);
        }
        Ok(())
    }
}
