//! Every metric that the contracts name is exported with its type and labels, on one hub with Redis and a database,
//! after the situations that produce it.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic with its reason")]

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Api, Hub, Metrics, tier, wait};
use serde_json::{Value, json};

use super::WAIT_TIMEOUT;
use crate::BONGSU;

/// Name, type, and the labels of a sample that is at least 1 (of a histogram: of its `_count`); `*` is any value.
type MetricRow = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const PUBLISH_LABELS: &[(&str, &str)] =
    &[("method", "POST"), ("path", "/api/v1/notifications/publish"), ("status", "200")];
const HEARTBEAT_LABELS: &[(&str, &str)] =
    &[("method", "POST"), ("path", "/api/v1/rooms/{roomId}/presence/heartbeat"), ("status", "200")];

const CONTRACT_METRICS: [MetricRow; 17] = [
    ("sse_active_connections", "gauge", &[]),
    ("sse_active_rooms", "gauge", &[]),
    ("events_published_total", "counter", &[("event_type", "comment.created")]),
    ("events_delivered_total", "counter", &[]),
    ("events_lagged_total", "counter", &[]),
    ("pubsub_reconnect_total", "counter", &[]),
    ("presence_heartbeat_total", "counter", &[]),
    ("write_behind_flush_total", "counter", &[]),
    ("write_behind_flush_entries", "histogram", &[]),
    ("lock_acquire_total", "counter", &[("result", "success")]),
    ("lock_acquire_total", "counter", &[("result", "failure")]),
    ("redis_command_duration_seconds", "histogram", &[("command", "*")]),
    ("http_requests_total", "counter", PUBLISH_LABELS),
    ("http_request_duration_seconds", "histogram", PUBLISH_LABELS),
    ("http_requests_total", "counter", HEARTBEAT_LABELS),
    ("http_request_duration_seconds", "histogram", HEARTBEAT_LABELS),
    ("delivery_latency_seconds", "histogram", &[]),
];

/// The fault of a metric in this scrape; None when it is as the contract specifies.
fn fault((name, kind, labels): &MetricRow, text: &str) -> Option<String> {
    let types: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix(&format!("# TYPE {name} "))).collect();
    if types != [*kind] {
        return Some(format!("{name}: its type is {types:?}, not {kind}"));
    }
    let sample_name = if *kind == "histogram" { format!("{name}_count") } else { (*name).to_owned() };
    let metrics = Metrics::parse(text);
    let samples: Vec<_> = metrics.samples().iter().filter(|sample| sample.name == sample_name).collect();
    let wanted: Vec<&str> = labels.iter().map(|(label, _)| *label).collect();
    if let Some(other) = samples.iter().find(|sample| sample.labels.keys().ne(wanted.iter())) {
        return Some(format!("{name}: its labels are {:?}, not {wanted:?}", other.labels));
    }
    let is_counted = samples.iter().any(|sample| {
        let has_labels = labels.iter().all(|(label, value)| *value == "*" || sample.labels[*label] == *value);
        has_labels && sample.value >= 1.0
    });
    // The largest bucket of a histogram counts every sample.
    let has_buckets = *kind != "histogram" || metrics.has(&format!("{name}_bucket"), &[("le", "+Inf")]);
    (!is_counted || !has_buckets).then(|| format!("{name}{labels:?}: never counted: {samples:?}"))
}

/// A reader that reads nothing while the log of its room is trimmed, and then reads until `system.lagged`.
async fn lag_behind_the_log(hub: &Hub, api: &Api) {
    let (batches, batch_size, text) = (20, 200, "x".repeat(250));
    let request = Stream::request(hub, "/api/v1/rooms/busy/stream").person("late");
    let late = request.receive_buffer(4_096).open().await.ok().unwrap().stop_reading();
    for _ in 0..batches {
        let event = json!({"roomId": "busy", "eventType": "comment.created", "data": {"text": text}});
        let batch: Vec<Value> = (0..batch_size).map(|_| event.clone()).collect();
        api.publish_batch(&batch).await.expect(200);
    }
    let mut late = late.resume();
    for _ in 0..=batches * batch_size {
        if late.next_event(WAIT_TIMEOUT).await.unwrap().event == "system.lagged" {
            return;
        }
    }
    panic!("the reader received no `system.lagged`");
}

#[tokio::test]
async fn every_metric_of_the_contract_is_exported_with_its_type_and_labels() {
    if !tier::needs_engine("redis") || !tier::needs_engine("postgres") {
        return;
    }
    let (redis, database) = (Redis::start().await, Flavour::Postgres.database().await);
    // Another owner holds a lock that the hub wants, until the hub has failed to acquire it.
    let lock = "lock:event:runner:inbox-write-behind";
    redis.command(&["SET", lock, "another owner"]).await.expect_ok();
    let hub = Hub::builder(BONGSU).env("REDIS_URL", redis.url()).env("DATABASE_URL", &database);
    let hub = hub.env("LOCK_TTL_SECS", 3).env("WRITE_BEHIND_INTERVAL_SECS", 1);
    let hub = hub.env("STREAM_MAXLEN", 50).env("SSE_CHANNEL_CAPACITY", 8).start().await;
    let api = Api::at(&hub.url(""));
    let failures = async || hub.metrics().await.get("lock_acquire_total", &[("result", "failure")]);
    wait::until(WAIT_TIMEOUT, async || failures().await > 0.0).await;
    redis.command(&["DEL", lock]).await.expect_ok();
    lag_behind_the_log(&hub, &api).await;
    let mut stream = Stream::request(&hub, "/api/v1/rooms/1/stream").person(7).open().await.ok().unwrap();
    api.publish_to(1, "comment.created", json!({})).await;
    stream.expect_event("comment.created", WAIT_TIMEOUT).await;
    api.person(8).post("/api/v1/rooms/1/presence/heartbeat", json!({})).await.expect(200);
    let notice = json!({"eventId": "e1", "type": "FOLLOW", "targetIds": [7]});
    api.post("/api/v1/members/notify", notice).await.expect(202);
    api.person(7).call("PATCH", "/api/notifications/1/read", "").await.expect(200);
    redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    let faults = async || {
        let text = api.anonymous().get("/metrics").await.expect(200).text();
        CONTRACT_METRICS.iter().filter_map(|row| fault(row, &text)).collect::<Vec<String>>()
    };
    wait::holds_within(WAIT_TIMEOUT, async || faults().await.is_empty()).await;
    assert_eq!(faults().await, Vec::<String>::new());
    // A read mark is counted among the written entries, not only the flushes.
    let written = async || hub.metrics().await.get("write_behind_flush_entries_sum", &[]);
    wait::holds_within(WAIT_TIMEOUT, async || written().await > 0.0).await;
    assert_eq!(written().await, 1.0, "one mark was written");
}
