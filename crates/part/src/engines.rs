//! The engines: what the hub stands on, built once from the settings. Which adapter is behind a port is decided here and
//! nowhere else.
//!
//! A process is alone, with everything in its data folder and its memory, or one of a fleet that shares Redis. A part that
//! has adapters of its own gives both to [`Engines::choose`].

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use bongsu_coordination::lock::embedded::EmbeddedLocks;
use bongsu_coordination::lock::redis::RedisLocks;
use bongsu_coordination::orders::embedded::EmbeddedOrders;
use bongsu_coordination::orders::records::RevocationRecords;
use bongsu_coordination::orders::redis::RedisOrders;
use bongsu_coordination::registry::redis::RedisRegistry;
use bongsu_coordination::registry::{self, About, Standing};
use bongsu_coordination::{LEASE, Locks, Orders};
use bongsu_http::identity::{self, Identity, OwnTickets, Tickets};
use bongsu_http::origins::Origins;
use bongsu_http::server;
use bongsu_kernel::Clock;
use bongsu_kernel::settings::Values;
use bongsu_kernel::task::Supervisor;
use bongsu_limits::bucket::Buckets;
use bongsu_limits::bucket::embedded::EmbeddedBuckets;
use bongsu_limits::bucket::redis::RedisBuckets;
use bongsu_limits::connections::embedded::EmbeddedConnections;
use bongsu_limits::connections::redis::{Alive, RedisConnections, check_interval};
use bongsu_limits::{Connections, Limit, Policy};
use bongsu_live::log::embedded::EmbeddedLog;
use bongsu_live::log::redis::{RedisBus, RedisFollowUps, RedisLog};
use bongsu_live::log::{Bus, FollowUps};
use bongsu_live::{Family, Hub, Log, LogSource};
use bongsu_redis::Redis;
use bongsu_sql::{Claim, Records, Store, WriterState};
use tokio::sync::watch;

use crate::fleet::{Doorkeeper, Ordered, StreamPlaces};
use crate::fleet_settings::{self, Comparison};
use crate::storage::{Opened, Purpose, Storage};
use crate::tickets::RedisTickets;
use crate::{Failure, Parts, Roles, fleet, settings};

/// What parts get to work with.
pub struct Engines {
    pub values: Values,
    pub roles: Roles,
    pub clock: Clock,
    pub supervisor: Supervisor,
    pub hub: Hub,
    /// Where events are kept.
    pub log: Arc<dyn Log>,
    log_bus: Option<Arc<dyn Bus>>,
    /// Nothing when nothing is recorded.
    pub records: Option<Records>,
    /// What publishing wrote down for later; nothing when nothing is recorded.
    pub follow_ups: Option<Arc<dyn FollowUps>>,
    pub orders: Arc<dyn Orders>,
    pub locks: Arc<dyn Locks>,
    pub buckets: Arc<dyn Buckets>,
    pub identity: Identity,
    pub origins: Origins,
    fleet: Option<Fleet>,
    /// How this process stands in its fleet, and how its settings compare. None where there is none.
    registered: Option<(watch::Receiver<registry::Fleet>, Comparison)>,
    file: Option<(Store, WriterState)>,
}

/// What a process of a fleet shares with the others.
#[derive(Clone)]
pub struct Fleet {
    pub redis: Redis,
    pub instances: watch::Receiver<registry::Fleet>,
}

/// What engines are started with.
pub struct Start {
    pub values: Values,
    pub roles: Roles,
    /// Where this process listens.
    pub address: SocketAddr,
    pub shards: usize,
    pub supervisor: Supervisor,
}

const BLIND: &str =
    "it is not known here who was disconnected or revoked: nothing is delivered until it is known again";

