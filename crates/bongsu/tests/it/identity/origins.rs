//! Pages of other origins: limits on reads, and on changes with a person's cookie.

use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Api, Hub, tokens};
use serde_json::json;

use super::{EVENTS_PATH, STREAM_PATH, TICKETS_PATH, WAIT_TIMEOUT, cookie, hub, open_stream};
use crate::BONGSU;

#[tokio::test]
async fn a_change_by_cookie_needs_an_allowed_or_the_same_origin() {
    let hub = hub().await;
    let cookie = cookie(&tokens::token(7));
    let own = format!("http://{}", hub.addr());
    for api in [Api::new(&hub), Api::http2(&hub)] {
        for origin in ["http://localhost:3000", "http://localhost:5173", "http://localhost:5174", &own] {
            api.raw("POST", TICKETS_PATH, &[("cookie", &cookie), ("origin", origin)], "").await.expect(200);
        }
        let foreign = [
            "https://evil.example",
            "null",
            "",
            "http://localhost:3001",
            "https://localhost:3000",
            "http://localhost:3000.evil.example",
            "http://localhost:30000",
            "http://127.0.0.1",
            "http://evil.example/http://localhost:3000",
        ];
        for origin in foreign {
            let answer = api.raw("POST", TICKETS_PATH, &[("cookie", &cookie), ("origin", origin)], "").await;
            answer.expect_error(403, "COMMON403");
        }
        api.raw("POST", TICKETS_PATH, &[("cookie", &cookie)], "").await.expect_error(403, "COMMON403");
        // Browsers do not add the Authorization header on their own, so it needs no allowed origin.
        api.person(7)
            .with_header("origin", "https://evil.example")
            .post(TICKETS_PATH, json!({}))
            .await
            .expect(200);
        // Reading by cookie is protected by CORS.
        api.raw("GET", EVENTS_PATH, &[("cookie", &cookie), ("origin", "https://evil.example")], "")
            .await
            .expect(200);
    }
}

