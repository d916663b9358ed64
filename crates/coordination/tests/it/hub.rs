//! Hubs with only their coordination. Each hub of a fleet has its own runtime thread, so that a test can kill or
//! suspend it. On the embedded engine all handles share one hub.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_coordination::access_commands::redis::RedisAccessCommands;
use bongsu_coordination::lock::redis::RedisLocks;
use bongsu_coordination::registry::redis::RedisRegistry;
use bongsu_coordination::registry::{InstanceInfo, RecordsLocation};
use bongsu_coordination::{AccessCommand, AccessCommandHandler, AccessCommands, Locks};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Id, random};
use bongsu_redis::{Options, Redis, RedisAddress};
use bongsu_testkit::{IsolatedRuntime, wait};

/// The time to live of leases and locks in these tests. Short, so that tests can wait for its end, but longer than a
/// busy machine delays a renewal.
pub(crate) const LEASE_TTL: Duration = Duration::from_secs(5);
/// Time after which a test that waits for a condition fails.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// An engine that the contracts run on.
pub(crate) trait Engine: Sized {
    /// An engine without data. None if the engine is not available in this run.
    async fn start() -> Option<Self>;

    /// Starts a hub that has joined the fleet.
    async fn hub(&mut self) -> Hub;

    /// Kills the hubs. Hubs that start later find the data that is left.
    async fn kill(&mut self, hubs: Vec<Hub>);
}

/// The coordination of a hub.
#[derive(Clone)]
pub(crate) struct Coordination {
    pub(crate) locks: Arc<dyn Locks>,
    pub(crate) access_commands: Arc<dyn AccessCommands>,
}

pub(crate) struct Hub {
    pub(crate) coordination: Coordination,
    pub(crate) recorder: Arc<CommandRecorder>,
    pub(crate) supervisor: Supervisor,
    /// None on the embedded engine.
    pub(crate) process: Option<Process>,
}

pub(crate) struct Process {
    pub(crate) runtime: IsolatedRuntime,
    pub(crate) redis: Redis,
    registry: RedisRegistry,
}

impl Hub {
    /// Starts a hub without waiting until it has joined.
    pub(crate) async fn start(url: &str, prefix: &str, records: RecordsLocation) -> Self {
        Self::start_as(url, prefix, &instance_info(records)).await
    }

    pub(crate) async fn start_as(url: &str, prefix: &str, info: &InstanceInfo) -> Self {
        let (runtime, supervisor) = (IsolatedRuntime::start(), Supervisor::new());
        let options = Options { address: RedisAddress::parse(url).unwrap(), prefix: prefix.to_owned() };
        let recorder = Arc::new(CommandRecorder::default());
        let (coordination, redis, registry) = {
            let _guard = runtime.enter();
            let redis = Redis::start(options, &supervisor);
            let registry = RedisRegistry::start(redis.clone(), info, LEASE_TTL, &supervisor);
            let commands = RedisAccessCommands::start(redis.clone(), None, recorder.clone(), &supervisor);
            let coordination = Coordination {
                locks: Arc::new(RedisLocks::new(redis.clone(), LEASE_TTL)),
                access_commands: Arc::new(commands),
            };
            (coordination, redis, registry)
        };
        // Opens the connections to Redis on the hub's own runtime.
        let client = redis.clone();
        runtime.run(async move { client.check_servers().await }).await;
        Self { coordination, recorder, supervisor, process: Some(Process { runtime, redis, registry }) }
    }

    pub(crate) fn runtime(&self) -> &IsolatedRuntime {
        &self.process.as_ref().expect("a hub of a fleet").runtime
    }

    pub(crate) fn registry(&self) -> &RedisRegistry {
        &self.process.as_ref().expect("a hub of a fleet").registry
    }

    pub(crate) fn id(&self) -> &str {
        self.registry().instance_id()
    }

    pub(crate) async fn join(&self) {
        self.registry().join().await.unwrap();
    }

    /// Stops the hub as a shutdown does.
    pub(crate) async fn stop(self) {
        let Self { supervisor, process, .. } = self;
        assert!(supervisor.shut_down(WAIT_TIMEOUT).await);
        drop(process);
    }

    pub(crate) fn kill(self) {
        self.process.expect("a hub of a fleet").runtime.kill();
    }

    /// The ids of the instances that this hub considers alive.
    pub(crate) fn alive(&self) -> Vec<String> {
        let fleet = self.registry().fleet().borrow().clone();
        fleet.alive.into_iter().map(|instance| instance.id).collect()
    }

    pub(crate) async fn wait_until_alive(&self, hubs: &[&Hub]) {
        let mut ids: Vec<&str> = hubs.iter().map(|hub| hub.id()).collect();
        ids.sort_unstable();
        wait::until(WAIT_TIMEOUT, || async { self.alive() == ids }).await;
    }

