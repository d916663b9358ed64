//! Several hubs on one Redis, with real faults under load: every acknowledged event reaches every connected client
//! once and in order, whatever happens to Redis, to the network, or to a hub.
//!
//! These tests start their own servers on every profile. `load` has the publishers and readers; most of the
//! other files are named after the part that fails.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

mod bus;
mod cluster;
mod foreign;
mod hub_killed;
mod load;
mod operators;
mod read_only;
mod redis_away;
mod rolling;
mod scenarios;
mod sentinel;
mod wire;

use std::time::Duration;

use bongsu_testkit::hub::Builder;
use bongsu_testkit::{Api, Hub, wait};
use serde_json::Value;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// Time within which a publish is answered, whatever the state of Redis.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(20);

/// Two hubs that share a Redis.
pub(crate) struct Fleet {
    pub(crate) hubs: [Hub; 2],
}

impl Fleet {
    async fn start(url: &str) -> Self {
        Self::start_with_urls([url, url]).await
    }

    /// Each hub uses its own URL for the same Redis.
    async fn start_with_urls(urls: [&str; 2]) -> Self {
        Self::start_hubs(urls.map(hub)).await
    }

    pub(crate) async fn start_hubs([one, other]: [Builder; 2]) -> Self {
        let (one, other) = tokio::join!(one.start(), other.start());
        Self { hubs: [one, other] }
    }

    pub(crate) fn apis(&self) -> [Api; 2] {
        self.hubs.each_ref().map(Api::new)
    }

    /// How often the hubs lost a connection of the bus.
    pub(crate) async fn reconnects(&self) -> f64 {
        let mut reconnects = 0.0;
        for hub in &self.hubs {
            reconnects += hub.metrics().await.get("pubsub_reconnect_total", &[]);
        }
        reconnects
    }

    /// Waits until every hub reports this state of Redis.
    async fn wait_connected(&self, connected: bool) {
        for hub in &self.hubs {
            wait_connected(hub, connected).await;
        }
    }
}

fn hub(url: &str) -> Builder {
    // Two hubs without a shared database cannot both keep records.
    let hub = Hub::builder(crate::BONGSU).env("REDIS_URL", url).env("RECORDS", "off");
    hub.env("SSE_MAX_CONNECTIONS_PER_USER", 0).env("STREAM_MAXLEN", 1_000_000)
}

async fn health(hub: &Hub) -> Value {
    Api::new(hub).get("/health").await.expect(200).result().clone()
}

/// Waits until a hub reports that Redis is connected and it is healthy, or that Redis is not connected and it is
/// degraded.
async fn wait_connected(hub: &Hub, connected: bool) {
    let status = if connected { "healthy" } else { "degraded" };
    wait::until(WAIT_TIMEOUT, async || {
        let health = health(hub).await;
        health["redisConnected"] == connected && health["status"] == status
    })
    .await;
}
