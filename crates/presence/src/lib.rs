//! Presence: who is in a room over the fleet, and a `presence.update` to the streams of the room when that changes.
//!
//! A person joins a room with a stream (`join.rs`) and leaves when its guard is dropped; a person without a stream
//! sends heartbeats. An instance counts its streams (`local_presence.rs`) and reports their people to the [`store`]
//! (`report_loop.rs`), which decides over the whole fleet who joined and left. The announcements of the store reach
//! the streams through `announce.rs`. A new stream begins with a snapshot of the room.

mod announce;
mod join;
mod local_presence;
mod options;
mod part;
mod report_loop;
pub mod store;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bongsu_coordination::registry::Fleet;
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id};
use bongsu_live::log::Sink;
use bongsu_redis::Redis;
use metrics::Counter;
use tokio::sync::watch;

pub use join::PresenceGuard;
pub use options::{Options, SETTINGS};
pub use part::PRESENCE_PART;
pub use store::{Error, Occupant, Occupants};

use announce::Announcer;
use local_presence::LocalPresence;
use store::PresenceStore;
use store::embedded::EmbeddedStore;
use store::redis::RedisStore;

/// The handle of presence. Cheap to clone.
///
/// On Redis, an instance sends one command for every 50 people of each room in every third of `PRESENCE_USER_TTL_SECS`:
/// by default 500 commands per second for 10,000 idle rooms. When a person joins or leaves, their instance sends one
/// more command; when a lease expires, every instance with people in the room does. A room without people on an
/// instance costs that instance nothing.
#[derive(Clone)]
pub struct Presence(Arc<Inner>);

struct Inner {
    options: Options,
    store: Arc<dyn PresenceStore>,
    local: Arc<LocalPresence>,
    announcer: Arc<Announcer>,
    heartbeats: Counter,
    /// When a failed report was last logged.
    last_failure_log: Mutex<Option<Instant>>,
}

impl Presence {
    /// Starts presence for a single process. Updates go to `sink`, as ephemeral messages of the subject `room:<id>`.
    pub fn embedded(options: Options, clock: Clock, sink: Arc<dyn Sink>, supervisor: &Supervisor) -> Self {
        Self::start(options, sink, supervisor, |listener| {
            EmbeddedStore::start(options, clock, listener, supervisor)
        })
    }

    /// Starts presence for a fleet. Does not wait for Redis: reports are retried until it is available. People of
    /// instances that are no longer in `fleet` leave.
    pub fn on_redis(
        options: Options,
        redis: Redis,
        fleet: watch::Receiver<Fleet>,
        sink: Arc<dyn Sink>,
        supervisor: &Supervisor,
    ) -> Self {
        let (own, watched_fleet) = (redis.instance().to_owned(), fleet.clone());
        let this = Self::start(options, sink, supervisor, |listener| {
            Arc::new(RedisStore::new(options, redis, fleet, listener))
        });
        this.start_fleet_watch(own, watched_fleet, supervisor);
        this
    }

    fn start(
        options: Options,
        sink: Arc<dyn Sink>,
        supervisor: &Supervisor,
        open: impl FnOnce(Arc<Announcer>) -> Arc<dyn PresenceStore>,
    ) -> Self {
        let local = Arc::new(LocalPresence::new(options.user_ttl));
        let announcer = Arc::new(Announcer::new(sink, local.clone()));
        let (store, last_failure_log) = (open(announcer.clone()), Mutex::default());
        let heartbeats = metrics::counter!("presence_heartbeat_total");
        let this = Self(Arc::new(Inner { options, store, local, announcer, heartbeats, last_failure_log }));
        this.start_report_loop(supervisor);
        this
    }

    /// Keeps a person without a stream present. Returns the time until the next heartbeat is due.
    pub async fn heartbeat(&self, room: &Id, user: &Id) -> Result<Duration, Error> {
        self.0.store.heartbeat(room, user).await?;
        self.0.heartbeats.increment(1);
        Ok(self.0.options.heartbeat_interval())
    }

    /// Returns the number of people in a room and the first `limit` of them after the id `after`, in the order of
    /// [`compare_ids`].
    pub async fn occupants(&self, room: &Id, after: Option<&Id>, limit: usize) -> Result<Occupants, Error> {
        self.0.store.occupants(room, after, limit).await
    }
}

/// The order of ids in lists: shorter ids first, so that numbers are in numeric order.
pub fn compare_ids(one: &Id, other: &Id) -> std::cmp::Ordering {
    (one.as_str().len(), one).cmp(&(other.as_str().len(), other))
}
