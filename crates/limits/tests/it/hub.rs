//! Hubs of a fleet on an engine, as far as limits go: each on a thread of its own, so that it can be killed and can
//! stand still. On the embedded engine there is one, however often it is asked for.

use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::random;
use bongsu_kernel::task::Supervisor;
use bongsu_limits::bucket::redis::RedisBuckets;
use bongsu_limits::cap::Refused;
use bongsu_limits::cap::redis::RedisCap;
use bongsu_limits::{Limits, Place};
use bongsu_redis::{Address, Options, Redis};
use bongsu_testkit::{Island, tier, wait};

/// How long instances last here. Short, so that their end can be waited for, and longer than a busy machine holds up
/// whoever renews them.
pub(crate) const LEASE: Duration = Duration::from_secs(5);
/// What has not happened by then will not.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Where hubs count together.
pub(crate) trait Engine: Sized {
    /// An empty place. None where the engine cannot be had.
    async fn start() -> Option<Self>;

    async fn hub(&mut self) -> Hub;
}

pub(crate) struct Hub {
    pub(crate) limits: Limits,
    supervisor: Supervisor,
    /// None for the embedded one.
    island: Option<Island>,
}

impl Hub {
    pub(crate) fn embedded(limits: Limits) -> Self {
        Self { limits, supervisor: Supervisor::new(), island: None }
    }

    pub(crate) async fn start(url: &str, prefix: &str) -> Self {
        let (island, supervisor) = (Island::start(), Supervisor::new());
        let options = Options { address: Address::parse(url).unwrap(), prefix: prefix.to_owned() };
        let (limits, redis) = {
            let _there = island.enter();
            let redis = Redis::start(options, &supervisor);
            let cap = Arc::new(RedisCap::start(redis.clone(), LEASE, &supervisor));
            (Limits { cap, buckets: Arc::new(RedisBuckets::new(redis.clone())) }, redis)
        };
        // So that its connections live there, too.
        island.run(async move { redis.look().await }).await;
        Self { limits, supervisor, island: Some(island) }
    }

    pub(crate) fn island(&self) -> &Island {
        self.island.as_ref().expect("a hub of a fleet")
    }

    pub(crate) async fn enter(&self, scope: &str, limit: u32) -> Result<Place, Refused> {
        self.limits.cap.enter(scope, limit).await
    }

    /// Enters as soon as there is a place.
    pub(crate) async fn enters(&self, scope: &str, limit: u32) -> Place {
        let entered = wait::value_within(PATIENCE, || async { self.enter(scope, limit).await.ok() });
        entered.await.expect("a place")
    }

    pub(crate) async fn is_full(&self, scope: &str, limit: u32) -> bool {
        match self.enter(scope, limit).await {
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

/// A fleet on an engine that all tests share, with a prefix that no other test has, in whichever process it runs.
pub(crate) struct Fleet {
    url: String,
    prefix: String,
}

impl Fleet {
    pub(crate) async fn on(engine: bongsu_testkit::Engine) -> Option<Self> {
        if !tier::needs_engine("redis") {
            return None;
        }
        let url = engine.shared_url().await.expect("an engine that hubs share");
        Some(Self { url, prefix: format!("limits{:016x}:", random::between(0, u64::MAX - 1)) })
    }

    pub(crate) async fn hub(&self) -> Hub {
        Hub::start(&self.url, &self.prefix).await
    }
}
