//! The engines: built once from the settings. Only this module decides which adapter is behind a port.
//!
//! A process either is embedded, with everything in its data folder and its memory, or belongs to a fleet that shares
//! Redis. A part that has adapters of its own passes both to [`Engines::choose`].

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use bongsu_coordination::access_commands::embedded::EmbeddedAccessCommands;
use bongsu_coordination::access_commands::records::RevocationRecords;
use bongsu_coordination::access_commands::redis::RedisAccessCommands;
use bongsu_coordination::lock::embedded::EmbeddedLocks;
use bongsu_coordination::lock::redis::RedisLocks;
use bongsu_coordination::registry::redis::RedisRegistry;
use bongsu_coordination::registry::{self, InstanceInfo, LeaseState};
use bongsu_coordination::{AccessCommands, INSTANCE_LEASE_TTL, Locks};
use bongsu_http::identity::{self, Identity, MemoryTickets, Tickets};
use bongsu_http::origins::Origins;
use bongsu_http::server;
use bongsu_kernel::Clock;
use bongsu_kernel::settings::Values;
use bongsu_kernel::task::Supervisor;
use bongsu_limits::bucket::Buckets;
use bongsu_limits::bucket::embedded::EmbeddedBuckets;
use bongsu_limits::bucket::redis::RedisBuckets;
use bongsu_limits::connections::embedded::EmbeddedConnections;
use bongsu_limits::connections::redis::{LiveInstances, RedisConnections, check_interval};
use bongsu_limits::{Connections, Limit, Policy};
use bongsu_live::log::embedded::EmbeddedLog;
use bongsu_live::log::redis::{RedisBus, RedisFollowUps, RedisLog};
use bongsu_live::log::{Bus, FollowUps};
use bongsu_live::{Hub, Log, LogSource, SubjectKind};
use bongsu_queue::Queues;
use bongsu_redis::Redis;
use bongsu_sql::{DatabaseLock, Records, Store, WriterThread};
use tokio::sync::watch;

use crate::fleet::{AccessCommandExecutor, AccessCommandGate, StreamQuota};
use crate::fleet_settings::{self, Comparison};
use crate::storage::{MigratedStorage, Purpose, Storage};
use crate::tickets::RedisTickets;
use crate::{Failure, Parts, Roles, fleet, settings};

/// The engines that parts use.
pub struct Engines {
    pub values: Values,
    pub roles: Roles,
    pub clock: Clock,
    pub supervisor: Supervisor,
    pub hub: Hub,
    /// Stores events.
    pub log: Arc<dyn Log>,
    log_bus: Option<Arc<dyn Bus>>,
    /// None if RECORDS is off.
    pub records: Option<Records>,
    /// Messages that are handled later; None if RECORDS is off.
    pub queues: Option<Queues>,
    /// The follow-up records that publishes wrote; None if RECORDS is off.
    pub follow_ups: Option<Arc<dyn FollowUps>>,
    pub access_commands: Arc<dyn AccessCommands>,
    pub locks: Arc<dyn Locks>,
    pub buckets: Arc<dyn Buckets>,
    pub identity: Identity,
    pub origins: Origins,
    fleet: Option<FleetEngines>,
    /// The registry's view of the fleet, and the comparison of its settings. None if embedded.
    registration: Option<(watch::Receiver<registry::Fleet>, Comparison)>,
    /// The embedded store and its writer thread. None if the data folder is not used.
    file: Option<(Store, WriterThread)>,
}

/// The Redis that the processes of a fleet share, and the instances of the fleet.
#[derive(Clone)]
pub struct FleetEngines {
    pub redis: Redis,
    pub instances: watch::Receiver<registry::Fleet>,
}

/// The arguments of [`Engines::start`].
pub struct EngineInputs {
    pub values: Values,
    pub roles: Roles,
    /// The address that this process listens on.
    pub address: SocketAddr,
    pub shards: usize,
    pub supervisor: Supervisor,
}

const ACCESS_COMMANDS_STALE: &str = "access commands are not current: this instance may have missed a disconnect or revocation, and delivers nothing until it has caught up";

