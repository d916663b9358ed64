//! A stream takes the socket out of the hands of the HTTP parser: nothing before it, after it or beside it is lost.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic with its reason")]

use std::time::Duration;

use bongsu_testkit::tokens::token;
use bongsu_testkit::{Api, Hub, raw, wait};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::{SOON, hub, publish};
use crate::BONGSU;

fn request(method: &str, path: &str, version: &str) -> String {
    format!("{method} {path} HTTP/{version}\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n", token(7))
}

fn stream_request() -> String {
    request("GET", "/api/v1/rooms/1/stream", "1.1")
}

/// A socket that has been written to, and what it has received so far.
struct Client {
    socket: TcpStream,
    received: Vec<u8>,
}

impl Client {
    async fn new(hub: &Hub, bytes: impl AsRef<[u8]>) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 << 10).unwrap();
        let mut socket = socket.connect(hub.addr()).await.unwrap();
        socket.write_all(bytes.as_ref()).await.unwrap();
        Self { socket, received: Vec::new() }
    }

    /// Reads until this is there, and gives all that was received.
    async fn read_to(&mut self, text: &str) -> String {
        let read = async {
            let mut looked = 0;
            while !self.received[looked..].windows(text.len()).any(|window| window == text.as_bytes()) {
                looked = self.received.len().saturating_sub(text.len());
                let count = self.socket.read_buf(&mut self.received).await.unwrap();
                assert!(count > 0, "closed before {text}");
            }
        };
        tokio::time::timeout(LONG, read).await.unwrap_or_else(|_| panic!("no {text}"));
        String::from_utf8(self.received.clone()).unwrap()
    }
}

/// Many clients at once, with small buffers, on a machine that has other things to do.
const LONG: Duration = Duration::from_secs(60);
/// More than the buffers of a socket take.
const FILLED: usize = 4 << 20;

async fn nobody_listens(hub: &Hub) {
    let api = Api::new(hub);
    wait::until(SOON, async || api.anonymous().get("/health").await.result()["activeConnections"] == 0).await;
}

#[tokio::test]
async fn answers_before_the_stream_come_before_it() {
    let hub = Hub::builder(BONGSU).env("SSE_MAX_CONNECTIONS_PER_USER", 0).start().await;
    let document = Api::new(&hub).anonymous().get("/openapi.json").await.text();
    // Some of these fill their socket just when the stream's turn comes: the answers before it are then still on
    // their way out.
    let most = FILLED / document.len();
    let clients = (1..=most).map(async |many| {
        let requests = request("GET", "/openapi.json", "1.1").repeat(many) + &stream_request();
        let mut client = Client::new(&hub, requests).await;
        // The client's own pause, in which the answers fill its socket.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let received = client.read_to("\nretry: ").await;
        let at = received.rfind("HTTP/1.1 200 OK").unwrap();
        let before = raw::answers(&received.as_bytes()[..at]);
        assert_eq!(before.iter().filter(|answer| answer.text() == document).count(), many);
        let (head, body) = received[at..].split_once("\r\n\r\n").unwrap();
        assert!(head.contains("\r\ndate: ") && head.contains("\r\nconnection: close"), "{head}");
        assert!(body.starts_with("id: 0-1\nretry: "), "nothing stands between: {body}");
    });
    futures_util::future::join_all(clients).await;
}

#[tokio::test]
async fn what_a_client_says_after_its_request_changes_nothing() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let talk = stream_request() + &request("GET", "/health", "1.1") + &"x".repeat(30 << 10);
    let mut client = Client::new(&hub, talk).await;
    client.read_to("retry: ").await;
    publish(&api, "1", 1..=3).await;
    let received = client.read_to("\"n\":3").await;
    assert_eq!(received.matches("HTTP/1.1").count(), 1, "one answer");
    drop(client);
    nobody_listens(&hub).await;
}

#[tokio::test]
async fn a_client_that_does_not_stop_talking_is_let_go() {
    let hub = hub().await;
    let mut client = Client::new(&hub, stream_request()).await;
    client.read_to("retry: ").await;
    for _ in 0..100 {
        // It may be closed at any moment now.
        let _ = client.socket.write_all(&[b'x'; 1 << 10]).await;
    }
    nobody_listens(&hub).await;
}

#[tokio::test]
async fn a_client_that_goes_or_sends_its_end_is_let_go_at_once() {
    let hub = hub().await;
    let mut gone = Client::new(&hub, stream_request()).await;
    gone.read_to("retry: ").await;
    drop(gone);
    nobody_listens(&hub).await;
    let mut half = Client::new(&hub, stream_request()).await;
    half.read_to("retry: ").await;
    half.socket.shutdown().await.unwrap();
    nobody_listens(&hub).await;
    // In pieces, each of which is read before the end can be seen.
    let mut slow = Client::new(&hub, stream_request()).await;
    slow.read_to("retry: ").await;
    for _ in 0..20 {
        slow.socket.write_all(b"hello").await.unwrap();
        // The client's own pace.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    drop(slow);
    nobody_listens(&hub).await;
}

#[tokio::test]
async fn the_head_alone_opens_no_stream() {
    let hub = hub().await;
    let head = request("HEAD", "/api/v1/rooms/1/stream", "1.1");
    let answer = raw::answer(hub.addr(), head.as_bytes(), SOON).await.unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), "text/event-stream");
    nobody_listens(&hub).await;
}

#[tokio::test]
async fn an_old_client_is_served_as_well() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let mut client = Client::new(&hub, request("GET", "/api/v1/rooms/1/stream", "1.0")).await;
    client.read_to("retry: ").await;
    publish(&api, "1", 1..=2).await;
    assert!(client.read_to("\"n\":2").await.starts_with("HTTP/1.0 200 OK"));
    drop(client);
    nobody_listens(&hub).await;
}
