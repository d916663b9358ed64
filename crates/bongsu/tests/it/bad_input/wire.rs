//! Malformed HTTP: endless heads, garbage, old versions, unusual methods, ambiguous lengths.

use bongsu_testkit::wait::until;
use bongsu_testkit::{Api, raw};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{KEY_HEADER, PUBLISH_PATH, WAIT_TIMEOUT, assert_unaffected, authorization, hub};

#[tokio::test]
async fn a_head_that_is_too_large_is_refused_or_cut_off() {
    let hub = hub().await;
    let large = [
        format!("GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: {}\r\n\r\n", "a".repeat(100_000)),
        format!(
            "GET /health HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
            "X-A: aaaaaaaaaaaaaaaaaaaa\r\n".repeat(5_000)
        ),
        format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(100_000)),
        format!("GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: {}", "a".repeat(20_000_000)),
        format!(
            "GET /health HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
            (0..300).map(|n| format!("X-{n}: 1\r\n")).collect::<String>()
        ),
    ];
    for request in &large {
        let answer = raw::answer(hub.addr(), request.as_bytes(), WAIT_TIMEOUT).await;
        assert!(answer.is_none_or(|answer| matches!(answer.status, 400 | 414 | 431)), "{}", &request[..30]);
    }
    // Over HTTP/2 the request fails, but the hub keeps running.
    let big = Api::http2(&hub).with_header("x-a", &"a".repeat(60_000));
    if let Ok(answer) = big.try_post("/health", json!({})).await {
        assert!(matches!(answer.status, 400 | 405 | 431), "{}", answer.status);
    }
    assert_unaffected(&hub).await;
}

#[tokio::test]
async fn bytes_that_are_not_http_close_the_connection() {
    let hub = hub().await;
    let garbage: [&[u8]; 12] = [
        b"\x00\x00\x00\x00\x00",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\n: empty\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ];
    for bytes in garbage {
        let dripped =
            raw::write_slowly(hub.addr(), bytes, bytes.len(), std::time::Duration::ZERO, WAIT_TIMEOUT).await;
        assert!(dripped.closed, "still open after {:?}", String::from_utf8_lossy(bytes));
        for answer in raw::answers(&dripped.received) {
            assert!(
                matches!(answer.status, 400 | 404 | 405 | 505),
                "{:?}: {}",
                String::from_utf8_lossy(bytes),
                answer.status
            );
        }
    }
    assert_unaffected(&hub).await;
}

#[tokio::test]
async fn a_good_request_before_garbage_is_answered_and_the_rest_is_not() {
    let hub = hub().await;
    let pipelined = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n\x00garbage\r\n\r\n";
    let received = raw::exchange(hub.addr(), pipelined.as_bytes(), WAIT_TIMEOUT).await;
    let answers: Vec<u16> = raw::answers(&received).iter().map(|answer| answer.status).collect();
    assert!(answers == [200, 200, 400] || answers == [200, 200], "{answers:?}");
    assert_unaffected(&hub).await;
}

#[tokio::test]
async fn ambiguous_body_lengths_smuggle_no_request() {
    let hub = hub().await;
    let event = r#"{"roomId":"a","eventType":"a.b","data":{}}"#;
    let hidden = format!(
        "POST {PUBLISH_PATH} HTTP/1.1\r\nHost: localhost\r\n{KEY_HEADER}\r\nContent-Length: {}\r\n\r\n{event}",
        event.len()
    );
    let ambiguous = [
        format!(
            "POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"
        ),
        format!(
            "POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: {}\r\n\r\n{hidden}",
            hidden.len()
        ),
        format!(
            "POST /health HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{hidden}"
        ),
        format!(
            "POST /health HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\nContent-Length: 4\r\n\r\n{hidden}"
        ),
    ];
    for request in &ambiguous {
        let received = raw::exchange(hub.addr(), request.as_bytes(), std::time::Duration::from_secs(6)).await;
        let answers: Vec<u16> = raw::answers(&received).iter().map(|answer| answer.status).collect();
        assert!(!answers.contains(&200), "{answers:?} to {request}");
    }
    assert_unaffected(&hub).await;
}