impl Engines {
    /// Opens all engines. Every check that can refuse the start runs before any data is changed.
    pub async fn start(parts: Parts, inputs: EngineInputs) -> Result<Self, Failure> {
        let EngineInputs { values, roles, address, shards, supervisor } = inputs;
        let (values, supervisor) = (&values, &supervisor);
        let clock = Clock::system();
        let redis = bongsu_redis::Options::from_settings(values)?;
        let database = bongsu_sql::Options::from_settings(values)?;
        let database_lock = if redis.is_some() { DatabaseLock::Shared } else { DatabaseLock::Exclusive };
        let purpose = Purpose::Serve(database_lock);
        let storage = Storage::prepare(parts, values, database.as_ref(), purpose).await?;
        let (mut fleet, mut registration) = (None, None);
        if let Some(options) = redis {
            let redis = Redis::start(options, supervisor);
            let info = InstanceInfo {
                records: storage.records_location()?,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                address: address.to_string(),
                started_at: clock.now(),
                required_settings: fleet_settings::required(parts, values),
                setting_hashes: Some(fleet_settings::hashes(parts, values)),
            };
            let registry = RedisRegistry::start(redis.clone(), &info, INSTANCE_LEASE_TTL, supervisor);
            fleet::join(&registry).await?;
            fleet::watch_refusal(&registry, supervisor);
            registration = Some((registry.fleet(), Comparison::start(parts, values, &registry, supervisor)));
            let instances = registry::debounce_losses(registry.fleet(), supervisor);
            // Makes `/health` correct from the first request. A failure does not stop the start.
            redis.check_servers().await;
            fleet = Some(FleetEngines { redis, instances });
        }
        let MigratedStorage { file, records } = storage.migrate(supervisor).await?;
        let (file, names) = match file {
            Some((file, names)) => (Some(Store::start(file, supervisor)?), names),
            None => (None, Arc::default()),
        };
        let embedded = file.as_ref().map(|(store, _)| Records::embedded(store.clone()).with_names(names));
        let records = records.or(embedded).filter(|_| settings::keeps_records(values));
        let hub = new_hub(values, shards, &clock);
        let max_idempotency_keys = settings::max_idempotency_keys(values);
        let log: Arc<dyn Log>;
        let mut follow_ups: Option<Arc<dyn FollowUps>> = None;
        let access_commands: Arc<dyn AccessCommands>;
        let mut log_bus: Option<Arc<dyn Bus>> = None;
        let executor = Arc::new(AccessCommandExecutor(hub.clone()));
        match (&fleet, &file) {
            (Some(FleetEngines { redis, .. }), _) => {
                let bus = RedisBus::start(redis.clone(), Arc::new(hub.clone()), clock.clone(), supervisor);
                log_bus = Some(Arc::new(bus));
                log =
                    Arc::new(RedisLog::start(redis.clone(), max_idempotency_keys, clock.clone(), supervisor));
                if records.is_some() {
                    follow_ups = Some(Arc::new(RedisFollowUps::new(redis.clone())));
                }
                let revocations =
                    records.clone().map(|records| RevocationRecords::new(records, clock.clone()));
                access_commands =
                    Arc::new(RedisAccessCommands::start(redis.clone(), revocations, executor, supervisor));
            }
            (None, Some((store, _))) => {
                let sink = Arc::new(hub.clone());
                let embedded_log =
                    EmbeddedLog::start(store.clone(), max_idempotency_keys, clock.clone(), sink, supervisor);
                follow_ups = Some(Arc::new(embedded_log.follow_ups()));
                log = Arc::new(embedded_log);
                let opened =
                    EmbeddedAccessCommands::open(store.clone(), clock.clone(), executor, supervisor).await;
                access_commands = Arc::new(opened.map_err(Failure::other)?);
            }
            (None, None) => {
                return Err(Failure::other("no store for events: neither Redis nor a data folder"));
            }
        }
        let queues = records.clone().map(|records| Queues::new(records, clock.clone()));
        if let Some(queues) = &queues {
            if let Some(FleetEngines { redis, .. }) = &fleet {
                queues.join_fleet(redis, supervisor);
            }
            if roles.worker {
                queues.start_upkeep(supervisor);
            }
        }
        let gate = Arc::new(AccessCommandGate(access_commands.clone()));
        if fleet.is_some() {
            hub.set_revocation_gate(gate.clone());
            fleet::watch_stalls(hub.clone(), supervisor);
            fleet::wait_for_access_commands(&*access_commands).await;
        }
        if let Some(limit) = stream_limit(values) {
            let connections = count_connections(limit, fleet.as_ref(), supervisor);
            hub.set_connection_quota(Arc::new(StreamQuota(connections)));
        }
        hub.start_upkeep(supervisor);
        let lock_ttl = bongsu_coordination::lock_ttl(values);
        let (locks, buckets, tickets): (Arc<dyn Locks>, Arc<dyn Buckets>, Arc<dyn Tickets>) = match &fleet {
            Some(FleetEngines { redis, .. }) => (
                Arc::new(RedisLocks::new(redis.clone(), lock_ttl)),
                Arc::new(RedisBuckets(redis.clone())),
                Arc::new(RedisTickets { redis: redis.clone(), clock: clock.clone() }),
            ),
            None => (
                Arc::new(EmbeddedLocks::new(lock_ttl)),
                Arc::new(EmbeddedBuckets::new(clock.clone())),
                Arc::new(MemoryTickets::new(clock.clone())),
            ),
        };
        let (options, origins) = (identity::Options::from_settings(values)?, Origins::from_settings(values)?);
        let identity =
            Identity::new(&options, origins.clone(), tickets, Some(gate), clock.clone(), supervisor)
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
            queues,
            records,
            access_commands,
            locks,
            buckets,
            identity,
            origins,
            fleet,
            registration,
            file,
        })
    }

    /// Creates the adapter for an embedded process or the one for a fleet, whichever this process is.
    pub fn choose<T>(&self, embedded: impl FnOnce() -> T, fleet: impl FnOnce(&FleetEngines) -> T) -> T {
        match &self.fleet {
            Some(shared) => fleet(shared),
            None => embedded(),
        }
    }

    /// Creates a counter of connections for a limit. In a fleet, all instances count together.
    pub fn connections(&self, limit: Limit) -> Arc<dyn Connections> {
        count_connections(limit, self.fleet.as_ref(), &self.supervisor)
    }

    /// A subject kind whose source is the log.
    pub fn log_subject_kind(&self) -> SubjectKind {
        SubjectKind { source: Arc::new(LogSource(self.log.clone())), bus: self.log_bus.clone() }
    }

    /// None if embedded.
    pub fn redis(&self) -> Option<&Redis> {
        self.fleet.as_ref().map(|fleet| &fleet.redis)
    }

    /// Whether the registry has admitted this process. A process that started during an outage of Redis cannot know yet
    /// whether its required settings, such as who may read a room, are those of the fleet.
    pub fn is_admitted(&self) -> bool {
        self.registration.as_ref().is_none_or(|(fleet, _)| {
            matches!(fleet.borrow().lease_state, LeaseState::Alive { .. } | LeaseState::Lost)
        })
    }

    /// Describes each current problem of the engines, for `/health`.
    pub fn problems(&self) -> Vec<Cow<'static, str>> {
        let (redis, records) = (self.redis(), self.records.as_ref());
        let mut problems: Vec<&'static str> = self.log.outage().into_iter().collect();
        // If events and records are in the same file, its outage is reported once.
        problems.extend(records.and_then(Records::outage).filter(|found| self.log.outage() != Some(found)));
        problems.extend(self.identity.degraded_reason());
        problems.extend((!self.access_commands.is_current()).then_some(ACCESS_COMMANDS_STALE));
        problems.extend(redis.map(Redis::write_refusals).unwrap_or_default());
        problems.extend(redis.map(Redis::warnings).unwrap_or_default());
        problems.extend(records.map(Records::warnings).unwrap_or_default());
        let stuck = self.queues.as_ref().and_then(Queues::stuck_queue);
        let differing = self.registration.iter().flat_map(|(_, comparison)| comparison.warnings());
        problems.into_iter().map(Cow::from).chain(stuck).chain(differing.map(Cow::from)).collect()
    }

    /// Takes the embedded store and its writer thread, which shutdown closes last. None if the data folder is not used.
    pub fn take_file(&mut self) -> Option<(Store, WriterThread)> {
        self.file.take()
    }
}

