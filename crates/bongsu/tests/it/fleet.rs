//! Several hubs on one Redis, with real faults under load: what was acknowledged reaches everybody who is connected,
//! once and in order, whatever happens to the engine, to the way there, or to a hub.
//!
//! These bring their own servers, whatever the run's profile is. Who publishes and who reads is in `load`; the other
//! files are named after what fails.

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

const LONG: Duration = Duration::from_secs(60);
/// A publish is answered within this, whatever is wrong with Redis.
const IN_TIME: Duration = Duration::from_secs(20);

/// Two hubs that share a Redis.
pub(crate) struct Fleet {
    pub(crate) hubs: [Hub; 2],
}

impl Fleet {
    async fn start(url: &str) -> Self {
        Self::on([url, url]).await
    }

    /// Each reaches Redis by an address of its own.
    async fn on(urls: [&str; 2]) -> Self {
        Self::of(urls.map(hub)).await
    }

    pub(crate) async fn of([one, other]: [Builder; 2]) -> Self {
        let (one, other) = tokio::join!(one.start(), other.start());
        Self { hubs: [one, other] }
    }

    pub(crate) fn apis(&self) -> [Api; 2] {
        self.hubs.each_ref().map(Api::new)
    }

    /// How often hubs lost a connection of the bus.
    pub(crate) async fn reconnects(&self) -> f64 {
        let mut reconnects = 0.0;
        for hub in &self.hubs {
            reconnects += hub.metrics().await.get("pubsub_reconnect_total", &[]);
        }
        reconnects
    }

    /// Waits until every hub says this of Redis.
    async fn wait_connected(&self, connected: bool) {
        for hub in &self.hubs {
            wait_connected(hub, connected).await;
        }
    }
}

fn hub(url: &str) -> Builder {
    // Two hubs without a database cannot both keep records.
    let hub = Hub::builder(crate::BONGSU).env("REDIS_URL", url).env("RECORDS", "off");
    hub.env("SSE_MAX_CONNECTIONS_PER_USER", 0).env("STREAM_MAXLEN", 1_000_000)
}

async fn health(hub: &Hub) -> Value {
    Api::new(hub).get("/health").await.expect(200).result().clone()
}

/// Waits until a hub says that it has Redis, and is well; or that it has lost it, and is not.
async fn wait_connected(hub: &Hub, connected: bool) {
    let status = if connected { "healthy" } else { "degraded" };
    wait::until(LONG, async || {
        let health = health(hub).await;
        health["redisConnected"] == connected && health["status"] == status
    })
    .await;
}