#[tokio::test]
async fn a_refused_body_is_answered_with_whether_the_connection_stays_open() {
    let hub = hub().await;
    let next = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    for (key, status) in [(KEY_HEADER, 413), ("X-Internal-Key: wrong", 401)] {
        let length = 300_000;
        let head = format!(
            "POST {PUBLISH_PATH} HTTP/1.1\r\nHost: localhost\r\n{key}\r\nContent-Length: {length}\r\n\r\n"
        );
        let requests = format!("{head}{}{next}", "x".repeat(length));
        let received = raw::exchange(hub.addr(), requests.as_bytes(), WAIT_TIMEOUT).await;
        let answers = raw::answers(&received);
        assert_eq!(answers.first().map(|answer| answer.status), Some(status));
        let says_close = answers[0].header("connection").eq_ignore_ascii_case("close");
        assert!(
            says_close || answers.len() == 2,
            "after {status} the connection closes without `Connection: close`"
        );
    }
}

#[tokio::test]
async fn odd_methods_and_old_versions_are_answered() {
    let hub = hub().await;
    let api = Api::new(&hub);
    for method in ["PROPFIND", "BREW", "TRACE", "PUT", "PATCH", "DELETE"] {
        api.call(method, PUBLISH_PATH, "{}").await.expect_error(405, "COMMON405");
    }
    let ask =
        async |request: String| raw::answer(hub.addr(), request.as_bytes(), WAIT_TIMEOUT).await.unwrap();
    assert_eq!(ask("GET /health HTTP/1.0\r\n\r\n".to_owned()).await.status, 200);
    assert!(matches!(
        ask("CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned()).await.status,
        400 | 404 | 405
    ));
    assert!(matches!(
        ask("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned()).await.status,
        200 | 204 | 400 | 404 | 405
    ));
    let expect = format!(
        "POST {PUBLISH_PATH} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n{KEY_HEADER}\r\n\r\n{{}}"
    );
    assert_eq!(ask(expect).await.status, 400);
    assert_unaffected(&hub).await;
}

#[tokio::test]
async fn a_stream_over_http_1_0_continues_until_the_connection_closes() {
    let hub = hub().await;
    let request =
        format!("GET /api/v1/rooms/b/stream HTTP/1.0\r\n{}\r\nLast-Event-ID: 0-0\r\n\r\n", authorization());
    Api::new(&hub).publish_to("b", "a.b", json!({"n": 1})).await;
    let mut socket = tokio::net::TcpStream::connect(hub.addr()).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&received).contains("\n\nevent: a.b\n") {
            assert!(
                socket.read_buf(&mut received).await.unwrap() > 0,
                "the connection was closed before the event"
            );
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, reading).await.expect("an event");
    drop(socket);
    let text = String::from_utf8(received).unwrap();
    assert!(text.starts_with("HTTP/1.0 200") || text.starts_with("HTTP/1.1 200"), "{text}");
    assert!(
        text.contains("\n\nevent: a.b\n") && !text.to_ascii_lowercase().contains("transfer-encoding"),
        "{text}"
    );
    until(WAIT_TIMEOUT, async || hub.metrics().await.get("sse_active_connections", &[]) == 0.0).await;
}

#[tokio::test]
async fn a_head_request_opens_no_stream() {
    let hub = hub().await;
    for api in [Api::new(&hub), Api::http2(&hub)] {
        for _ in 0..10 {
            let answer = api.person(7).call("HEAD", "/api/v1/rooms/a/stream", "").await;
            assert!(answer.bytes.is_empty() && matches!(answer.status, 200 | 405), "{}", answer.status);
        }
    }
    until(WAIT_TIMEOUT, async || hub.metrics().await.get("sse_active_connections", &[]) == 0.0).await;
    assert_unaffected(&hub).await;
}
