//! What operators look at: health, readiness, metrics, logs that keep secrets, and the API's own description.

mod logs;
mod metrics;

use std::collections::BTreeSet;
use std::time::Duration;

use bongsu_testkit::sse::Stream;
use bongsu_testkit::wait::until;
use bongsu_testkit::{Api, Hub, Metrics};
use serde_json::{Value, json};

use crate::BONGSU;

const SOON: Duration = Duration::from_secs(60);

async fn hub() -> Hub {
    Hub::builder(BONGSU).start().await
}

#[tokio::test]
async fn health_tells_how_the_hub_does() {
    let hub = hub().await;
    for api in [Api::new(&hub).anonymous(), Api::http2(&hub).anonymous()] {
        let answer = api.get("/health").await.expect(200);
        let health = answer.result().as_object().unwrap();
        let names: Vec<_> = health.keys().map(String::as_str).collect();
        let all = ["activeConnections", "activeRooms", "degraded", "redisConnected", "status", "uptimeSecs"];
        assert_eq!(names, all);
        assert_eq!((&health["status"], &health["redisConnected"]), (&json!("healthy"), &Value::Null));
        assert_eq!((&health["degraded"], &health["activeConnections"]), (&json!([]), &json!(0)));
        assert!(health["uptimeSecs"].as_u64().unwrap() < 60);
    }
    let api = Api::new(&hub).anonymous();
    let one = Stream::request(&hub, "/api/v1/rooms/a/stream").person(7).open().await.ok().unwrap();
    let _two = Stream::request(&hub, "/api/v1/rooms/a/stream").person(8).http2().open().await.ok().unwrap();
    let health = api.get("/health").await.expect(200);
    assert_eq!(
        (&health.result()["activeConnections"], &health.result()["activeRooms"]),
        (&json!(2), &json!(1))
    );
    one.close();
    until(SOON, async || api.get("/health").await.result()["activeConnections"] == 1).await;
}

#[tokio::test]
async fn ready_is_said_once_the_hub_takes_requests() {
    let hub = hub().await;
    let answer = Api::new(&hub).anonymous().get("/ready").await.expect(200);
    assert_eq!((&answer.body["isSuccess"], answer.code()), (&json!(true), "COMMON200"));
}

#[tokio::test]
async fn metrics_have_the_names_of_the_contract() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let mut stream = Stream::request(&hub, "/api/v1/rooms/a/stream").person(7).open().await.ok().unwrap();
    for _ in 0..3 {
        api.publish_to("a", "comment.created", json!({})).await;
    }
    stream.take_events(3, SOON).await;
    // It is counted a moment after it was sent.
    until(SOON, async || hub.metrics().await.get("events_delivered_total", &[]) >= 3.0).await;
    let answer = api.anonymous().get("/metrics").await.expect(200);
    assert!(answer.header("content-type").starts_with("text/plain"));
    let metrics = Metrics::parse(&answer.text());
    assert_eq!(metrics.get("sse_active_connections", &[]), 1.0);
    assert_eq!(metrics.get("sse_active_rooms", &[]), 1.0);
    assert_eq!(metrics.get("events_published_total", &[("event_type", "comment.created")]), 3.0);
    assert_eq!(metrics.get("events_delivered_total", &[]), 3.0);
    assert_eq!(metrics.get("events_lagged_total", &[]), 0.0);
    let publish = [("method", "POST"), ("path", "/api/v1/notifications/publish"), ("status", "200")];
    assert_eq!(metrics.get("http_requests_total", &publish), 3.0);
    assert_eq!(metrics.get("http_request_duration_seconds_count", &publish), 3.0);
    let count = metrics.get("delivery_latency_seconds_count", &[]);
    let sum = metrics.get("delivery_latency_seconds_sum", &[]);
    assert!((1.0..=3.0).contains(&count) && sum > 0.0 && sum < 10.0, "{count} {sum}");
    assert!(metrics.has("delivery_latency_seconds_bucket", &[("le", "+Inf")]));
    // A repeated publish is no second event.
    let once = json!({"roomId": "a", "eventType": "like.toggled", "data": {}, "idempotencyKey": "k"});
    for _ in 0..2 {
        api.publish(&once).await.expect(200);
    }
    assert_eq!(hub.metrics().await.get("events_published_total", &[("event_type", "like.toggled")]), 1.0);
}

#[tokio::test]
async fn past_two_hundred_kinds_an_event_type_counts_as_other() {
    let hub = hub().await;
    let events: Vec<Value> =
        (0..300).map(|n| json!({"roomId": "a", "eventType": format!("kind.n{n}"), "data": {}})).collect();
    for _ in 0..2 {
        Api::new(&hub).publish_batch(&events).await.expect(200);
    }
    let metrics = hub.metrics().await;
    let kinds = metrics.samples().iter().filter(|sample| sample.name == "events_published_total").count();
    assert_eq!((kinds, metrics.get("events_published_total", &[])), (201, 600.0));
    assert_eq!(metrics.get("events_published_total", &[("event_type", "other")]), 200.0);
    assert_eq!(metrics.get("events_published_total", &[("event_type", "kind.n0")]), 2.0);
}

