//! A stream on a socket that is detached from hyper: its bytes, its end, and a client that disconnects.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use axum::routing::get;
use axum::{Extension, Router};
use bongsu_http::ConnectionControl;
use bongsu_testkit::wait::until;
use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::WAIT_TIMEOUT;
use crate::test_server::{TestServer, wait_until_closed};

/// A body that sends its pieces, and then ends or stays pending.
struct Pieces {
    remaining: VecDeque<Bytes>,
    has_end: bool,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.remaining.pop_front() {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            None if self.has_end => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

async fn serve(has_end: bool) -> (TestServer, Arc<Mutex<Option<ConnectionControl>>>) {
    let last_peer: Arc<Mutex<Option<ConnectionControl>>> = Arc::default();
    let handler_peer = last_peer.clone();
    let handler = async move |Extension(peer): Extension<ConnectionControl>| {
        *handler_peer.lock().unwrap() = Some(peer);
        let remaining = (0..40).map(|n| Bytes::from(format!(":{n}\n").repeat(1_000))).collect();
        bongsu_http::stream::response(Pieces { remaining, has_end })
    };
    (TestServer::start(|_| Router::new().route("/stream", get(handler))).await, last_peer)
}

async fn open(test_server: &TestServer) -> TcpStream {
    let mut tcp = TcpStream::connect(test_server.addr).await.unwrap();
    let request =
        b"GET /stream HTTP/1.1\r\nhost: a\r\norigin: http://localhost:3000\r\n\r\nearly and discarded";
    tcp.write_all(request).await.unwrap();
    tcp
}

#[tokio::test]
async fn a_stream_has_a_head_its_bytes_and_the_end_of_the_connection() {
    let (test_server, _) = serve(true).await;
    let mut received = String::new();
    open(&test_server).await.read_to_string(&mut received).await.unwrap();
    let (head, body) = received.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    for header in [
        "content-type: text/event-stream",
        "connection: close",
        "date: ",
        "access-control-allow-origin: http://localhost:3000",
    ] {
        assert!(head.contains(header), "{header} is missing in {head}");
    }
    let expected: String = (0..40).map(|n| format!(":{n}\n").repeat(1_000)).collect();
    assert!(body == expected, "{} of {} bytes arrived", body.len(), expected.len());
}

#[tokio::test]
async fn a_stream_ends_when_its_client_disconnects() {
    let (test_server, last_peer) = serve(false).await;
    let mut tcp = open(&test_server).await;
    let mut first = [0; 100];
    tcp.read_exact(&mut first).await.unwrap();
    let peer = last_peer.lock().unwrap().clone().unwrap();
    until(WAIT_TIMEOUT, || async { peer.bytes_written() > 0 }).await;
    drop(tcp);
    wait_until_closed(&peer).await;
}
