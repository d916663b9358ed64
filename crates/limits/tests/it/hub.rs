//! The instances of a fleet, reduced to their limits. Each has a runtime of its own, so that a test can kill or pause
//! it. On the embedded engine all hubs of a test are the same one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id, random};
use bongsu_limits::bucket::redis::RedisBuckets;
use bongsu_limits::connections::ConnectionLimitError;
use bongsu_limits::connections::redis::{LiveInstances, RedisConnections};
use bongsu_limits::{Buckets, ConnectionPermit, Connections, Limit, Policy};
use bongsu_redis::{Options, Redis, RedisAddress};
use bongsu_testkit::{IsolatedRuntime, tier, wait};

/// The lease of an instance: short enough to wait for its end, and longer than a busy machine delays a renewal.
pub(crate) const LEASE: Duration = Duration::from_secs(5);
/// Time between two checks of a hub's connections.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// How long a test waits for an expected change.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// Time after which a wrong replacement of an open connection would have happened.
const SETTLE_TIME: Duration = Duration::from_millis(800);

/// An engine on which hubs count together.
pub(crate) trait Engine: Sized {
    /// Starts without data. None when the engine is not available to this run.
    async fn start() -> Option<Self>;

    async fn hub(&mut self, limit: Limit) -> Hub;
}

pub(crate) fn refuse(max: usize) -> Limit {
    Limit { name: "sse:test", max, policy: Policy::Refuse, lifetime: None }
}

pub(crate) fn replace(max: usize) -> Limit {
    Limit { policy: Policy::Replace, lifetime: Some(Duration::from_secs(600)), ..refuse(max) }
}

pub(crate) async fn two_hubs<E: Engine>(engine: &mut E, limit: Limit) -> [Hub; 2] {
    [engine.hub(limit.clone()).await, engine.hub(limit).await]
}

pub(crate) struct Hub {
    pub(crate) connections: Arc<dyn Connections>,
    pub(crate) buckets: Arc<dyn Buckets>,
    supervisor: Supervisor,
    /// None on the embedded engine.
    runtime: Option<IsolatedRuntime>,
}

/// An admitted connection.
pub(crate) struct OpenConnection {
    _permit: ConnectionPermit,
    replaced: Arc<AtomicBool>,
}

impl OpenConnection {
    pub(crate) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::SeqCst)
    }
}

/// The instance registry: when each instance was last renewed.
#[derive(Clone, Default)]
pub(crate) struct Registry(Arc<Mutex<BTreeMap<String, Instant>>>);

impl Registry {
    fn renew(&self, instance: &str) {
        self.0.lock().unwrap().insert(instance.to_owned(), Instant::now());
    }

    fn alive(&self) -> LiveInstances {
        let hubs = self.0.lock().unwrap();
        let alive = hubs.iter().filter(|(_, renewed_at)| renewed_at.elapsed() < LEASE);
        // Redis runs on this machine, so its clock is that of the system.
        LiveInstances { instances: alive.map(|(id, _)| id.clone()).collect(), seen_at: Clock::system().now() }
    }
}

impl Hub {
    pub(crate) fn embedded(connections: Arc<dyn Connections>, buckets: Arc<dyn Buckets>) -> Self {
        Self { connections, buckets, supervisor: Supervisor::new(), runtime: None }
    }

    pub(crate) async fn start(
        url: &str,
        prefix: &str,
        registry: &Registry,
        limit: Limit,
        check_interval: Duration,
    ) -> Self {
        let (runtime, supervisor) = (IsolatedRuntime::start(), Supervisor::new());
        let options = Options { address: RedisAddress::parse(url).unwrap(), prefix: prefix.to_owned() };
        let (connections, redis) = {
            let _guard = runtime.enter();
            let redis = Redis::start(options, &supervisor);
            let (view, own) = (registry.clone(), redis.instance().to_owned());
            registry.renew(&own);
            supervisor.every("lease", LEASE / 20, &(registry.clone(), own), |(registry, own)| async move {
                registry.renew(&own);
            });
            let alive = Arc::new(move || view.alive());
            (RedisConnections::start(redis.clone(), limit, alive, check_interval, &supervisor), redis)
        };
        let buckets = Arc::new(RedisBuckets(redis.clone()));
        // On the isolated runtime, so that its connections to Redis belong to that runtime.
        runtime.run(async move { redis.check_servers().await }).await;
        Self { connections: Arc::new(connections), buckets, supervisor, runtime: Some(runtime) }
    }

    pub(crate) fn runtime(&self) -> &IsolatedRuntime {
        self.runtime.as_ref().expect("a hub of a fleet")
    }

    pub(crate) async fn acquire(&self, person: &str) -> Result<OpenConnection, ConnectionLimitError> {
        let replaced = Arc::new(AtomicBool::new(false));
        let flag = replaced.clone();
        let on_replaced = Box::new(move || flag.store(true, Ordering::SeqCst));
        let permit = self.connections.acquire(&Id::new(person).unwrap(), on_replaced).await?;
        Ok(OpenConnection { _permit: permit, replaced })
    }

    /// Opens a connection as soon as the limit allows it.
    pub(crate) async fn acquire_soon(&self, person: &str) -> OpenConnection {
        let acquired = wait::value_within(WAIT_TIMEOUT, || async { self.acquire(person).await.ok() });
        acquired.await.expect("the limit allows a connection")
    }

    pub(crate) async fn is_full(&self, person: &str) -> bool {
        match self.acquire(person).await {
            Ok(_) => false,
            Err(ConnectionLimitError::Full) => true,
            Err(error) => panic!("{error}"),
        }
    }

    /// Shuts the hub down.
    pub(crate) async fn stop(self) {
        assert!(self.supervisor.shut_down(WAIT_TIMEOUT).await);
    }

    pub(crate) fn kill(self) {
        self.runtime.expect("a hub of a fleet").kill();
    }
}

/// Waits until the `count` oldest connections are replaced, and asserts that no other one is.
pub(crate) async fn assert_oldest_replaced(open: &[OpenConnection], count: usize) {
    wait::until(WAIT_TIMEOUT, || async { open[..count].iter().all(OpenConnection::is_replaced) }).await;
    tokio::time::sleep(SETTLE_TIME).await;
    let replaced: Vec<bool> = open.iter().map(OpenConnection::is_replaced).collect();
    assert!(!replaced[count..].contains(&true), "{replaced:?}");
}

/// A fleet on an engine that all tests share. Its key prefix is random, so that tests in other processes have other
/// keys.
pub(crate) struct Fleet {
    url: String,
    prefix: String,
    registry: Registry,
}

impl Fleet {
    pub(crate) async fn on(engine: bongsu_testkit::Engine) -> Option<Self> {
        if !tier::needs_engine("redis") {
            return None;
        }
        let url = engine.shared_url().await.expect("a shared engine");
        let prefix = format!("limits{:016x}:", random::between(0, u64::MAX - 1));
        Some(Self { url, prefix, registry: Registry::default() })
    }

    pub(crate) async fn hub(&self, limit: Limit) -> Hub {
        Hub::start(&self.url, &self.prefix, &self.registry, limit, CHECK_INTERVAL).await
    }
}