#[tokio::test]
async fn a_page_of_another_origin_opens_no_stream_with_a_persons_cookie() {
    let hub = hub().await;
    let cookie = cookie(&tokens::token(7));
    let document = Api::new(&hub).get("/openapi.json").await.expect(200).body;
    let is_stream = |item: &serde_json::Value| {
        item["get"]["responses"]["200"]["content"]["text/event-stream"].is_object()
    };
    // The paths come from the API description, so a new stream is included automatically.
    let paths = document["paths"].as_object().unwrap().iter().filter(|(_, item)| is_stream(item));
    let paths: Vec<String> = paths
        .map(|(path, _)| path.replace("{roomId}", "a").replace("{eventId}", "a"))
        .map(|path| if path == "/api/v1/stream" { format!("{path}?rooms=a") } else { path })
        .collect();
    for known in [STREAM_PATH, "/api/v1/stream?rooms=a", "/api/notifications/stream", "/events/a/stream"] {
        assert!(paths.iter().any(|path| path == known), "{known} is not in {paths:?}");
    }
    let own = format!("http://{}", hub.addr());
    let foreign = [
        &[("origin", "https://evil.example")][..],
        &[("origin", "null")],
        &[("origin", "http://localhost:3001"), ("sec-fetch-site", "same-site")],
        &[("origin", "https://evil.example"), ("sec-fetch-site", "same-origin")],
        &[("sec-fetch-site", "cross-site")],
    ];
    let known = [
        &[][..],
        &[("origin", "http://localhost:3000"), ("sec-fetch-site", "cross-site")],
        &[("origin", own.as_str())],
        &[("sec-fetch-site", "same-origin")],
        &[("sec-fetch-site", "none")],
    ];
    for path in &paths {
        let open = async |headers: &[(&str, &str)]| {
            let request = Stream::request(&hub, path).header("cookie", &cookie);
            let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
            let statuses = [request.clone().open().await, request.http2().open().await];
            statuses.map(|opened| opened.map_or_else(|answer| answer.status, |stream| stream.status))
        };
        for headers in foreign {
            assert_eq!(open(headers).await, [403, 403], "{path} {headers:?}");
        }
        for headers in known {
            assert!(open(headers).await.iter().all(|status| *status != 403), "{path} {headers:?}");
        }
        // Browsers do not add a token on their own.
        let by_token = Stream::request(&hub, path).person(7).header("origin", "https://evil.example");
        assert!(
            by_token.open().await.map_or_else(|answer| answer.status, |stream| stream.status) != 403,
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_page_of_another_origin_replaces_no_device() {
    let hub = hub().await;
    let path = "/api/notifications/stream";
    let mut devices = Vec::new();
    for _ in 0..3 {
        devices.push(Stream::request(&hub, path).person(7).open().await.ok().unwrap());
    }
    let cookie = cookie(&tokens::token(7));
    for _ in 0..3 {
        let request = Stream::request(&hub, path).header("cookie", &cookie);
        let refused = request.header("origin", "https://evil.example").open().await.err().unwrap();
        refused.expect_error(403, "COMMON403");
    }
    let notice = json!({"eventId": "e", "type": "POST_LIKE", "targetIds": [7], "actorId": 2, "refId": 100,
        "payload": {"actorName": "봉수"}});
    Api::new(&hub).post("/api/v1/members/notify", notice).await.expect(202);
    for device in &mut devices {
        device.expect_event("notification", WAIT_TIMEOUT).await;
    }
}

#[tokio::test]
async fn only_allowed_origins_get_cors_headers() {
    let hub = Hub::builder(BONGSU)
        .env("ALLOWED_ORIGINS", "https://app.example.com,https://b.example.com")
        .start()
        .await;
    let api = Api::new(&hub);
    let origin = "https://app.example.com";
    for path in [EVENTS_PATH, "/health", "/no/such"] {
        let answer = api.person(7).with_header("origin", origin).get(path).await;
        assert_eq!(answer.header("access-control-allow-origin"), origin, "{path}");
        assert_eq!(answer.header("access-control-allow-credentials"), "true");
        assert!(answer.header("vary").to_ascii_lowercase().contains("origin"), "{}", answer.header("vary"));
        for foreign in ["https://evil.example", "http://localhost:3000", "null"] {
            let answer = api.person(7).with_header("origin", foreign).get(path).await;
            assert_eq!(answer.header("access-control-allow-origin"), "", "{foreign} on {path}");
        }
    }
    let bearer = format!("Bearer {}", tokens::token(7));
    let stream =
        open_stream(&hub, STREAM_PATH, &[("authorization", &bearer), ("origin", origin)]).await.ok().unwrap();
    assert_eq!(stream.headers["access-control-allow-origin"], origin);
    assert_eq!(stream.headers["access-control-allow-credentials"], "true");
}

#[tokio::test]
async fn an_error_answer_can_be_read_by_an_allowed_page() {
    let hub = Hub::builder(BONGSU).env("SSE_MAX_CONNECTIONS", 1).start().await;
    let api = Api::new(&hub).with_header("origin", "http://localhost:3000");
    let _one = Stream::request(&hub, STREAM_PATH).person(1).open().await.ok().unwrap();
    let refused = api.person(2).with_header("origin", "http://localhost:3000").get(STREAM_PATH).await;
    let refused = refused.expect_error(429, "COMMON429");
    assert_eq!(refused.header("access-control-allow-origin"), "http://localhost:3000");
    assert!(refused.header("access-control-expose-headers").to_ascii_lowercase().contains("retry-after"));
    let request = Stream::request(&hub, STREAM_PATH).person(2);
    let passing = request.header("origin", "http://localhost:3000").open().await.ok().unwrap();
    assert_eq!(passing.headers["access-control-allow-origin"], "http://localhost:3000");
}

#[tokio::test]
async fn a_preflight_request_is_answered() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let preflight = async |path: &str, origin: &str, method: &str, headers: &str| {
        let asked = [
            ("origin", origin),
            ("access-control-request-method", method),
            ("access-control-request-headers", headers),
        ];
        api.raw("OPTIONS", path, &asked, "").await
    };
    let wanted = "authorization, content-type, last-event-id, accept-language";
    for (path, method) in [(STREAM_PATH, "GET"), (TICKETS_PATH, "POST"), (EVENTS_PATH, "GET")] {
        let answer = preflight(path, "http://localhost:3000", method, wanted).await;
        assert!(answer.is_success(), "{}", answer.status);
        assert_eq!(answer.header("access-control-allow-origin"), "http://localhost:3000");
        assert_eq!(answer.header("access-control-allow-credentials"), "true");
        assert!(answer.header("access-control-allow-methods").contains(method));
        let allowed = answer.header("access-control-allow-headers").to_ascii_lowercase();
        assert!(wanted.split(", ").all(|header| allowed.contains(header)), "{allowed}");
        let foreign = preflight(path, "https://evil.example", method, wanted).await;
        assert_eq!(foreign.header("access-control-allow-origin"), "");
    }
}

#[tokio::test]
async fn a_refused_origin_is_logged_once_and_the_log_stays_bounded() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let read = async |origin: &str| {
        api.raw("GET", EVENTS_PATH, &[("origin", origin)], "").await;
    };
    for _ in 0..3 {
        read("https://forgotten.example").await;
        read("http://localhost:3000").await;
    }
    for number in 0..100 {
        read(&format!("https://{number}.example")).await;
    }
    let log = hub.log();
    let of = |origin: &str| log.lines().filter(|line| line.contains(origin)).count();
    assert_eq!((of("https://forgotten.example"), of("localhost:3000")), (1, 0), "{log}");
    assert_eq!(of("is not in ALLOWED_ORIGINS"), 20, "{log}");
}
