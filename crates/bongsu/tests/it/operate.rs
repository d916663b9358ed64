//! Interfaces for operators: health, readiness, metrics, logs without secrets, and the API description.

mod logs;
mod metrics;

use std::collections::BTreeSet;
use std::time::Duration;

use bongsu_testkit::sse::Stream;
use bongsu_testkit::wait::until;
use bongsu_testkit::{Api, Hub, Metrics};
use serde_json::{Value, json};

use crate::BONGSU;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

async fn hub() -> Hub {
    Hub::builder(BONGSU).start().await
}

#[tokio::test]
async fn health_reports_the_state_of_the_hub() {
    let hub = hub().await;
    for api in [Api::new(&hub).anonymous(), Api::http2(&hub).anonymous()] {
        let answer = api.get("/health").await.expect(200);
        let health = answer.result().as_object().unwrap();
        let names: Vec<_> = health.keys().map(String::as_str).collect();
        let all = [
            "activeConnections",
            "activeRooms",
            "degraded",
            "redisConnected",
            "status",
            "uptimeSecs",
            "version",
        ];
        assert_eq!(names, all);
        assert_eq!((&health["status"], &health["redisConnected"]), (&json!("healthy"), &Value::Null));
        assert_eq!((&health["degraded"], &health["activeConnections"]), (&json!([]), &json!(0)));
        assert_eq!(health["version"], env!("CARGO_PKG_VERSION"));
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
    until(WAIT_TIMEOUT, async || api.get("/health").await.result()["activeConnections"] == 1).await;
}

#[tokio::test]
async fn ready_answers_200_once_the_hub_accepts_requests() {
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
    stream.take_events(3, WAIT_TIMEOUT).await;
    // The metric is updated a moment after the event was sent.
    until(WAIT_TIMEOUT, async || hub.metrics().await.get("events_delivered_total", &[]) >= 3.0).await;
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
    // A repeated publish is not counted as a second event.
    let once = json!({"roomId": "a", "eventType": "like.toggled", "data": {}, "idempotencyKey": "k"});
    for _ in 0..2 {
        api.publish(&once).await.expect(200);
    }
    assert_eq!(hub.metrics().await.get("events_published_total", &[("event_type", "like.toggled")]), 1.0);
}

#[tokio::test]
async fn metrics_label_event_types_beyond_two_hundred_as_other() {
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
    // The first request for the metrics adds its own route to the labels.
    labels().await;
    // The hub's background work is counted as well, and may begin meanwhile.
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
    assert_eq!(unmatched.len(), 1, "unknown paths must share one label: {unmatched:?}");
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
    let accepting =
        ["/api/v1/members/notify", "/api/admin/dlq/{queue}/redrive", "/api/v1/topics/{topic}/events"];
    for path in accepting {
        assert!(document["paths"][path]["post"]["responses"]["202"].is_object(), "{path}");
    }
    let described = document["paths"].as_object().unwrap().len();
    assert_eq!(described, routes.len() + 4, "a route is not in this list");
    for scheme in ["person", "service", "operator"] {
        assert!(document["components"]["securitySchemes"][scheme].is_object(), "{scheme}");
    }
    assert!(unresolved(&document, &document).is_empty(), "{:?}", unresolved(&document, &document));
}

/// References whose target does not exist.
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
async fn the_api_page_refers_to_nothing_outside_the_hub() {
    let hub = hub().await;
    let api = Api::new(&hub).anonymous();
    let page = api.get("/docs").await.expect(200);
    assert!(page.header("content-type").starts_with("text/html"));
    assert!(page.header("content-security-policy").starts_with("default-src 'self'"));
    // The XML namespace of SVG looks like an address, but is not loaded.
    let text = page.text().replace("http://www.w3.org/2000/svg", "");
    assert!(text.to_ascii_lowercase().starts_with("<!doctype html>"));
    let script = api.get("/docs/page.js").await.expect(200).text();
    assert!(script.contains("/openapi.json"), "{script}");
    let style = api.get("/docs/page.css").await.expect(200).text();
    for outside in ["http://", "https://", "src=\"//", "href=\"//", "@import"] {
        assert!(
            ![&text, &script, &style].into_iter().any(|text| text.contains(outside)),
            "{outside} in the page"
        );
    }
    let files: Vec<&str> = text.split('"').filter(|value| value.starts_with("/docs/")).collect();
    assert_eq!(files.len(), 4, "{text}");
    for file in files {
        let answer = api.get(file).await.expect(200);
        let kind = if file.ends_with(".css") { "text/css" } else { "text/javascript" };
        assert!(answer.header("content-type").starts_with(kind), "{file}");
    }
    api.get("/docs/no-such-file.js").await.expect_error(404, "COMMON404");
}

#[tokio::test]
async fn every_metric_has_a_help_line() {
    let hub = hub().await;
    let api = Api::new(&hub);
    api.publish_to("a", "comment.created", json!({})).await;
    let text = api.anonymous().get("/metrics").await.expect(200).text();
    let names = |start: &str| -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(start));
        lines.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
    };
    let (types, helps) = (names("# TYPE "), names("# HELP "));
    assert!(types.len() > 10, "{types:?}");
    assert_eq!(
        types.difference(&helps).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "types without a help line"
    );
}
