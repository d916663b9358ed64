//! Tests of the clients against a server that echoes the request, over HTTP/1.1 and HTTP/2.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{iter, pending};
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::ports::loopback;
use crate::sse;

type Body = BoxBody<Bytes, Infallible>;

/// Answers `/stream` with one event and a body that never ends, and any other path with a description of the request.
async fn describe(request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let header = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let frame = |text: String| Ok::<_, Infallible>(Frame::data(Bytes::from(text)));
    if parts.uri.path() == "/stream" {
        let event = format!("data: {:?} {:?}\n\n", parts.version, header("last-event-id"));
        let body = BoxBody::new(StreamBody::new(iter([frame(event)]).chain(pending())));
        return Ok(Response::builder().header("content-type", "text/event-stream").body(body).unwrap());
    }
    let text = String::from_utf8(body.collect().await?.to_bytes().to_vec()).unwrap();
    let description = json!({
        "isSuccess": true,
        "code": "COMMON200",
        "message": "OK",
        "result": {
            "asked": format!("{} {} {:?}", parts.method, parts.uri.path(), parts.version),
            "internal": header("x-internal-key"),
            "bearer": header("authorization"),
            "type": header("content-type"),
            "body": text,
            "streamId": "7-0",
        },
    });
    Ok(Response::new(BoxBody::new(StreamBody::new(iter([frame(description.to_string())])))))
}

async fn server(http2: bool) -> SocketAddr {
    let listener = TcpListener::bind(loopback(0)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let socket = TokioIo::new(socket);
            if http2 {
                let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(http2.serve_connection(socket, service_fn(describe)));
            } else {
                let http1 = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http1.serve_connection(socket, service_fn(describe)));
            }
        }
    });
    addr
}

#[tokio::test]
async fn requests_carry_the_identity_of_the_client() {
    let api = Api::at(&format!("http://{}", server(false).await));
    let event = json!({"roomId": 1});
    let echo = api.publish(&event).await.expect(200).result().clone();
    assert_eq!(echo["asked"], "POST /api/v1/notifications/publish HTTP/1.1");
    assert_eq!((&echo["internal"], &echo["bearer"]), (&json!(INTERNAL_KEY), &Value::Null));
    assert_eq!((&echo["type"], &echo["body"]), (&json!("application/json"), &json!(event.to_string())));
    assert_eq!(api.publish_to(1, "a.b", json!({})).await, "7-0");

    let echo = api.person(7).get("/x").await.expect(200).result().clone();
    assert_eq!(echo["internal"], Value::Null);
    assert!(echo["bearer"].as_str().unwrap().starts_with("Bearer ey"));

    let echo = api.raw("PUT", "/y", &[("x-internal-key", "k")], &b"raw"[..]).await.result().clone();
    assert_eq!((&echo["asked"], &echo["internal"]), (&json!("PUT /y HTTP/1.1"), &json!("k")));
    assert_eq!((&echo["type"], &echo["body"]), (&Value::Null, &json!("raw")));
}

#[tokio::test]
async fn http2_is_used_on_request() {
    let addr = server(true).await;
    let echo = Api::http2_at(&format!("http://{addr}")).get("/z").await.expect(200).result().clone();
    assert_eq!(echo["asked"], "GET /z HTTP/2.0");
}

#[tokio::test]
async fn events_arrive_while_the_body_is_open() {
    for (http2, version) in [(false, "HTTP/1.1"), (true, "HTTP/2.0")] {
        let request = sse::Request::new(server(http2).await, "/stream").last_event_id("5-0");
        let request = if http2 { request.http2() } else { request };
        let mut stream = request.open().await.unwrap();
        let event = stream.next_event(Duration::from_secs(20)).await.unwrap();
        assert_eq!(event.data, format!("{version} Some(\"5-0\")"));
    }
}

/// A server that answers one request on each connection with `keep-alive` and resets the connection when a second
/// request arrives. A client sees the same on an old connection to a hub that was killed and restarted.
async fn one_request_per_connection() -> SocketAddr {
    let listener = TcpListener::bind(loopback(0)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4_096];
                let _ = socket.read(&mut request).await;
                let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\n{}";
                let _ = socket.write_all(answer.as_bytes()).await;
                let _ = socket.read(&mut request).await;
                let _ = socket.set_zero_linger();
            });
        }
    });
    addr
}

#[tokio::test]
async fn every_request_opens_a_new_connection() {
    let api = Api::at(&format!("http://{}", one_request_per_connection().await));
    for _ in 0..20 {
        api.get("/health").await.expect(200);
        api.person(7).post("/x", json!({})).await.expect(200);
    }
}
