//! Refused publishes: each refusal names the field, and nothing is stored.

use bongsu_testkit::{Api, raw};
use serde_json::{Value, json};

use super::{PUBLISH_PATH, WAIT_TIMEOUT, event, expect_field_error, hub, stored};

#[tokio::test]
async fn missing_fields_and_wrong_types_are_named() {
    let hub = hub().await;
    let api = Api::new(&hub).with_header("accept-language", "en");
    for field in ["roomId", "eventType", "data"] {
        expect_field_error(api.publish(event(&json!({ field: null }))).await, "COMMON400", field);
        let mut explicit = event(&json!({}));
        explicit[field] = Value::Null;
        expect_field_error(api.publish(explicit).await, "COMMON400", field);
    }
    let wrong = [
        (
            "roomId",
            vec![
                json!(true),
                json!([]),
                json!({}),
                json!(1.5),
                json!(""),
                json!("a b"),
                json!("방"),
                json!("a/b"),
            ],
        ),
        (
            "roomId",
            vec![
                json!(9_007_199_254_740_992_i64),
                json!(-9_007_199_254_740_992_i64),
                json!(u64::MAX),
                json!(1e300),
            ],
        ),
        ("roomId", vec![json!("x".repeat(129)), json!("a\nb"), json!("a\u{0}b"), json!(" a")]),
        ("eventType", vec![json!(5), json!(true), json!([]), json!({})]),
        ("data", vec![json!([]), json!("text"), json!(5), json!(false)]),
        (
            "publisherId",
            vec![
                json!(9_007_199_254_740_992_i64),
                json!("a b"),
                json!(""),
                json!([1]),
                json!({}),
                json!(true),
            ],
        ),
        (
            "idempotencyKey",
            vec![json!(5), json!(""), json!("k".repeat(257)), json!("a\nb"), json!("a\u{7f}"), json!([])],
        ),
        ("recipients", vec![json!(5), json!("x"), json!({}), json!(true)]),
        (
            "recipients[1]",
            vec![json!([1, "a b"]), json!([1, null]), json!([1, 1.5]), json!([1, [2]]), json!([1, ""])],
        ),
    ];
    for (field, values) in wrong {
        for value in values {
            let member = field.split('[').next().unwrap();
            let answer = api.publish(event(&json!({ member: value }))).await;
            expect_field_error(answer, "COMMON400", field);
        }
    }
    assert_eq!(stored(&hub, "a").await, Vec::<Value>::new());
    assert_eq!(hub.metrics().await.get("events_published_total", &[]), 0.0);
}

#[tokio::test]
async fn an_invalid_or_reserved_event_type_has_its_own_error_code() {
    let hub = hub().await;
    let api = Api::new(&hub).with_header("accept-language", "en");
    let good = ["a.b", "retrospect.submitted", "a1.b_2.c", "comment.created.v2", "systems.x", "presences.x"];
    for kind in good.map(str::to_owned).into_iter().chain([format!("a.{}", "b".repeat(62))]) {
        api.publish(event(&json!({"eventType": kind}))).await.expect(200);
    }
    let taken = stored(&hub, "a").await.len();
    let bad = [
        "",
        "a",
        "a.",
        ".a",
        "A.b",
        "a.B",
        "a_b.c",
        "1.a",
        "a.1",
        "a..b",
        "a.b ",
        " a.b",
        "a.b\n",
        "a.b\ndata: x",
        "a b.c",
        "a.b-c",
        "댓글.생성",
        "system.close",
        "system.reset.v2",
        "presence.update",
        "presence.x",
    ];
    for kind in
        bad.map(str::to_owned).into_iter().chain([format!("a.{}", "b".repeat(63)), "a.".repeat(5_000)])
    {
        expect_field_error(api.publish(event(&json!({"eventType": kind}))).await, "NOTIF4001", "eventType");
    }
    assert_eq!(stored(&hub, "a").await.len(), taken);
}

#[tokio::test]
async fn data_that_is_nested_too_deeply_is_refused() {
    let hub = hub().await;
    let api = Api::new(&hub).with_header("accept-language", "en");
    let with_data = |data: &str| format!("{{\"roomId\":\"a\",\"eventType\":\"a.b\",\"data\":{data}}}");
    let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    api.call("POST", PUBLISH_PATH, with_data(&nested(60))).await.expect(200);
    for depth in [70, 200, 5_000, 30_000] {
        expect_field_error(
            api.call("POST", PUBLISH_PATH, with_data(&nested(depth))).await,
            "COMMON400",
            "data",
        );
    }
    let objects = format!("{}1{}", "{\"a\":".repeat(5_000), "}".repeat(5_000));
    expect_field_error(api.call("POST", PUBLISH_PATH, with_data(&objects)).await, "COMMON400", "data");
    for data in [
        r#"{"a":"\ud800"}"#,
        r#"{"a":"\udc00"}"#,
        r#"{"\ud800x":1}"#,
        r#"{"a":["\ud83d\ud83d"]}"#,
        r#"{"a":"\udfff\ud800"}"#,
    ] {
        expect_field_error(api.call("POST", PUBLISH_PATH, with_data(data)).await, "COMMON400", "data");
    }
    // A surrogate pair is a character, and an unknown field may be nested to any depth.
    api.call("POST", PUBLISH_PATH, with_data(r#"{"a":"\ud83d\ude00"}"#)).await.expect(200);
    let unread = format!("{{\"roomId\":\"a\",\"eventType\":\"a.b\",\"data\":{{}},\"x\":{}}}", nested(500));
    api.call("POST", PUBLISH_PATH, unread).await.expect(200);
    assert_eq!(stored(&hub, "a").await.len(), 3);
}

#[tokio::test]
async fn a_body_of_64_kib_is_taken_and_one_byte_more_is_not() {
    let hub = hub().await;
    let body = |length: usize| {
        let empty = r#"{"roomId":"a","eventType":"a.b","data":{"text":""}}"#;
        empty.replace("\"\"", &format!("\"{}\"", "x".repeat(length - empty.len())))
    };
    let most = 64 * 1024;
    for api in [Api::new(&hub), Api::http2(&hub)] {
        api.call("POST", PUBLISH_PATH, body(most)).await.expect(200);
        api.call("POST", PUBLISH_PATH, body(most + 1)).await.expect_error(413, "COMMON413");
    }
    // The same body without a Content-Length.
    let head = format!(
        "POST {PUBLISH_PATH} HTTP/1.1\r\nHost: {}\r\nX-Internal-Key: local_dev_internal_key\r\nTransfer-Encoding: chunked\r\n\
         Connection: close\r\n\r\n",
        hub.addr()
    );
    for (length, status) in [(most, 200), (most + 1, 413), (most * 20, 413)] {
        let body = body(length);
        let chunks = body
            .as_bytes()
            .chunks(8_192)
            .map(|chunk| format!("{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk)));
        let request = format!("{head}{}0\r\n\r\n", chunks.collect::<String>());
        let answer = raw::answer(hub.addr(), request.as_bytes(), WAIT_TIMEOUT).await;
        assert_eq!(answer.map(|answer| answer.status), Some(status), "{length} bytes in chunks");
    }
    assert_eq!(stored(&hub, "a").await.len(), 3);
}
