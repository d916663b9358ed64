//! No token, ticket, key or secret reaches a log or a metric, at any log level.

use bongsu_testkit::jwks::{JwksServer, Key};
use bongsu_testkit::sse::Stream;
use bongsu_testkit::tokens::Claims;
use bongsu_testkit::ws::WebSocket;
use bongsu_testkit::{Answer, Api, Hub, wait};
use serde_json::json;

use super::WAIT_TIMEOUT;
use crate::BONGSU;

const JWT_SECRET_VALUE: &str = "jwt-secret-that-must-stay-secret-0123456789";
const INTERNAL_KEY: &str = "internal-key-that-must-stay-secret-012345678";
const SECOND_INTERNAL_KEY: &str = "second-internal-key-that-must-stay-secret-01";
const ADMIN_KEY: &str = "admin-key-that-must-stay-secret-0123456789ab";
const WRONG_KEY: &str = "wrong-internal-key-that-must-stay-secret-012";
/// The most verbose filter, including libraries that are quieter by default.
const MOST_VERBOSE_FILTER: &str = "trace,h2=trace,h2::codec=trace,h2::hpack=trace,h2::proto=trace,hyper=trace,\
    hyper::proto=trace,hyper_util=trace,hyper_util::client=trace,reqwest=trace,reqwest::connect=trace,\
    rustls=trace,tower_http=trace,axum=trace,axum::rejection=trace";

/// Uses every credential in every place where it may be sent, and returns the strings that must not appear.
async fn use_all_credentials(hub: &Hub, api: &Api, good: &str, bad: &str) -> Vec<String> {
    let mut secrets = vec![good.to_owned(), bad.to_owned()];
    let (room, tickets) = ("/api/v1/rooms/a/stream", "/api/v1/stream-tickets");
    let event = json!({"roomId": "a", "eventType": "a.b", "data": {}});
    for (key, status) in [(INTERNAL_KEY, 200), (SECOND_INTERNAL_KEY, 200), (WRONG_KEY, 401)] {
        api.service(key).publish(&event).await.expect(status);
    }
    api.anonymous().with_header("x-admin-key", ADMIN_KEY).get("/health").await.expect(200);
    let ask = async |path: &str, headers: &[(&str, &str)]| -> Answer {
        // Every stream that is requested here is refused, so that no stream stays open.
        let mut all = vec![("accept", "text/event-stream")];
        all.extend_from_slice(headers);
        api.raw("GET", path, &all, "").await
    };
    for token in [good, bad] {
        let bearer = format!("Bearer {token}");
        let cookie = format!("theme=dark; access_token={token}");
        let events = "/api/v1/rooms/a/events?since=0-0";
        ask(events, &[("authorization", &bearer)]).await;
        ask(events, &[("cookie", &cookie)]).await;
        ask(events, &[("authorization", token)]).await.expect(401);
        ask(&format!("{events}&token={token}"), &[]).await.expect(401);
        let issued = api.bearer(token).post(tickets, json!({})).await;
        for request in
            [Stream::request(hub, &format!("{room}?token={token}")), Stream::request(hub, room).bearer(token)]
        {
            for request in [request.clone(), request.http2()] {
                if let Ok(mut stream) = request.last_event_id("0-0").open().await {
                    stream.expect_event("a.b", WAIT_TIMEOUT).await;
                }
            }
        }
        if let Some(ticket) = issued.result()["ticket"].as_str() {
            let path = format!("{room}?ticket={ticket}");
            assert!(Stream::request(hub, &path).http2().open().await.is_ok());
            ask(&path, &[]).await.expect_error(401, "AUTH4001");
            secrets.push(ticket.to_owned());
        }
        // Only the wrong token is refused with 401. Both tokens were in the address.
        let socket = WebSocket::try_open(hub, &format!("/api/v1/ws?token={token}"), &[]).await;
        assert_eq!(socket.err() == Some(401), token == bad);
        ask(&format!("{room}?ticket={token}"), &[]).await.expect(401);
        ask(&format!("/no/such?token={token}"), &[("authorization", &bearer)]).await.expect(404);
        ask(&format!("{room}?lastEventId=%ff&token={token}"), &[]).await.expect(400);
        let preflight = [
            ("origin", "http://localhost:3000"),
            ("access-control-request-method", "GET"),
            ("cookie", &cookie),
        ];
        api.raw("OPTIONS", &format!("{room}?token={token}"), &preflight, "").await;
    }
    secrets
}

