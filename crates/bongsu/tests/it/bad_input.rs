//! Malformed input of every kind: the hub answers with a clear error or closes the connection, stores nothing, and
//! keeps serving other clients.

mod slow;
mod wire;

use std::time::Duration;

use bongsu_testkit::{Answer, Api, Hub, raw};
use serde_json::{Value, json};

use crate::BONGSU;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
const PUBLISH_PATH: &str = "/api/v1/notifications/publish";
const BATCH_PATH: &str = "/api/v1/notifications/publish/batch";
const KEY_HEADER: &str = "X-Internal-Key: local_dev_internal_key";

async fn hub() -> Hub {
    Hub::builder(BONGSU).start().await
}

fn authorization() -> String {
    format!("Authorization: Bearer {}", bongsu_testkit::tokens::token(7))
}

/// Sends a raw request line, raw headers and a raw body, and returns the answer.
async fn send(hub: &Hub, line: &[u8], headers: &[&[u8]], body: &[u8]) -> Option<Answer> {
    let mut request =
        [line, b" HTTP/1.1\r\nHost: localhost\r\nAccept-Language: en\r\nConnection: close\r\n"].concat();
    for header in headers {
        request.extend_from_slice(header);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    request.extend_from_slice(body);
    raw::answer(hub.addr(), &request, WAIT_TIMEOUT).await
}

/// Checks that the hub is as it was before the bad input: healthy, without events, without a panic, below 200 MiB.
async fn assert_unaffected(hub: &Hub) {
    let api = Api::new(hub);
    let health = api.get("/health").await.expect(200);
    assert_eq!((&health.result()["status"], &health.result()["degraded"]), (&json!("healthy"), &json!([])));
    let page = api.person(7).get("/api/v1/rooms/a/events?since=0-0").await.expect(200);
    assert_eq!(page.result()["events"], json!([]));
    let metrics = hub.metrics().await;
    assert_eq!(metrics.get("events_published_total", &[]), 0.0);
    assert_eq!(metrics.get("http_requests_total", &[("status", "500")]), 0.0);
    assert!(!hub.log().contains("panicked"), "{}", hub.log());
    assert!(hub.peak_rss_kib() < 200 * 1024, "{} KiB", hub.peak_rss_kib());
    // The hub still takes events.
    api.publish_to("afterwards", "a.b", json!({})).await;
}

#[tokio::test]
async fn a_body_that_is_no_json_object_is_refused_as_such() {
    let hub = hub().await;
    let deep = "[".repeat(60_000);
    let bodies: [&[u8]; 20] = [
        b"",
        b" ",
        b"null",
        b"true",
        b"5",
        b"\"text\"",
        b"[]",
        b"{",
        b"}",
        b"{\"roomId\"",
        b"{\"a\":1,}",
        b"{'a':1}",
        b"{\"a\":01}",
        b"{} {}",
        b"{}x",
        b"\xef\xbb\xbf{}",
        b"\x00",
        b"{\"a\":\"\n\"}",
        b"a=b&c=d",
        deep.as_bytes(),
    ];
    let not_text: [&[u8]; 4] =
        [b"\xff\xfe", b"{\"roomId\":\"\xff\"}", b"{\"data\":{\"\xc3\x28\":1}}", b"{\"x\":\"\xed\xa0\x80\"}"];
    for path in [PUBLISH_PATH, BATCH_PATH] {
        let line = format!("POST {path}");
        for body in bodies.iter().chain(&not_text) {
            let shown = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
            let answer = send(&hub, line.as_bytes(), &[KEY_HEADER.as_bytes()], body).await;
            let answer =
                answer.unwrap_or_else(|| panic!("no answer to {shown:?}")).expect_error(400, "COMMON400");
            assert!(answer.message().starts_with("body: "), "{shown:?}: {}", answer.message());
        }
    }
    // An unexpected `Content-Type`, and a body on a route that reads none, do no harm.
    let event = json!({"roomId": "elsewhere", "eventType": "a.b", "data": {}}).to_string();
    for kind in ["text/plain", "application/xml", ""] {
        let kind = format!("Content-Type: {kind}");
        let headers = [KEY_HEADER.as_bytes(), kind.as_bytes()];
        let answer = send(&hub, b"POST /api/v1/notifications/publish", &headers, event.as_bytes()).await;
        assert!(answer.is_some_and(|answer| answer.status == 200 || answer.status == 415));
    }
    assert_eq!(send(&hub, b"GET /health", &[], b"\xff\xff").await.map(|answer| answer.status), Some(200));
}

/// Unusual JSON values to put into a field of an event.
fn strange_values() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(1e308),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(""),
        json!(" "),
        json!("\u{0}"),
        json!("\r\n"),
        json!("\u{7f}"),
        json!("\u{85}"),
        json!("\u{2028}"),
        json!("\u{202e}"),
        json!("'; DROP TABLE entries; --"),
        json!("../../etc/passwd"),
        json!("%00"),
        json!("방"),
        json!([]),
        json!([[]]),
        json!({}),
        json!({"a": {"b": []}}),
        json!("x".repeat(50_000)),
        json!((0..5_000).collect::<Vec<_>>()),
    ]
}

