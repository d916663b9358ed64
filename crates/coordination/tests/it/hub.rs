//! Hubs of a fleet on an engine, as far as coordination goes: each on a thread of its own, so that it can be killed and
//! can stand still. On the embedded engine there is one, however often it is asked for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_coordination::lock::redis::RedisLocks;
use bongsu_coordination::orders::redis::RedisOrders;
use bongsu_coordination::registry::redis::RedisRegistry;
use bongsu_coordination::registry::{About, Records};
use bongsu_coordination::{Apply, Locks, Order, Orders};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Id, random};
use bongsu_redis::{Address, Options, Redis};
use bongsu_testkit::{Island, wait};

/// How long instances and locks last here. Short, so that their end can be waited for, and longer than a busy machine
/// holds up whoever renews them.
pub(crate) const LEASE: Duration = Duration::from_secs(5);
/// What has not happened by then will not.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Where hubs find each other.
pub(crate) trait Engine: Sized {
    /// An empty place. None where the engine cannot be had.
    async fn start() -> Option<Self>;

    /// Another hub. It has joined.
    async fn hub(&mut self) -> Hub;

    /// Ends everything as a kill would. Hubs that are asked for afterwards find what is left.
    async fn kill(&mut self, hubs: Vec<Hub>);
}

/// What every hub has.
#[derive(Clone)]
pub(crate) struct Coordination {
    pub(crate) locks: Arc<dyn Locks>,
    pub(crate) orders: Arc<dyn Orders>,
}

pub(crate) struct Hub {
    pub(crate) coordination: Coordination,
    pub(crate) applied: Arc<Memory>,
    pub(crate) supervisor: Supervisor,
    /// None for the embedded one.
    pub(crate) process: Option<Process>,
}

pub(crate) struct Process {
    pub(crate) island: Island,
    pub(crate) redis: Redis,
    registry: RedisRegistry,
}

impl Hub {
    /// Starts one, without waiting for it to join.
    pub(crate) async fn start(url: &str, prefix: &str, records: Records) -> Self {
        Self::start_as(url, prefix, &about(records)).await
    }

    pub(crate) async fn start_as(url: &str, prefix: &str, about: &About) -> Self {
        let (island, supervisor) = (Island::start(), Supervisor::new());
        let options = Options { address: Address::parse(url).unwrap(), prefix: prefix.to_owned() };
        let applied = Arc::new(Memory::default());
        let (coordination, redis, registry) = {
            let _there = island.enter();
            let redis = Redis::start(options, &supervisor);
            let registry = RedisRegistry::start(redis.clone(), about, LEASE, &supervisor);
            let orders = RedisOrders::start(redis.clone(), None, applied.clone(), &supervisor);
            let coordination = Coordination {
                locks: Arc::new(RedisLocks::new(redis.clone(), LEASE)),
                orders: Arc::new(orders),
            };
            (coordination, redis, registry)
        };
        // So that its connections live there, too.
        let looking = redis.clone();
        island.run(async move { looking.look().await }).await;
        Self { coordination, applied, supervisor, process: Some(Process { island, redis, registry }) }
    }

    pub(crate) fn island(&self) -> &Island {
        &self.process.as_ref().expect("a hub of a fleet").island
    }

    pub(crate) fn registry(&self) -> &RedisRegistry {
        &self.process.as_ref().expect("a hub of a fleet").registry
    }

    pub(crate) fn id(&self) -> &str {
        self.registry().me()
    }

    pub(crate) async fn join(&self) {
        self.registry().join().await.unwrap();
    }

    /// Ends it in order.
    pub(crate) async fn stop(self) {
        let Self { supervisor, process, .. } = self;
        assert!(supervisor.shut_down(PATIENCE).await);
        drop(process);
    }

    pub(crate) fn kill(self) {
        self.process.expect("a hub of a fleet").island.kill();
    }

    /// The ids of those that it thinks alive.
    pub(crate) fn alive(&self) -> Vec<String> {
        let fleet = self.registry().fleet().borrow().clone();
        fleet.alive.into_iter().map(|instance| instance.id).collect()
    }

