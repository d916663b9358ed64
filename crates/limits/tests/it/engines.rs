//! The engines, each of which runs the whole contract.

use bongsu_kernel::Clock;
use bongsu_limits::Limits;
use bongsu_limits::bucket::embedded::EmbeddedBuckets;
use bongsu_limits::cap::embedded::EmbeddedCap;

use crate::hub::{Engine, Fleet, Hub};

struct Embedded(Limits);

impl Engine for Embedded {
    async fn start() -> Option<Self> {
        let cap = std::sync::Arc::new(EmbeddedCap::default());
        let buckets = std::sync::Arc::new(EmbeddedBuckets::new(Clock::system()));
        Some(Self(Limits { cap, buckets }))
    }

    async fn hub(&mut self) -> Hub {
        Hub::embedded(self.0.clone())
    }
}

struct OnRedis(Fleet);

impl Engine for OnRedis {
    async fn start() -> Option<Self> {
        Fleet::on(bongsu_testkit::Engine::Redis).await.map(Self)
    }

    async fn hub(&mut self) -> Hub {
        self.0.hub().await
    }
}

struct OnCluster(Fleet);

impl Engine for OnCluster {
    async fn start() -> Option<Self> {
        Fleet::on(bongsu_testkit::Engine::Cluster).await.map(Self)
    }

    async fn hub(&mut self) -> Hub {
        self.0.hub().await
    }
}

mod embedded {
    crate::contract!(super::Embedded);
}

mod redis {
    crate::contract!(super::OnRedis, fleet);
}

mod cluster {
    crate::contract!(super::OnCluster, fleet);
}