async fn assert_no_credential(hub: &Hub, mut secrets: Vec<String>) {
    secrets.extend(
        [JWT_SECRET_VALUE, INTERNAL_KEY, SECOND_INTERNAL_KEY, ADMIN_KEY, WRONG_KEY].map(str::to_owned),
    );
    // Parts of a token are as sensitive as the whole: its signature is enough.
    let signatures: Vec<String> =
        secrets.iter().filter_map(|secret| secret.rsplit_once('.').map(|(_, end)| end.to_owned())).collect();
    secrets.extend(signatures);
    let metrics = Api::new(hub).anonymous().get("/metrics").await.text();
    hub.terminate().await;
    let log = hub.log();
    assert!(log.lines().count() > 3, "nothing was logged at all");
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        let line = log.lines().find(|line| line.contains(secret.as_str()));
        assert!(line.is_none(), "the log has a credential: {line:?}");
        assert!(!metrics.contains(secret.as_str()), "a metric has a credential");
    }
}

fn builder() -> bongsu_testkit::hub::Builder {
    let builder =
        Hub::builder(BONGSU).env("RUST_LOG", MOST_VERBOSE_FILTER).env("JWT_SECRET", JWT_SECRET_VALUE);
    builder
        .env("INTERNAL_API_KEY", format!("{INTERNAL_KEY},{SECOND_INTERNAL_KEY}"))
        .env("ADMIN_API_KEY", ADMIN_KEY)
}

#[tokio::test]
async fn no_credential_is_ever_logged() {
    let hub = builder().start().await;
    let (good, bad) = (Claims::new(7).sign_with(JWT_SECRET_VALUE), Claims::new(8).sign_with("another"));
    let mut secrets = Vec::new();
    for api in [Api::new(&hub), Api::http2(&hub)] {
        secrets.extend(use_all_credentials(&hub, &api, &good, &bad).await);
    }
    assert_no_credential(&hub, secrets).await;
}

#[tokio::test]
async fn no_credential_is_logged_with_published_keys_either() {
    let key = Key::es256("known");
    let server = JwksServer::start(&[&key]).await;
    let url = format!("{}?apikey=jwks-url-credential-0123456789", server.url());
    let hub = builder().env("JWKS_URL", url).env("JWT_ALGORITHM", "ES256").start().await;
    let (good, bad) = (Claims::new(7).sign_by(&key), Claims::new(8).sign_by(&Key::es256("unknown")));
    let api = Api::http2(&hub);
    wait::until(WAIT_TIMEOUT, async || {
        api.bearer(&good).get("/api/v1/rooms/a/events?since=0-0").await.status == 200
    })
    .await;
    server.fail(Some(bongsu_testkit::jwks::Failure::Status(500)));
    let mut secrets = use_all_credentials(&hub, &api, &good, &bad).await;
    secrets.push("jwks-url-credential-0123456789".to_owned());
    assert_no_credential(&hub, secrets).await;
}

#[tokio::test]
async fn log_lines_of_a_request_carry_its_trace() {
    let hub = Hub::builder(BONGSU).env("RUST_LOG", "debug").start().await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let api = Api::at(&hub.url("")).with_header("traceparent", trace);
    api.publish_to("a", "a.b", json!({})).await;
    let is_answer = |line: &str| line.contains("\"answered a request\"") && line.contains("/publish");
    let traced = |line: &str| line.contains("\"trace_id\":\"4bf92f3577b34da6a3ce929d0e0e4736\"");
    wait::until(WAIT_TIMEOUT, async || hub.log().lines().any(|line| is_answer(line) && traced(line))).await;
    Api::at(&hub.url("")).publish_to("b", "a.b", json!({})).await;
    wait::until(WAIT_TIMEOUT, async || hub.log().lines().filter(|line| is_answer(line)).count() == 2).await;
    assert_eq!(hub.log().lines().filter(|line| traced(line)).count(), 1, "the second has no trace");
}