impl Engines {
    /// Opens everything. Whatever may refuse the start is asked before anything is changed.
    pub async fn start(parts: Parts, start: Start) -> Result<Self, Failure> {
        let Start { values, roles, address, shards, supervisor } = start;
        let (values, supervisor) = (&values, &supervisor);
        let clock = Clock::system();
        let redis = bongsu_redis::Options::from_settings(values)?;
        let database = bongsu_sql::Options::from_settings(values)?;
        let claim = if redis.is_some() { Claim::Shared } else { Claim::Alone };
        let storage = Storage::prepare(parts, values, database.as_ref(), Purpose::Serve(claim)).await?;
        let (mut fleet, mut registered) = (None, None);
        if let Some(options) = redis {
            let redis = Redis::start(options, supervisor);
            let about = About {
                records: storage.standing()?,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                address: address.to_string(),
                started_at: clock.now(),
                required_settings: fleet_settings::required(parts, values),
                setting_hashes: Some(fleet_settings::hashes(parts, values)),
            };
            let joined = RedisRegistry::start(redis.clone(), &about, LEASE, supervisor);
            fleet::join(&joined).await?;
            fleet::watch(&joined, supervisor);
            registered = Some((joined.fleet(), Comparison::start(parts, values, &joined, supervisor)));
            let instances = registry::settled(joined.fleet(), supervisor);
            // So that health tells the truth from the first moment. A hub starts without Redis, too.
            redis.look().await;
            fleet = Some(Fleet { redis, instances });
        }
        let Opened { file, records } = storage.migrate(supervisor).await?;
        let (file, names) = match file {
            Some((file, names)) => (Some(Store::start(file, supervisor)?), names),
            None => (None, Arc::default()),
        };
        let own_records = file.as_ref().map(|(store, _)| Records::embedded(store.clone()).named(names));
        let records = records.or(own_records).filter(|_| settings::keeps_records(values));
        let hub = new_hub(values, shards, &clock);
        let most_keys = settings::most_keys(values);
        let log: Arc<dyn Log>;
        let mut follow_ups: Option<Arc<dyn FollowUps>> = None;
        let orders: Arc<dyn Orders>;
        let mut log_bus: Option<Arc<dyn Bus>> = None;
        let doorkeeper = Arc::new(Doorkeeper(hub.clone()));
        match (&fleet, &file) {
            (Some(Fleet { redis, .. }), _) => {
                let bus = RedisBus::start(redis.clone(), Arc::new(hub.clone()), clock.clone(), supervisor);
                log_bus = Some(Arc::new(bus));
                log = Arc::new(RedisLog::start(redis.clone(), most_keys, clock.clone(), supervisor));
                if records.is_some() {
                    follow_ups = Some(Arc::new(RedisFollowUps::new(redis.clone())));
                }
                let recorded = records.clone().map(|records| RevocationRecords::new(records, clock.clone()));
                orders = Arc::new(RedisOrders::start(redis.clone(), recorded, doorkeeper, supervisor));
            }
            (None, Some((store, _))) => {
                let sink = Arc::new(hub.clone());
                let own = EmbeddedLog::start(store.clone(), most_keys, clock.clone(), sink, supervisor);
                follow_ups = Some(Arc::new(own.follow_ups()));
                log = Arc::new(own);
                let opened = EmbeddedOrders::open(store.clone(), clock.clone(), doorkeeper, supervisor).await;
                orders = Arc::new(opened.map_err(Failure::other)?);
            }
            (None, None) => return Err(Failure::Other("there is nowhere to keep events".to_owned())),
        }
        let ordered = Arc::new(Ordered(orders.clone()));
        if fleet.is_some() {
            hub.set_gate(ordered.clone());
            fleet::watch_stalls(hub.clone(), supervisor);
            fleet::settle(&*orders).await;
        }
        if let Some(limit) = stream_limit(values) {
            let connections = count_connections(limit, fleet.as_ref(), supervisor);
            hub.limit_people(Arc::new(StreamPlaces(connections)));
        }
        hub.start_upkeep(supervisor);
        let lock_ttl = bongsu_coordination::lock_ttl(values);
        let (locks, buckets, tickets): (Arc<dyn Locks>, Arc<dyn Buckets>, Arc<dyn Tickets>) = match &fleet {
            Some(Fleet { redis, .. }) => (
                Arc::new(RedisLocks::new(redis.clone(), lock_ttl)),
                Arc::new(RedisBuckets(redis.clone())),
                Arc::new(RedisTickets { redis: redis.clone(), clock: clock.clone() }),
            ),
            None => (
                Arc::new(EmbeddedLocks::new(lock_ttl)),
                Arc::new(EmbeddedBuckets::new(clock.clone())),
                Arc::new(OwnTickets::new(clock.clone())),
            ),
        };
        let (options, origins) = (identity::Options::from_settings(values)?, Origins::from_settings(values)?);
        let identity =
            Identity::new(&options, origins.clone(), tickets, Some(ordered), clock.clone(), supervisor)
                .map_err(|error| Failure::other(error.text.en))?;
        Ok(Self {
            values: values.clone(),
            roles,
            clock,
            supervisor: supervisor.clone(),
            hub,
            log,
            log_bus,
            follow_ups,
            records,
            orders,
            locks,
            buckets,
            identity,
            origins,
            fleet,
            registered,
            file,
        })
    }

