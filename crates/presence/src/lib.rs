//! Presence: who is in a room, over a fleet of hubs, and one `presence.update` for everybody when that changes.
//!
//! A stream is joined (`join.rs`) and leaves when its guard is dropped; people without one send heartbeats. Who is here
//! is kept by this hub (`here.rs`) and told to the [`store`] again and again (`renew.rs`), where comings and goings of
//! all hubs are decided; what the store announces reaches this hub's streams through `announce.rs`. A new stream begins
//! with what the others have been told.

mod announce;
mod here;
mod join;
mod options;
mod part;
mod renew;
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

pub use join::Joined;
pub use options::{Options, SETTINGS};
pub use part::PRESENCE_PART;
pub use store::{Error, Online, Who};

use announce::Announcer;
use here::Here;
use store::Store;
use store::embedded::EmbeddedStore;
use store::redis::RedisStore;

/// The handle. Cheap to clone.
///
/// On Redis, a room with people on this hub costs it one command per fifty of them and third of
/// `PRESENCE_USER_TTL_SECS`, whatever happens there: 10,000 idle rooms are 500 commands a second. A coming or going is
/// one more for its hub, somebody's expiry one for every hub with people in the room. Rooms without people here cost
/// nothing.
#[derive(Clone)]
pub struct Presence(Arc<Inner>);

struct Inner {
    options: Options,
    store: Arc<dyn Store>,
    here: Arc<Here>,
    announcer: Arc<Announcer>,
    heartbeats: Counter,
    /// When a failure was last logged.
    complained: Mutex<Option<Instant>>,
}

impl Presence {
    /// For one process. What changes is passed on to `sink`, as an event of the subject `room:<id>`.
    pub fn embedded(options: Options, clock: Clock, sink: Arc<dyn Sink>, supervisor: &Supervisor) -> Self {
        Self::start(options, sink, supervisor, |ears| EmbeddedStore::start(options, clock, ears, supervisor))
    }

    /// For a fleet. Does not wait for Redis, and goes on without it: who is here is told when it is there. The people of
    /// instances that are no longer in `fleet` leave.
    pub fn on_redis(
        options: Options,
        redis: Redis,
        fleet: watch::Receiver<Fleet>,
        sink: Arc<dyn Sink>,
        supervisor: &Supervisor,
    ) -> Self {
        let (own, followed) = (redis.instance().to_owned(), fleet.clone());
        let this = Self::start(options, sink, supervisor, |ears| {
            Arc::new(RedisStore::new(options, redis, fleet, ears))
        });
        this.start_following(own, followed, supervisor);
        this
    }

    fn start(
        options: Options,
        sink: Arc<dyn Sink>,
        supervisor: &Supervisor,
        open: impl FnOnce(Arc<Announcer>) -> Arc<dyn Store>,
    ) -> Self {
        let here = Arc::new(Here::new(options.user_ttl));
        let announcer = Arc::new(Announcer::new(sink, here.clone()));
        let (store, complained) = (open(announcer.clone()), Mutex::default());
        let heartbeats = metrics::counter!("presence_heartbeat_total");
        let this = Self(Arc::new(Inner { options, store, here, announcer, heartbeats, complained }));
        this.start_renewing(supervisor);
        this
    }

    /// A person without a stream is still there. Gives the time until the next heartbeat is due.
    pub async fn heartbeat(&self, room: &Id, user: &Id) -> Result<Duration, Error> {
        self.0.store.beat(room, user).await?;
        self.0.heartbeats.increment(1);
        Ok(self.0.options.heartbeat())
    }

    /// How many are in a room, and some of them: the first `most` after a person, in the order of [`in_order`].
    pub async fn who(&self, room: &Id, after: Option<&Id>, most: usize) -> Result<Who, Error> {
        self.0.store.who(room, after, most).await
    }
}

/// The order of ids in lists: shorter ones first, so that numbers stand in their own order.
pub fn in_order(one: &Id, other: &Id) -> std::cmp::Ordering {
    (one.as_str().len(), one).cmp(&(other.as_str().len(), other))
}