/// The unusual values that a field accepts.
fn accepted_values(field: &str) -> Vec<Value> {
    match field {
        "roomId" => vec![json!(0), json!(-1)],
        "publisherId" => vec![json!(null), json!(0), json!(-1)],
        "eventType" => vec![],
        "data" => vec![json!({}), json!({"a": {"b": []}})],
        "idempotencyKey" => vec![
            json!(null),
            json!("\u{202e}"),
            json!("'; DROP TABLE entries; --"),
            json!("../../etc/passwd"),
            json!("%00"),
            json!("방"),
        ],
        "recipients" => vec![json!(null), json!([])],
        other => panic!("{other} is no field of an event"),
    }
}

/// Whether an error message is about this field or about an item of it.
fn names_field(message: &str, field: &str) -> bool {
    message.strip_prefix(field).is_some_and(|rest| rest.starts_with(": ") || rest.starts_with('['))
}

#[tokio::test]
async fn a_publish_with_one_invalid_field_stores_nothing() {
    let hub = hub().await;
    let api = Api::new(&hub).with_header("accept-language", "en");
    let whole = json!({"roomId": "a", "eventType": "a.b", "data": {"ok": true}, "publisherId": 1, "idempotencyKey": "k", "recipients": [2]});
    for field in ["roomId", "eventType", "data", "publisherId", "idempotencyKey", "recipients"] {
        let taken = accepted_values(field);
        for value in strange_values().iter().filter(|value| !taken.contains(value)) {
            let mut event = whole.clone();
            event[field] = value.clone();
            let shown: String = value.to_string().chars().take(40).collect();
            let answer = api.publish(&event).await;
            assert_eq!(answer.status, 400, "{field}={shown}: {}", answer.text());
            assert!(names_field(answer.message(), field), "{field}={shown}: {}", answer.message());
            let batch = api.publish_batch(&[event]).await.expect(200);
            let refused = &batch.result()["results"][0];
            let message = refused["message"].as_str().unwrap_or_default();
            assert!(names_field(message, &format!("events[0].{field}")), "{field}={shown}: {}", batch.text());
            assert!(refused["code"].is_string() && refused["streamId"].is_null(), "{}", batch.text());
        }
    }
    // The refused requests created no inbox entry and used up no idempotency key.
    let entries = api.person(2).get("/api/notifications").await.expect(200);
    assert_eq!((&entries.result()["items"], &entries.result()["unread"]), (&json!([]), &json!(0)));
    assert_unaffected(&hub).await;
    // Without the bad value the same event is accepted, so no other field was the reason for the refusals.
    let answer = api.publish(&whole).await.expect(200);
    assert_eq!(answer.result()["duplicate"], false, "a refused event has used its key");
    for (n, field) in
        ["roomId", "data", "publisherId", "idempotencyKey", "recipients"].into_iter().enumerate()
    {
        for (value, at) in accepted_values(field).into_iter().zip(0..) {
            let mut event = whole.clone();
            event["idempotencyKey"] = json!(format!("taken {n} {at}"));
            event[field] = value;
            api.publish(&event).await.expect(200);
        }
    }
}

