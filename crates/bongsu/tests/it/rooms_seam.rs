//! The seam between the log and live delivery: clients that disconnect and resume at random while events are
//! published see every event once and in order.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bongsu_testkit::sse::{ResumingClient, Stream};
use bongsu_testkit::{Api, Hub, Rng, proof, tier, wait};
use futures_util::future::join_all;
use serde_json::{Value, json};

const ROOM: &str = "seam";
const EVENT_TYPE: &str = "seam.counted";
/// How many events the publisher may be ahead of the most advanced client.
const MAX_LEAD: u64 = 600;
/// A client that receives no event for this long has missed one.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn clients_that_drop_and_resume_at_random_see_every_event_once_in_order() {
    let hub = Hub::builder(crate::BONGSU).env("SSE_MAX_CONNECTIONS_PER_USER", 0);
    run_scenario(hub, "clients_that_drop_and_resume_at_random_see_every_event_once_in_order").await;
}

#[tokio::test]
async fn clients_that_are_mostly_served_from_the_log_see_every_event_once_in_order() {
    let hub = Hub::builder(crate::BONGSU).env("SSE_MAX_CONNECTIONS_PER_USER", 0);
    // A tiny ring buffer: every batch sends some readers to the log and back.
    let hub = hub.env("SSE_CHANNEL_CAPACITY", 4).env("SERVER_SHARDS", 3);
    run_scenario(hub, "clients_that_are_mostly_served_from_the_log_see_every_event_once_in_order").await;
}

struct SeamTest {
    hub: Hub,
    events: u64,
    published: AtomicU64,
    furthest: AtomicU64,
}

/// The events that one client received.
struct ClientTrace {
    numbers: Vec<u64>,
    ids: Vec<String>,
    unexpected: Vec<String>,
    connections: usize,
    drops_under_load: u64,
}

async fn run_scenario(hub: bongsu_testkit::hub::Builder, name: &str) {
    let clients = tier::size(20, 50);
    let events = tier::size(2_000, 50_000) as u64;
    let hub = hub.env("STREAM_MAXLEN", 1_000_000).start().await;
    let test = SeamTest { hub, events, published: AtomicU64::new(0), furthest: AtomicU64::new(0) };
    let mut rng = Rng::for_test(name);
    let following = (0..clients).map(|client| test.read_with_drops(client, Rng::new(rng.next_u64())));
    let following = join_all(following.collect::<Vec<_>>());
    let (ids, seen) = tokio::join!(test.publish(Rng::for_test(&format!("{name} publisher"))), following);

    let delivered: usize = seen.iter().map(|seen| seen.numbers.len()).sum();
    let missing: usize = seen.iter().map(|seen| missing(&seen.numbers, events)).sum();
    let repeated: usize = seen.iter().map(|seen| repeated(&seen.numbers)).sum();
    let drops: u64 = seen.iter().map(|seen| seen.drops_under_load).sum();
    let connections: usize = seen.iter().map(|seen| seen.connections).sum();
    proof::record(
        "rooms",
        name,
        json!({
            "seed": tier::seed(), "clients": seen.len(), "acknowledged": ids.len(), "delivered": delivered,
            "missing": missing, "repeated": repeated, "connections": connections, "dropsUnderLoad": drops,
        }),
    );
    for (client, seen) in seen.iter().enumerate() {
        assert!(seen.unexpected.is_empty(), "client {client} received {:?}", seen.unexpected);
    }
    assert_eq!((missing, repeated), (0, 0), "missing and repeated events");
    // Not `assert_eq!`, which would print thousands of ids.
    for (client, seen) in seen.iter().enumerate() {
        let in_order = seen.numbers.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(in_order, "client {client} saw another order");
        assert!(seen.ids == ids, "client {client} saw other ids than the publisher got");
    }
    assert!(drops >= clients as u64 * 5, "only {drops} drops landed while events were published");
}

impl SeamTest {
    /// Publishes 1..N in batches, not too far ahead of the readers; returns the ids.
    async fn publish(&self, mut rng: Rng) -> Vec<String> {
        let api = Api::new(&self.hub);
        let mut ids = Vec::new();
        let mut next = 1;
        while next <= self.events {
            let last = (next + rng.below(60)).min(self.events);
            let batch: Vec<Value> = (next..=last)
                .map(|n| json!({"roomId": ROOM, "eventType": EVENT_TYPE, "data": {"n": n, "text": "가\nb: c"}}))
                .collect();
            let answer = api.publish_batch(&batch).await.expect(200);
            let results = answer.result()["results"].as_array().cloned().unwrap_or_default();
            assert_eq!(results.len(), batch.len(), "{}", answer.text());
            ids.extend(results.iter().map(|one| one["streamId"].as_str().expect("an id").to_owned()));
            self.published.store(last, Ordering::SeqCst);
            next = last + 1;
            let near = || self.furthest.load(Ordering::SeqCst) + MAX_LEAD >= last;
            wait::until(EVENT_TIMEOUT, async || near()).await;
        }
        ids
    }

    /// Reads from the beginning to the last event, disconnecting at random and staying away for a number of events.
    async fn read_with_drops(&self, client: usize, mut rng: Rng) -> ClientTrace {
        let request = Stream::request(&self.hub, &format!("/api/v1/rooms/{ROOM}/stream")).person(client);
        let request = if client.is_multiple_of(5) { request.http2() } else { request };
        let request = ResumingClient::new(request).starting_after("0-0");
        let mut stream = request.max_retry_delay(Duration::from_millis(10));
        let mut seen = ClientTrace {
            numbers: Vec::new(),
            ids: Vec::new(),
            unexpected: Vec::new(),
            connections: 0,
            drops_under_load: 0,
        };
        let most_between_drops = self.events / 15;
        let mut until_drop = rng.range(1..most_between_drops);
        while seen.numbers.last() != Some(&self.events) {
            let Ok(Some(event)) = stream.try_next_event(EVENT_TIMEOUT).await else { break };
            let Some(n) = event.json()["n"].as_u64().filter(|_| event.event == EVENT_TYPE) else {
                seen.unexpected.push(format!("{event:?}"));
                break;
            };
            seen.numbers.push(n);
            seen.ids.push(event.own_id.unwrap_or_default());
            self.furthest.fetch_max(n, Ordering::SeqCst);
            until_drop -= 1;
            if until_drop == 0 {
                until_drop = rng.range(1..most_between_drops);
                stream.break_connection();
                let published = self.published.load(Ordering::SeqCst);
                seen.drops_under_load += u64::from(published < self.events);
                let back_at = (n + rng.below(MAX_LEAD / 2)).min(self.events);
                let passed = || self.published.load(Ordering::SeqCst) >= back_at;
                wait::until(EVENT_TIMEOUT, async || passed()).await;
            }
        }
        seen.connections = stream.connections();
        seen
    }
}

fn missing(seen: &[u64], events: u64) -> usize {
    let seen: std::collections::HashSet<u64> = seen.iter().copied().collect();
    (1..=events).filter(|n| !seen.contains(n)).count()
}

fn repeated(seen: &[u64]) -> usize {
    seen.len() - seen.iter().collect::<std::collections::HashSet<_>>().len()
}