    /// The adapter for a process that is alone, or the one for a fleet.
    pub fn choose<T>(&self, alone: impl FnOnce() -> T, fleet: impl FnOnce(&Fleet) -> T) -> T {
        match &self.fleet {
            Some(shared) => fleet(shared),
            None => alone(),
        }
    }

    /// Counts the connections that a limit is about, together with the other instances of a fleet.
    pub fn connections(&self, limit: Limit) -> Arc<dyn Connections> {
        count_connections(limit, self.fleet.as_ref(), &self.supervisor)
    }

    /// A family of subjects whose events are in the log.
    pub fn log_family(&self) -> Family {
        Family { source: Arc::new(LogSource(self.log.clone())), bus: self.log_bus.clone() }
    }

    /// None: embedded, there is no Redis.
    pub fn redis(&self) -> Option<&Redis> {
        self.fleet.as_ref().map(|fleet| &fleet.redis)
    }

    /// Whether this process was let into its fleet. One that started while Redis was away does not know yet whether it has the
    /// settings of the others, by which people may read.
    pub fn is_admitted(&self) -> bool {
        self.registered.as_ref().is_none_or(|(fleet, _)| {
            matches!(fleet.borrow().standing, Standing::Alive { .. } | Standing::Lost)
        })
    }

    /// What does not work as it should, in words.
    pub fn trouble(&self) -> Vec<Cow<'static, str>> {
        let (redis, records) = (self.redis(), self.records.as_ref());
        let mut trouble: Vec<&'static str> = self.log.trouble().into_iter().collect();
        // Events and records may be in the same file, which has its trouble once.
        trouble.extend(records.and_then(Records::trouble).filter(|found| self.log.trouble() != Some(found)));
        trouble.extend(self.identity.trouble());
        trouble.extend((!self.orders.is_current()).then_some(BLIND));
        trouble.extend(redis.map(Redis::refusals).unwrap_or_default());
        trouble.extend(redis.map(Redis::warnings).unwrap_or_default());
        trouble.extend(records.map(Records::warnings).unwrap_or_default());
        let differing = self.registered.iter().flat_map(|(_, compared)| compared.warnings());
        trouble.into_iter().map(Cow::from).chain(differing.map(Cow::from)).collect()
    }

    /// What has to be finished at the end; nothing when nothing is kept here.
    pub fn take_file(&mut self) -> Option<(Store, WriterState)> {
        self.file.take()
    }
}

fn count_connections(limit: Limit, fleet: Option<&Fleet>, supervisor: &Supervisor) -> Arc<dyn Connections> {
    let Some(Fleet { redis, instances }) = fleet.cloned() else {
        return Arc::new(EmbeddedConnections::new(limit));
    };
    let alive = move || {
        let fleet = instances.borrow();
        let instances = fleet.alive.iter().map(|instance| instance.id.clone()).collect();
        Alive { instances, seen_at: fleet.seen_at }
    };
    let interval = check_interval(limit.policy);
    Arc::new(RedisConnections::start(redis, limit, Arc::new(alive), interval, supervisor))
}

/// Streams that a person may have open, but for those with a limit of their own. None for any number.
fn stream_limit(values: &Values) -> Option<Limit> {
    let max = bongsu_live::Options::from_settings(values).per_person;
    let limit = Limit { name: "sse:streams", max, policy: Policy::Refuse, lifetime: None };
    (max > 0).then_some(limit)
}

fn new_hub(values: &Values, shards: usize, clock: &Clock) -> Hub {
    let mut options = bongsu_live::Options::from_settings(values);
    let (_, most_streams) = server::capacity();
    // A limit of 0 is none of ours, but the system has one, and requests need their share of it.
    options.most = if options.most == 0 { most_streams } else { options.most.min(most_streams) };
    Hub::new(options, shards, clock.clone())
}