#[tokio::test]
async fn callers_cannot_make_metrics_grow() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let labels = async || -> BTreeSet<String> {
        let metrics = hub.metrics().await;
        let requests = metrics.samples().iter().filter(|sample| sample.name.starts_with("http_request"));
        requests.filter_map(|sample| sample.labels.get("path").cloned()).collect()
    };
    let invent = async |from: u32| {
        for n in from..from + 40 {
            api.get(&format!("/no/such/{n}")).await.expect_error(404, "COMMON404");
            api.person(7).get(&format!("/api/v1/rooms/room{n}/events?since=0-0&x={n}")).await.expect(200);
            api.call(&format!("METHOD{n}"), "/health", "").await.expect_error(405, "COMMON405");
            api.call(&format!("METHOD{n}"), "/no/such", "").await.expect_error(404, "COMMON404");
        }
    };
    invent(0).await;
    // The first look at the metrics is a route of its own.
    labels().await;
    // What the hub does on its own account is counted, too, and may begin meanwhile.
    let samples = async || {
        let metrics = hub.metrics().await;
        let own = |name: &str| name.starts_with("outbox_") || name.starts_with("sql_");
        metrics.samples().iter().filter(|sample| !own(&sample.name)).count()
    };
    let (before, samples_before) = (labels().await, samples().await);
    invent(40).await;
    assert_eq!(labels().await, before);
    assert_eq!(samples().await, samples_before);
    assert!(before.contains("/api/v1/rooms/{roomId}/events"), "{before:?}");
    assert!(before.iter().all(|path| !path.contains("room1") && !path.contains("such")), "{before:?}");
    let unmatched: Vec<_> = before.iter().filter(|path| !path.starts_with('/')).collect();
    assert_eq!(unmatched.len(), 1, "one label for all that matches nothing: {unmatched:?}");
    let metrics = hub.metrics().await;
    let methods: BTreeSet<_> =
        metrics.samples().iter().filter_map(|sample| sample.labels.get("method")).collect();
    assert!(methods.iter().all(|method| !method.starts_with("METHOD")), "{methods:?}");
}

#[tokio::test]
async fn the_api_describes_itself() {
    let hub = hub().await;
    let api = Api::new(&hub).anonymous();
    let document = api.get("/openapi.json").await.expect(200);
    assert_eq!(document.header("content-type"), "application/json");
    let document = document.body;
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1."), "{}", document["openapi"]);
    let routes = [
        ("get", "/api/v1/rooms/{roomId}/stream"),
        ("get", "/api/v1/rooms/{roomId}/events"),
        ("post", "/api/v1/notifications/publish"),
        ("post", "/api/v1/notifications/publish/batch"),
        ("get", "/api/v1/stream"),
        ("put", "/api/v1/rooms/{roomId}"),
        ("put", "/api/v1/rooms/{roomId}/members/{userId}"),
        ("get", "/api/v1/rooms/{roomId}/presence"),
        ("post", "/api/v1/rooms/{roomId}/presence/heartbeat"),
        ("post", "/api/admin/users/{userId}/disconnect"),
        ("post", "/api/admin/users/{userId}/revoke"),
        ("post", "/api/v1/stream-tickets"),
        ("get", "/api/notifications"),
        ("get", "/api/notifications/stream"),
        ("get", "/api/notifications/settings"),
        ("post", "/api/notifications/read-all"),
        ("delete", "/api/notifications/{id}"),
        ("patch", "/api/notifications/{id}/read"),
        ("patch", "/api/v1/notifications/{id}/read"),
        ("get", "/api/v1/notifications/unread"),
        ("get", "/events/{eventId}/stream"),
        ("get", "/api/admin/dlq"),
        ("get", "/api/admin/dlq/{queue}"),
        ("delete", "/api/admin/dlq/{queue}/{id}"),
        ("get", "/health"),
        ("get", "/ready"),
        ("get", "/metrics"),
    ];
    for (method, path) in routes {
        let operation = &document["paths"][path][method];
        assert!(operation["responses"]["200"].is_object(), "{method} {path}: {operation}");
        assert!(operation["responses"]["400"].is_object() && operation["responses"]["503"].is_object());
    }
    assert!(document["paths"]["/api/v1/ws"]["get"]["responses"]["101"].is_object());
    for path in ["/api/v1/members/notify", "/api/admin/dlq/{queue}/redrive"] {
        assert!(document["paths"][path]["post"]["responses"]["202"].is_object(), "{path}");
    }
    let described = document["paths"].as_object().unwrap().len();
    assert_eq!(described, routes.len() + 3, "a route without a test here");
    for scheme in ["person", "service", "operator"] {
        assert!(document["components"]["securitySchemes"][scheme].is_object(), "{scheme}");
    }
    assert!(unresolved(&document, &document).is_empty(), "{:?}", unresolved(&document, &document));
}

/// References that lead nowhere.
fn unresolved(document: &Value, part: &Value) -> Vec<String> {
    match part {
        Value::Object(members) => members
            .iter()
            .flat_map(|(name, value)| match (name.as_str(), value.as_str()) {
                ("$ref", Some(reference)) => {
                    let found = reference.strip_prefix('#').and_then(|path| document.pointer(path));
                    if found.is_some() { Vec::new() } else { vec![reference.to_owned()] }
                }
                _ => unresolved(document, value),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(|item| unresolved(document, item)).collect(),
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn the_page_needs_nothing_from_elsewhere() {
    let hub = hub().await;
    let page = Api::new(&hub).anonymous().get("/docs").await.expect(200);
    assert!(page.header("content-type").starts_with("text/html"));
    // The name of SVG looks like an address, and is none.
    let text = page.text().replace("http://www.w3.org/2000/svg", "");
    assert!(text.to_ascii_lowercase().starts_with("<!doctype html>") && text.contains("/openapi.json"));
    for outside in ["http://", "https://", "src=\"//", "href=\"//", "@import"] {
        assert!(!text.contains(outside), "the page refers to {outside}");
    }
}