    pub(crate) async fn issue(&self, command: AccessCommand) {
        self.coordination.access_commands.issue(command).await.unwrap();
    }

    pub(crate) async fn catch_up(&self) {
        self.coordination.access_commands.catch_up().await.unwrap();
    }

    pub(crate) async fn wait_until_current(&self) {
        wait::until(WAIT_TIMEOUT, || async { self.coordination.access_commands.is_current() }).await;
    }

    pub(crate) async fn revoked(&self, user: &str) -> Option<u64> {
        self.coordination.access_commands.revoked_before(&id(user)).await.unwrap()
    }
}

pub(crate) fn instance_info(records: RecordsLocation) -> InstanceInfo {
    let settings = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    InstanceInfo {
        records,
        version: "0.1.0".to_owned(),
        address: "hub.test:8083".to_owned(),
        started_at: 7,
        required_settings: settings("MODE", "open"),
        setting_hashes: Some(settings("KEY", "0123456789abcdef")),
    }
}

pub(crate) fn id(text: &str) -> Id {
    Id::new(text).unwrap()
}

pub(crate) fn disconnect(user: &str) -> AccessCommand {
    AccessCommand::Disconnect { user: id(user) }
}

pub(crate) fn revoke(user: &str, issued_before: u64) -> AccessCommand {
    AccessCommand::Revoke { user: id(user), issued_before }
}

/// Records the commands that were applied.
#[derive(Default)]
pub(crate) struct CommandRecorder {
    commands: Mutex<Vec<AccessCommand>>,
    missed_count: AtomicU64,
}

impl CommandRecorder {
    pub(crate) fn commands(&self) -> Vec<AccessCommand> {
        self.commands.lock().unwrap().clone()
    }

    /// How often the adapter reported that commands may have been missed.
    pub(crate) fn missed_count(&self) -> u64 {
        self.missed_count.load(Ordering::SeqCst)
    }

    pub(crate) async fn wait_for_commands(&self, commands: &[AccessCommand]) {
        wait::until(WAIT_TIMEOUT, || async { self.commands().len() >= commands.len() }).await;
        assert_eq!(self.commands(), commands);
    }
}

impl AccessCommandHandler for CommandRecorder {
    fn apply(&self, command: &AccessCommand) {
        self.commands.lock().unwrap().push(command.clone());
    }

    fn handle_missed(&self) {
        self.missed_count.fetch_add(1, Ordering::SeqCst);
    }
}

/// A random key prefix, so that tests in several processes can share one engine.
pub(crate) fn prefix() -> String {
    format!("coordination{:016x}:", random::between(0, u64::MAX - 1))
}

/// A fleet on an engine that all tests share, with its own key prefix.
pub(crate) struct Fleet {
    url: String,
    prefix: String,
}

impl Fleet {
    pub(crate) async fn on(engine: bongsu_testkit::Engine) -> Option<Self> {
        if !bongsu_testkit::tier::needs_engine("redis") {
            return None;
        }
        let url = engine.shared_url().await.expect("the engine has a shared server");
        Some(Self { url, prefix: prefix() })
    }

    pub(crate) async fn start_hub(&self, info: &InstanceInfo) -> Hub {
        Hub::start_as(&self.url, &self.prefix, info).await
    }

    pub(crate) async fn start_joined_hub(&self) -> Hub {
        let hub = self.start_hub(&instance_info(RecordsLocation::Off)).await;
        hub.join().await;
        hub
    }
}

/// An engine on which a fleet of several instances can run.
pub(crate) trait FleetEngine: Engine {
    /// Starts a hub with this instance info. The hub has not joined.
    async fn hub_with_info(&mut self, info: &InstanceInfo) -> Hub;

    async fn hub_with_records(&mut self, records: RecordsLocation) -> Hub {
        self.hub_with_info(&instance_info(records)).await
    }
}

/// Declares a type that implements [`FleetEngine`] on an engine of the testkit.
macro_rules! fleet_engine {
    ($name:ident, $engine:expr) => {
        pub(crate) struct $name($crate::hub::Fleet);

        impl $crate::hub::Engine for $name {
            async fn start() -> Option<Self> {
                $crate::hub::Fleet::on($engine).await.map(Self)
            }

            async fn hub(&mut self) -> $crate::hub::Hub {
                self.0.start_joined_hub().await
            }

            async fn kill(&mut self, hubs: Vec<$crate::hub::Hub>) {
                hubs.into_iter().for_each($crate::hub::Hub::kill);
            }
        }

        impl $crate::hub::FleetEngine for $name {
            async fn hub_with_info(
                &mut self,
                info: &bongsu_coordination::registry::InstanceInfo,
            ) -> $crate::hub::Hub {
                self.0.start_hub(info).await
            }
        }
    };
}
pub(crate) use fleet_engine;
