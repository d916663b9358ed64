//! Hubs of a fleet on an engine, as far as limits go: each on a thread of its own, so that it can be killed and can
//! stand still. On the embedded engine there is one, however often it is asked for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id, random};
use bongsu_limits::bucket::redis::RedisBuckets;
use bongsu_limits::connections::Refused;
use bongsu_limits::connections::redis::{Alive, RedisConnections};
use bongsu_limits::{Buckets, Connections, Limit, Place, Policy};
use bongsu_redis::{Address, Options, Redis};
use bongsu_testkit::{Island, tier, wait};

/// How long instances last here. Short, so that their end can be waited for, and longer than a busy machine holds up
/// whoever renews them.
pub(crate) const LEASE: Duration = Duration::from_secs(5);
/// Time between two checks of what a hub holds.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// What has not happened by then will not.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// What happens to an open connection that is not meant to be ended would have happened by then.
const MOMENT: Duration = Duration::from_millis(800);

/// Where hubs count together.
pub(crate) trait Engine: Sized {
    /// An empty place. None where the engine cannot be had.
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
    /// None for the embedded one.
    island: Option<Island>,
}

/// A connection that counts.
pub(crate) struct Open {
    _place: Place,
    replaced: Arc<AtomicBool>,
}

impl Open {
    pub(crate) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::SeqCst)
    }
}

/// Which hubs are alive, as a registry knows it: when each was heard of last.
#[derive(Clone, Default)]
pub(crate) struct Registry(Arc<Mutex<BTreeMap<String, Instant>>>);

impl Registry {
    fn renew(&self, instance: &str) {
        self.0.lock().unwrap().insert(instance.to_owned(), Instant::now());
    }

    fn alive(&self) -> Alive {
        let hubs = self.0.lock().unwrap();
        let alive = hubs.iter().filter(|(_, heard)| heard.elapsed() < LEASE);
        // Redis runs on this machine.
        Alive { instances: alive.map(|(id, _)| id.clone()).collect(), seen_at: Clock::system().now() }
    }
}

impl Hub {
    pub(crate) fn embedded(connections: Arc<dyn Connections>, buckets: Arc<dyn Buckets>) -> Self {
        Self { connections, buckets, supervisor: Supervisor::new(), island: None }
    }

    pub(crate) async fn start(
        url: &str,
        prefix: &str,
        registry: &Registry,
        limit: Limit,
        check_interval: Duration,
    ) -> Self {
        let (island, supervisor) = (Island::start(), Supervisor::new());
        let options = Options { address: Address::parse(url).unwrap(), prefix: prefix.to_owned() };
        let (connections, redis) = {
            let _there = island.enter();
            let redis = Redis::start(options, &supervisor);
            let (seen, own) = (registry.clone(), redis.instance().to_owned());
            registry.renew(&own);
            supervisor.every("lease", LEASE / 20, &(registry.clone(), own), |(registry, own)| async move {
                registry.renew(&own);
            });
            let alive = Arc::new(move || seen.alive());
            (RedisConnections::start(redis.clone(), limit, alive, check_interval, &supervisor), redis)
        };
        let buckets = Arc::new(RedisBuckets(redis.clone()));
        // So that its connections live there, too.
        island.run(async move { redis.look().await }).await;
        Self { connections: Arc::new(connections), buckets, supervisor, island: Some(island) }
    }

    pub(crate) fn island(&self) -> &Island {
        self.island.as_ref().expect("a hub of a fleet")
    }

    pub(crate) async fn enter(&self, person: &str) -> Result<Open, Refused> {
        let replaced = Arc::new(AtomicBool::new(false));
        let ended = replaced.clone();
        let on_replaced = Box::new(move || ended.store(true, Ordering::SeqCst));
        let place = self.connections.enter(&Id::new(person).unwrap(), on_replaced).await?;
        Ok(Open { _place: place, replaced })
    }

    /// Enters as soon as that is possible.
    pub(crate) async fn enters(&self, person: &str) -> Open {
        let entered = wait::value_within(PATIENCE, || async { self.enter(person).await.ok() });
        entered.await.expect("a place")
    }

    pub(crate) async fn is_full(&self, person: &str) -> bool {
        match self.enter(person).await {
            Ok(_) => false,
            Err(Refused::Full) => true,
            Err(away) => panic!("{away}"),
        }
    }

    /// Ends it in order.
    pub(crate) async fn stop(self) {
        assert!(self.supervisor.shut_down(PATIENCE).await);
    }

    pub(crate) fn kill(self) {
        self.island.expect("a hub of a fleet").kill();
    }
}

/// Waits until so many of these, the oldest, are replaced, and sees that no other is.
pub(crate) async fn only_the_oldest_are_replaced(open: &[Open], count: usize) {
    wait::until(PATIENCE, || async { open[..count].iter().all(Open::is_replaced) }).await;
    tokio::time::sleep(MOMENT).await;
    let replaced: Vec<bool> = open.iter().map(Open::is_replaced).collect();
    assert!(!replaced[count..].contains(&true), "{replaced:?}");
}

/// A fleet on an engine that all tests share, with a prefix that no other test has, in whichever process it runs.
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
        let url = engine.shared_url().await.expect("an engine that hubs share");
        let prefix = format!("limits{:016x}:", random::between(0, u64::MAX - 1));
        Some(Self { url, prefix, registry: Registry::default() })
    }

    pub(crate) async fn hub(&self, limit: Limit) -> Hub {
        Hub::start(&self.url, &self.prefix, &self.registry, limit, CHECK_INTERVAL).await
    }
}
