//! Every error has the same shape and a stable code, in the caller's language.

use bongsu_testkit::{Api, raw};
use serde_json::json;

use super::{EVENTS_PATH, TICKETS_PATH, WAIT_TIMEOUT, hub};

fn is_korean(text: &str) -> bool {
    text.chars().any(|c| ('가'..='힣').contains(&c))
}

#[tokio::test]
async fn every_error_has_one_shape_in_both_languages() {
    let hub = hub().await;
    let publish = "/api/v1/notifications/publish";
    let conflict = |n: u32| {
        json!({"roomId": "a", "eventType": "a.b", "data": {"n": n}, "idempotencyKey": "k"}).to_string()
    };
    let service = Api::new(&hub);
    service.call("POST", publish, conflict(0)).await.expect(200);
    let person = service.person(7);
    // The connection is not reused, because the hub does not read the rest of a refused body.
    let talkative = service.with_header("connection", "close");
    let cookie = super::cookie(&bongsu_testkit::tokens::token(7));
    let by_cookie = service.anonymous().with_header("cookie", &cookie);
    let errors = [
        (&person, "GET", "/api/v1/rooms/a/events", String::new(), 400, "COMMON400"),
        (&service, "POST", publish, "{}".to_owned(), 400, "COMMON400"),
        (
            &service,
            "POST",
            publish,
            json!({"roomId": 1, "eventType": "x", "data": {}}).to_string(),
            400,
            "NOTIF4001",
        ),
        (&service, "GET", EVENTS_PATH, String::new(), 401, "AUTH4001"),
        (&person, "POST", publish, "{}".to_owned(), 401, "AUTH4001"),
        (&by_cookie, "POST", TICKETS_PATH, String::new(), 403, "COMMON403"),
        (&person, "GET", "/no/such/thing", String::new(), 404, "COMMON404"),
        (&person, "POST", "/", String::new(), 405, "COMMON405"),
        (&person, "DELETE", EVENTS_PATH, String::new(), 405, "COMMON405"),
        (&service, "GET", publish, String::new(), 405, "COMMON405"),
        (&person, "POST", "/openapi.json", String::new(), 405, "COMMON405"),
        (&person, "POST", "/health", String::new(), 405, "COMMON405"),
        (&service, "POST", publish, conflict(1), 409, "NOTIF4091"),
        (&talkative, "POST", publish, "x".repeat(70_000), 413, "COMMON413"),
    ];
    for (api, method, path, body, status, code) in errors {
        let mut messages = Vec::new();
        for language in ["", "ko", "ko-KR,ko;q=0.9,en;q=0.8", "fr", "en", "en-US,en;q=0.9", "fr, en;q=0.5"] {
            let api =
                if language.is_empty() { api.clone() } else { api.with_header("accept-language", language) };
            let answer = api.call(method, path, body.clone()).await.expect_error(status, code);
            let members: Vec<_> = answer.body.as_object().unwrap().keys().collect();
            assert_eq!(members, ["code", "isSuccess", "message", "result"], "{method} {path}");
            assert_eq!(answer.header("content-type"), "application/json");
            messages.push(answer.message().to_owned());
        }
        assert!(messages[..4].iter().all(|message| is_korean(message)), "{messages:?}");
        assert!(messages[4..].iter().all(|message| !is_korean(message)), "{messages:?}");
    }
}

#[tokio::test]
async fn a_wrong_method_is_answered_with_the_allowed_ones() {
    let hub = hub().await;
    let answer = Api::new(&hub)
        .call("DELETE", "/api/v1/notifications/publish", "")
        .await
        .expect_error(405, "COMMON405");
    assert!(answer.header("allow").contains("POST"), "Allow: {:?}", answer.header("allow"));
}

#[tokio::test]
async fn successful_answers_have_the_common_envelope() {
    let hub = hub().await;
    for (language, korean) in [("ko", true), ("en", false)] {
        let answer = Api::new(&hub).with_header("accept-language", language).get("/health").await.expect(200);
        assert_eq!((answer.code(), &answer.body["isSuccess"]), ("COMMON200", &json!(true)));
        assert_eq!(is_korean(answer.message()), korean);
    }
}

#[tokio::test]
async fn a_language_that_cannot_be_read_is_no_error() {
    let hub = hub().await;
    for language in ["\u{ff}\u{fe}", "en;q=", ";;;;", ",,,,", "x".repeat(8_000).as_str(), "en;q=1e999"] {
        let head = format!(
            "GET /no HTTP/1.1\r\nHost: localhost\r\nAccept-Language: {language}\r\nConnection: close\r\n\r\n"
        );
        let answer = raw::answer(hub.addr(), head.as_bytes(), WAIT_TIMEOUT).await.unwrap();
        answer.expect_error(404, "COMMON404");
    }
}
