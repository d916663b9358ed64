//! Puts together what people are told: the inbox, their personal streams, and what rooms wrote down for them.

use std::collections::HashSet;
use std::sync::Arc;

use bongsu_coordination::lock::embedded::EmbeddedLocks;
use bongsu_coordination::lock::redis::RedisLocks;
use bongsu_coordination::registry::Fleet as Instances;
use bongsu_coordination::{Locks, runner};
use bongsu_inbox::cache::redis::RedisCache;
use bongsu_inbox::marks::redis::RedisBuffer;
use bongsu_inbox::{Beside, FromRooms, Inbox, InboxSource, Live, RoomMembers};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id, Invalid};
use bongsu_live::log::redis::RedisFollowUps;
use bongsu_live::log::{Bus, FollowUps};
use bongsu_live::{Family, Hub};
use bongsu_members::connections::redis::RedisConnections;
use bongsu_members::live::redis::RedisPersonal;
use bongsu_members::{Connections, EmbeddedConnections, Members, Personal};
use bongsu_redis::Redis;
use bongsu_rooms::store::{Standing, Store};
use bongsu_sql::{Boxed, Error, Records};
use tokio::sync::watch;

use crate::failure::Failure;
use crate::settings::People;

/// What the inbox stands on.
pub(crate) struct Ground {
    pub(crate) hub: Hub,
    pub(crate) records: Records,
    /// The store of registered rooms.
    pub(crate) rooms: Arc<dyn Store>,
    pub(crate) fleet: Fleet,
    pub(crate) clock: Clock,
}

/// Whether this process is alone.
pub(crate) enum Fleet {
    Alone { follow_ups: Arc<dyn FollowUps> },
    Shared { redis: Redis, instances: watch::Receiver<Instances> },
}

/// What differs between the two.
struct Ways {
    live: Arc<dyn Live>,
    bus: Option<Arc<dyn Bus>>,
    follow_ups: Arc<dyn FollowUps>,
    locks: Arc<dyn Locks>,
    connections: Arc<dyn Connections>,
    beside: Option<Beside>,
}

impl Fleet {
    fn ways(self, hub: &Hub, options: &People, clock: &Clock, supervisor: &Supervisor) -> Ways {
        let lock_ttl = options.coordination.lock_ttl;
        match self {
            Self::Alone { follow_ups } => Ways {
                live: Arc::new(Personal::new(hub.clone(), clock.clone())),
                bus: None,
                follow_ups,
                locks: Arc::new(EmbeddedLocks::new(lock_ttl, clock.clone())),
                connections: Arc::new(EmbeddedConnections::new(&options.members)),
                beside: None,
            },
            Self::Shared { redis, instances } => {
                let buffer = Arc::new(RedisBuffer::new(redis.clone()));
                let (hub, clock) = (hub.clone(), clock.clone());
                let personal = RedisPersonal::start(redis.clone(), buffer.clone(), hub, clock, supervisor);
                let personal = Arc::new(personal);
                Ways {
                    beside: Some(Beside {
                        buffer,
                        cache: Arc::new(RedisCache::start(redis.clone(), supervisor)),
                    }),
                    live: personal.clone(),
                    bus: Some(personal),
                    follow_ups: Arc::new(RedisFollowUps::start(redis.clone(), supervisor)),
                    locks: Arc::new(RedisLocks::new(redis.clone(), lock_ttl)),
                    connections: Arc::new(RedisConnections::start(
                        redis,
                        instances,
                        &options.members,
                        supervisor,
                    )),
                }
            }
        }
    }
}

/// The members that get the entries of events that name nobody.
struct Registered(Arc<dyn Store>);

impl RoomMembers for Registered {
    fn registered<'a>(&'a self, rooms: &'a [Id]) -> Boxed<'a, Result<HashSet<Id>, Error>> {
        Box::pin(async move { Ok(self.0.registered(rooms).await?) })
    }

    fn members<'a>(&'a self, room: &'a Id) -> Boxed<'a, Result<Vec<Id>, Error>> {
        Box::pin(async move { Ok(self.0.members(room).await?.unwrap_or_default()) })
    }

    fn is_member<'a>(&'a self, room: &'a Id, person: &'a Id) -> Boxed<'a, Result<bool, Error>> {
        Box::pin(async move { Ok(self.0.standing(room, person).await? == Standing::Member) })
    }
}

/// Starts the inbox and personal streams.
pub(crate) fn start(
    ground: Ground,
    options: People,
    supervisor: &Supervisor,
) -> Result<(Inbox, Members), Failure> {
    let Ground { hub, records, rooms, fleet, clock } = ground;
    let Ways { live, bus, follow_ups, locks, connections, beside } =
        fleet.ways(&hub, &options, &clock, supervisor);
    let People { inbox, members, .. } = options;
    let buffered = beside.is_some();
    let registered = Arc::new(Registered(rooms));
    let rooms = FromRooms { family: bongsu_rooms::FAMILY, follow_ups, members: registered };
    let inbox = Inbox::start(records, inbox, clock, live, beside, Some(rooms), supervisor);
    let source = Arc::new(InboxSource(inbox.clone()));
    hub.serves(bongsu_inbox::FAMILY, Family { source, bus });
    let unnamed = |invalid: Invalid| Failure::Other(invalid.to_string());
    let deriving = inbox.clone();
    let derive = move |_| deriving.clone().derive();
    runner::start(locks.clone(), "inbox-derivation", supervisor, derive).map_err(unnamed)?;
    if buffered {
        let writing = inbox.clone();
        let write = move |_| writing.clone().write_behind();
        runner::start(locks, "inbox-write-behind", supervisor, write).map_err(unnamed)?;
    }
    Ok((inbox.clone(), Members::new(hub, inbox, connections, members)))
}
