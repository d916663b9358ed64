//! A stream takes its socket over from the HTTP parser: no byte before, after or beside the stream is lost.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic with its reason")]

use std::time::Duration;

use bongsu_testkit::tokens::token;
use bongsu_testkit::{Api, Hub, raw, wait};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::{WAIT_TIMEOUT, hub, publish};
use crate::BONGSU;

fn request(method: &str, path: &str, version: &str) -> String {
    format!("{method} {path} HTTP/{version}\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n", token(7))
}

fn stream_request() -> String {
    request("GET", "/api/v1/rooms/1/stream", "1.1")
}

/// A raw connection, and the bytes that it has received so far.
struct RawClient {
    socket: TcpStream,
    received: Vec<u8>,
}

impl RawClient {
    async fn new(hub: &Hub, bytes: impl AsRef<[u8]>) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 << 10).unwrap();
        let mut socket = socket.connect(hub.addr()).await.unwrap();
        socket.write_all(bytes.as_ref()).await.unwrap();
        Self { socket, received: Vec::new() }
    }

    /// Reads until this text has arrived; returns everything received.
    async fn read_to(&mut self, text: &str) -> String {
        let read = async {
            let mut looked = 0;
            while !self.received[looked..].windows(text.len()).any(|window| window == text.as_bytes()) {
                looked = self.received.len().saturating_sub(text.len());
                let count = self.socket.read_buf(&mut self.received).await.unwrap();
                assert!(count > 0, "closed before {text}");
            }
        };
        tokio::time::timeout(READ_TIMEOUT, read).await.unwrap_or_else(|_| panic!("no {text}"));
        String::from_utf8(self.received.clone()).unwrap()
    }
}

/// Allows for many clients with small buffers on a busy machine.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// More than the buffers of a socket hold.
const SOCKET_FILL_BYTES: usize = 4 << 20;

async fn wait_no_streams(hub: &Hub) {
    let api = Api::new(hub);
    wait::until(WAIT_TIMEOUT, async || {
        api.anonymous().get("/health").await.result()["activeConnections"] == 0
    })
    .await;
}

#[tokio::test]
async fn pipelined_answers_precede_the_stream() {
    let hub = Hub::builder(BONGSU).env("SSE_MAX_CONNECTIONS_PER_USER", 0).start().await;
    let document = Api::new(&hub).anonymous().get("/openapi.json").await.text();
    // With some of these numbers the answers fill the socket just when the stream's turn comes, and are then still
    // being written.
    let most = SOCKET_FILL_BYTES / document.len();
    let clients = (1..=most).map(async |many| {
        let requests = request("GET", "/openapi.json", "1.1").repeat(many) + &stream_request();
        let mut client = RawClient::new(&hub, requests).await;
        // The client's own pause, in which the answers fill its socket.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let received = client.read_to("\nretry: ").await;
        let at = received.rfind("HTTP/1.1 200 OK").unwrap();
        let before = raw::answers(&received.as_bytes()[..at]);
        assert_eq!(before.iter().filter(|answer| answer.text() == document).count(), many);
        let (head, body) = received[at..].split_once("\r\n\r\n").unwrap();
        assert!(head.contains("\r\ndate: ") && head.contains("\r\nconnection: close"), "{head}");
        assert!(body.starts_with("id: 0-1\nretry: "), "the body must be the stream: {body}");
    });
    futures_util::future::join_all(clients).await;
}

#[tokio::test]
async fn bytes_after_the_request_of_a_stream_are_ignored() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let talk = stream_request() + &request("GET", "/health", "1.1") + &"x".repeat(30 << 10);
    let mut client = RawClient::new(&hub, talk).await;
    client.read_to("retry: ").await;
    publish(&api, "1", 1..=3).await;
    let received = client.read_to("\"n\":3").await;
    assert_eq!(received.matches("HTTP/1.1").count(), 1, "only the stream is answered");
    drop(client);
    wait_no_streams(&hub).await;
}

#[tokio::test]
async fn a_client_that_keeps_sending_is_disconnected() {
    let hub = hub().await;
    let mut client = RawClient::new(&hub, stream_request()).await;
    client.read_to("retry: ").await;
    for _ in 0..100 {
        // The hub may close the connection at any moment now.
        let _ = client.socket.write_all(&[b'x'; 1 << 10]).await;
    }
    wait_no_streams(&hub).await;
}

#[tokio::test]
async fn a_client_that_closes_either_direction_is_removed_at_once() {
    let hub = hub().await;
    let mut gone = RawClient::new(&hub, stream_request()).await;
    gone.read_to("retry: ").await;
    drop(gone);
    wait_no_streams(&hub).await;
    let mut half = RawClient::new(&hub, stream_request()).await;
    half.read_to("retry: ").await;
    half.socket.shutdown().await.unwrap();
    wait_no_streams(&hub).await;
    // In pieces, each of which the hub reads before it can see the end.
    let mut slow = RawClient::new(&hub, stream_request()).await;
    slow.read_to("retry: ").await;
    for _ in 0..20 {
        slow.socket.write_all(b"hello").await.unwrap();
        // The client's own pace.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    drop(slow);
    wait_no_streams(&hub).await;
}

#[tokio::test]
async fn a_head_request_is_answered_with_headers_only() {
    let hub = hub().await;
    let head = request("HEAD", "/api/v1/rooms/1/stream", "1.1");
    let answer = raw::answer(hub.addr(), head.as_bytes(), WAIT_TIMEOUT).await.unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), "text/event-stream");
    wait_no_streams(&hub).await;
}

#[tokio::test]
async fn an_http_1_0_client_can_open_a_stream() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let mut client = RawClient::new(&hub, request("GET", "/api/v1/rooms/1/stream", "1.0")).await;
    client.read_to("retry: ").await;
    publish(&api, "1", 1..=2).await;
    assert!(client.read_to("\"n\":2").await.starts_with("HTTP/1.0 200 OK"));
    drop(client);
    wait_no_streams(&hub).await;
}