    pub(crate) async fn sees(&self, hubs: &[&Hub]) {
        let mut ids: Vec<&str> = hubs.iter().map(|hub| hub.id()).collect();
        ids.sort_unstable();
        wait::until(PATIENCE, || async { self.alive() == ids }).await;
    }

    pub(crate) async fn give(&self, order: Order) {
        self.coordination.orders.give(order).await.unwrap();
    }

    pub(crate) async fn catch_up(&self) {
        self.coordination.orders.catch_up().await.unwrap();
    }

    pub(crate) async fn is_current(&self) {
        wait::until(PATIENCE, || async { self.coordination.orders.is_current() }).await;
    }

    pub(crate) async fn revoked(&self, user: &str) -> Option<u64> {
        self.coordination.orders.revoked_before(&id(user)).await.unwrap()
    }
}

pub(crate) fn about(records: Records) -> About {
    let settings = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    About {
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

pub(crate) fn kick(user: &str) -> Order {
    Order::Disconnect { user: id(user) }
}

pub(crate) fn revoke(user: &str, issued_before: u64) -> Order {
    Order::Revoke { user: id(user), issued_before }
}

/// Remembers the orders that were applied.
#[derive(Default)]
pub(crate) struct Memory {
    orders: Mutex<Vec<Order>>,
    missed: AtomicU64,
}

impl Memory {
    pub(crate) fn orders(&self) -> Vec<Order> {
        self.orders.lock().unwrap().clone()
    }

    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::SeqCst)
    }

    pub(crate) async fn comes_to(&self, orders: &[Order]) {
        wait::until(PATIENCE, || async { self.orders().len() >= orders.len() }).await;
        assert_eq!(self.orders(), orders);
    }
}

impl Apply for Memory {
    fn apply(&self, order: &Order) {
        self.orders.lock().unwrap().push(order.clone());
    }

    fn missed(&self) {
        self.missed.fetch_add(1, Ordering::SeqCst);
    }
}

/// A prefix that no other test has, in whichever process it runs.
pub(crate) fn prefix() -> String {
    format!("coordination{:016x}:", random::between(0, u64::MAX - 1))
}

/// A fleet on an engine that all tests share.
pub(crate) struct Fleet {
    url: String,
    prefix: String,
}

impl Fleet {
    pub(crate) async fn on(engine: bongsu_testkit::Engine) -> Option<Self> {
        if !bongsu_testkit::tier::needs_engine("redis") {
            return None;
        }
        let url = engine.shared_url().await.expect("an engine that hubs share");
        Some(Self { url, prefix: prefix() })
    }

    pub(crate) async fn start_hub(&self, about: &About) -> Hub {
        Hub::start_as(&self.url, &self.prefix, about).await
    }

    pub(crate) async fn next_hub(&self) -> Hub {
        let hub = self.start_hub(&about(Records::Off)).await;
        hub.join().await;
        hub
    }
}

/// An engine on which there can be a fleet.
pub(crate) trait Shared: Engine {
    /// Another hub that says this of itself, and has not joined.
    async fn hub_as(&mut self, about: &About) -> Hub;

    async fn hub_with(&mut self, records: Records) -> Hub {
        self.hub_as(&about(records)).await
    }
}

/// Makes an engine of a fleet.
macro_rules! shared {
    ($name:ident, $engine:expr) => {
        pub(crate) struct $name($crate::hub::Fleet);

        impl $crate::hub::Engine for $name {
            async fn start() -> Option<Self> {
                $crate::hub::Fleet::on($engine).await.map(Self)
            }

            async fn hub(&mut self) -> $crate::hub::Hub {
                self.0.next_hub().await
            }

            async fn kill(&mut self, hubs: Vec<$crate::hub::Hub>) {
                hubs.into_iter().for_each($crate::hub::Hub::kill);
            }
        }

        impl $crate::hub::Shared for $name {
            async fn hub_as(&mut self, about: &bongsu_coordination::registry::About) -> $crate::hub::Hub {
                self.0.start_hub(about).await
            }
        }
    };
}
pub(crate) use shared;