#[tokio::test]
async fn paths_queries_and_headers_that_are_not_utf_8_are_refused_by_name() {
    let hub = hub().await;
    let who = authorization();
    let who = who.as_bytes();
    let named: [(&[u8], &str); 10] = [
        (b"GET /api/v1/rooms/%ff/events?since=0-0", "roomId: "),
        (b"GET /api/v1/rooms/%C3%28/stream", "roomId: "),
        (b"GET /api/v1/rooms/a%0d%0ab/stream", "roomId: "),
        (b"GET /api/v1/rooms/%00/stream", "roomId: "),
        (b"GET /api/v1/rooms/a%2fb/stream", "roomId: "),
        (b"GET /api/v1/rooms/a/events?since=%ff", "since: "),
        (b"GET /api/v1/rooms/a/events?since=0-0&count=%ff", "count: "),
        (b"GET /api/v1/rooms/a/events?%ff=1&since=0-0", "query: "),
        (b"GET /api/v1/rooms/a/stream?lastEventId=%ff", "lastEventId: "),
        (b"GET /api/v1/rooms/a/stream?lastEventId=%2", "lastEventId: "),
    ];
    for (line, field) in named {
        let answer = send(&hub, line, &[who], b"").await.unwrap().expect_error(400, "COMMON400");
        assert!(
            answer.message().starts_with(field),
            "{}: {}",
            String::from_utf8_lossy(line),
            answer.message()
        );
    }
    let stream = b"GET /api/v1/rooms/a/stream";
    for header in [&b"Last-Event-ID: \xff\xfe"[..], b"Last-Event-ID: \xea\xb0\x80", b"Last-Event-ID: 1-1 1-2"]
    {
        let answer = send(&hub, stream, &[who, header], b"").await.unwrap();
        let answer = answer.expect_error(400, "COMMON400");
        assert!(answer.message().starts_with("Last-Event-ID: "), "{}", answer.message());
    }
    for header in [&b"Authorization: Bearer \xff"[..], b"Cookie: access_token=\xff", b"X-Internal-Key: \xff"]
    {
        let answer = send(&hub, stream, &[header], b"").await.unwrap();
        answer.expect_error(401, "AUTH4001");
    }
    // A request that is not valid HTTP is refused before any handler sees it.
    for line in [&b"GET /\xff"[..], b"GET /a b", b"GET", b"G\x00T /", b"GET /\x01"] {
        let answer = send(&hub, line, &[who], b"").await;
        assert!(
            answer.is_none_or(|answer| matches!(answer.status, 400 | 404)),
            "{}",
            String::from_utf8_lossy(line)
        );
    }
    assert_unaffected(&hub).await;
}

#[tokio::test]
async fn long_and_unusual_paths_are_answered_404() {
    let hub = hub().await;
    let api = Api::new(&hub).person(7);
    let long = format!("/api/v1/rooms/{}/events?since=0-0", "x".repeat(5_000));
    api.get(&long).await.expect_error(400, "COMMON400");
    let many = format!("/api/v1/rooms/a/events?since=0-0{}", "&x=1".repeat(2_000));
    api.get(&many).await.expect(200);
    api.get("/api/v1/rooms//stream").await.expect_error(400, "COMMON400");
    for path in ["/api/v1/rooms/a/stream/", "/API/V1/ROOMS/a/stream", "//health", "/api/v1/rooms/a/b/stream"]
    {
        api.get(path).await.expect_error(404, "COMMON404");
    }
    for path in ["/api/v1/rooms/./events?since=0-0", "/api/v1/rooms/..%2f..%2fhealth/events?since=0-0"] {
        let line = format!("GET {path}");
        let answer = send(&hub, line.as_bytes(), &[authorization().as_bytes()], b"").await.unwrap();
        assert!(matches!(answer.status, 200 | 400 | 404), "{path}: {}", answer.status);
        assert_ne!(
            answer.result()["status"],
            Value::from("healthy"),
            "{path} was normalised into another route"
        );
    }
    assert_unaffected(&hub).await;
}
