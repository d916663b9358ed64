//! Host names. With development secrets the hub serves only names of this machine: a foreign site could let
//! its own name resolve to 127.0.0.1, and its pages would then share the hub's origin.

use bongsu_testkit::{Answer, Api, Hub, raw, tokens};
use serde_json::json;

use super::secrets::with_real_secrets;
use super::{EVENTS_PATH, STREAM_PATH, WAIT_TIMEOUT, hub};

const SECRET_SETTINGS: [&str; 3] = ["JWT_SECRET", "INTERNAL_API_KEY", "ADMIN_API_KEY"];

/// Sends exactly these lines as the head of an HTTP/1.1 request.
async fn ask(hub: &Hub, head: &str) -> Answer {
    let request = format!("{head}Accept-Language: en\r\nConnection: close\r\n\r\n");
    raw::answer(hub.addr(), request.as_bytes(), WAIT_TIMEOUT)
        .await
        .unwrap_or_else(|| panic!("no answer to {head}"))
}

/// Sends an HTTP/2 request to a host name that resolves to the hub.
async fn ask_http2(hub: &Hub, name: &str, host: Option<&str>) -> reqwest::Result<(u16, String)> {
    let client = reqwest::Client::builder().http2_prior_knowledge().no_proxy().resolve(name, hub.addr());
    let request = client.build()?.get(format!("http://{name}:{}/health", hub.port()));
    let request = host.into_iter().fold(request, |request, host| request.header("host", host));
    let answer = request.send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

#[tokio::test]
async fn with_development_secrets_only_loopback_host_names_are_served() {
    let hub = hub().await;
    for host in
        ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:8083", "app.localhost:3000"]
    {
        ask(&hub, &format!("GET /health HTTP/1.1\r\nHost: {host}\r\n")).await.expect(200);
    }
    assert_eq!(ask_http2(&hub, "app.localhost", None).await.unwrap().0, 200);
    let bearer = format!("Authorization: Bearer {}\r\n", tokens::token(7));
    let foreign = [
        "evil.example".to_owned(),
        format!("evil.example:{}", hub.port()),
        "localhost.evil.example".to_owned(),
        "127.0.0.1.evil.example".to_owned(),
        "10.0.0.1".to_owned(),
        "0.0.0.0".to_owned(),
    ];
    for host in &foreign {
        for path in ["/health", "/docs", "/no/such", EVENTS_PATH, STREAM_PATH] {
            let answer = ask(&hub, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{bearer}")).await;
            let answer = answer.expect_error(403, "COMMON403");
            let says = |word: &str| answer.message().contains(word);
            assert!(
                SECRET_SETTINGS.iter().all(|name| says(name)) && says("32 bytes") && says("localhost"),
                "{}",
                answer.text()
            );
        }
    }
    let (status, text) = ask_http2(&hub, "evil.example", None).await.unwrap();
    assert!(status == 403 && text.contains("JWT_SECRET"), "{status} {text}");
    // The preflight request of a browser, and the request of an EventSource.
    let preflight = "Origin: http://localhost:3000\r\nAccess-Control-Request-Method: GET\r\n";
    let answer = ask(&hub, &format!("OPTIONS /health HTTP/1.1\r\nHost: evil.example\r\n{preflight}")).await;
    answer.expect_error(403, "COMMON403");
    let stream =
        format!("GET {STREAM_PATH} HTTP/1.1\r\nHost: evil.example\r\nAccept: text/event-stream\r\n{bearer}");
    ask(&hub, &stream).await.expect_error(403, "COMMON403");
}

#[tokio::test]
async fn a_request_without_exactly_one_host_is_refused() {
    for hub in [hub().await, with_real_secrets().start().await] {
        for head in [
            "GET /health HTTP/1.1\r\n",
            "GET http://localhost/health HTTP/1.1\r\n",
            "GET /health HTTP/1.1\r\nHost:\r\n",
            "GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n",
            "GET /health HTTP/1.1\r\nHost: localhost\r\nhost: evil.example\r\n",
            "GET http://localhost/health HTTP/1.1\r\nHost: evil.example\r\n",
            "GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n",
            "GET /health HTTP/1.1\r\nHost: me@localhost\r\n",
        ] {
            let answer = ask(&hub, head).await.expect_error(400, "COMMON400");
            assert!(answer.message().contains("host"), "{head}: {}", answer.text());
        }
        ask(&hub, "GET http://localhost/health HTTP/1.1\r\nHost: LOCALHOST\r\n").await.expect(200);
        // HTTP/1.0 is older than the rule about `Host`, and browsers do not send it.
        ask(&hub, "GET /health HTTP/1.0\r\n").await.expect(200);
        assert_eq!(ask_http2(&hub, "app.localhost", Some("evil.example")).await.unwrap().0, 400);
    }
}

#[tokio::test]
async fn with_strong_secrets_any_host_name_is_served() {
    let hub = with_real_secrets().start().await;
    for host in ["hub.example", "10.0.0.1:8083", "localhost"] {
        ask(&hub, &format!("GET /health HTTP/1.1\r\nHost: {host}\r\n")).await.expect(200);
    }
    assert_eq!(ask_http2(&hub, "hub.example", None).await.unwrap().0, 200);
}

#[tokio::test]
async fn a_refused_publish_stores_nothing() {
    let hub = hub().await;
    let body = json!({"roomId": "a", "eventType": "a.b", "data": {}}).to_string();
    let head = format!(
        "POST /api/v1/notifications/publish HTTP/1.1\r\nHost: evil.example\r\nX-Internal-Key: {}\r\nContent-Length: {}\r\n\r\n{body}",
        bongsu_testkit::api::INTERNAL_KEY,
        body.len()
    );
    let answer =
        raw::answer(hub.addr(), head.as_bytes(), WAIT_TIMEOUT).await.unwrap().expect_error(403, "COMMON403");
    assert_eq!(answer.header("connection"), "close", "the body was not read");
    assert!(Api::new(&hub).stored_ids("a").await.is_empty());
}