fn count_connections(
    limit: Limit,
    fleet: Option<&FleetEngines>,
    supervisor: &Supervisor,
) -> Arc<dyn Connections> {
    let Some(FleetEngines { redis, instances }) = fleet.cloned() else {
        return Arc::new(EmbeddedConnections::new(limit));
    };
    let alive = move || {
        let fleet = instances.borrow();
        let instances = fleet.alive.iter().map(|instance| instance.id.clone()).collect();
        LiveInstances { instances, seen_at: fleet.seen_at }
    };
    let interval = check_interval(limit.policy);
    Arc::new(RedisConnections::start(redis, limit, Arc::new(alive), interval, supervisor))
}

/// The limit of open streams per person, for streams without a limit of their own. None if unlimited.
fn stream_limit(values: &Values) -> Option<Limit> {
    let max = bongsu_live::Options::from_settings(values).max_streams_per_person;
    let limit = Limit { name: "sse:streams", max, policy: Policy::Refuse, lifetime: None };
    (max > 0).then_some(limit)
}

fn new_hub(values: &Values, shards: usize, clock: &Clock) -> Hub {
    let mut options = bongsu_live::Options::from_settings(values);
    let (_, capacity) = server::capacity();
    // 0 means no configured limit. The limit of open files still applies, less a share for requests.
    options.max_streams = if options.max_streams == 0 { capacity } else { options.max_streams.min(capacity) };
    Hub::new(options, shards, clock.clone())
}
