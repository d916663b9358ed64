//! A stream on a socket that has left hyper: its bytes, its end, and a client that is gone.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use axum::routing::get;
use axum::{Extension, Router};
use bongsu_http::Peer;
use bongsu_testkit::wait::until;
use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::LONG;
use crate::serving::{Serving, gone};

/// Sends what it has, and then ends or stays silent.
struct Pieces {
    left: VecDeque<Bytes>,
    ends: bool,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.left.pop_front() {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            None if self.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

async fn serve(ends: bool) -> (Serving, Arc<Mutex<Option<Peer>>>) {
    let last: Arc<Mutex<Option<Peer>>> = Arc::default();
    let seen = last.clone();
    let handler = async move |Extension(peer): Extension<Peer>| {
        *seen.lock().unwrap() = Some(peer);
        let left = (0..40).map(|n| Bytes::from(format!(":{n}\n").repeat(1_000))).collect();
        bongsu_http::stream::answer(Pieces { left, ends })
    };
    (Serving::start(|_| Router::new().route("/stream", get(handler))).await, last)
}

async fn open(serving: &Serving) -> TcpStream {
    let mut tcp = TcpStream::connect(serving.addr).await.unwrap();
    let request =
        b"GET /stream HTTP/1.1\r\nhost: a\r\norigin: http://localhost:3000\r\n\r\nearly and for nobody";
    tcp.write_all(request).await.unwrap();
    tcp
}

#[tokio::test]
async fn a_stream_is_its_head_its_pieces_and_the_end_of_the_connection() {
    let (serving, _) = serve(true).await;
    let mut received = String::new();
    open(&serving).await.read_to_string(&mut received).await.unwrap();
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
    assert!(body == expected, "{} of {} bytes came", body.len(), expected.len());
}

#[tokio::test]
async fn a_client_that_is_gone_takes_its_stream_with_it() {
    let (serving, last) = serve(false).await;
    let mut tcp = open(&serving).await;
    let mut first = [0; 100];
    tcp.read_exact(&mut first).await.unwrap();
    let peer = last.lock().unwrap().clone().unwrap();
    until(LONG, || async { peer.bytes_taken() > 0 }).await;
    drop(tcp);
    gone(&peer).await;
}
