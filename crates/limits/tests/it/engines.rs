//! Runs the contracts on every engine: embedded, Redis and Redis Cluster.

use std::sync::Arc;

use bongsu_kernel::Clock;
use bongsu_limits::bucket::embedded::EmbeddedBuckets;
use bongsu_limits::connections::embedded::EmbeddedConnections;
use bongsu_limits::{Connections, Limit};

use crate::hub::{Engine, Fleet, Hub};

/// One process. Its limit is that of the first hub.
struct Embedded(Option<Arc<dyn Connections>>, Arc<EmbeddedBuckets>);

impl Engine for Embedded {
    async fn start() -> Option<Self> {
        Some(Self(None, Arc::new(EmbeddedBuckets::new(Clock::system()))))
    }

    async fn hub(&mut self, limit: Limit) -> Hub {
        let connections = self.0.get_or_insert_with(|| Arc::new(EmbeddedConnections::new(limit)));
        Hub::embedded(connections.clone(), self.1.clone())
    }
}

struct OnRedis(Fleet);

impl Engine for OnRedis {
    async fn start() -> Option<Self> {
        Fleet::on(bongsu_testkit::Engine::Redis).await.map(Self)
    }

    async fn hub(&mut self, limit: Limit) -> Hub {
        self.0.hub(limit).await
    }
}

struct OnCluster(Fleet);

impl Engine for OnCluster {
    async fn start() -> Option<Self> {
        Fleet::on(bongsu_testkit::Engine::Cluster).await.map(Self)
    }

    async fn hub(&mut self, limit: Limit) -> Hub {
        self.0.hub(limit).await
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
