//! Draining: requests that arrived before the server drains are answered, also those that it has not read yet.

use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::get;
use bongsu_http::server::{Server, ShardLoop, listen};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::WAIT_TIMEOUT;
use crate::test_server::TestServer;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// Reads until the server closes the connection.
async fn read_to_end(mut connection: TcpStream) -> String {
    let mut text = String::new();
    timeout(WAIT_TIMEOUT, connection.read_to_string(&mut text))
        .await
        .expect("an end in time")
        .expect("no reset");
    text
}

async fn send_request(connection: &mut TcpStream) {
    connection.write_all(REQUEST).await.unwrap();
}

#[tokio::test]
async fn requests_in_the_backlog_are_answered() {
    let idle: ShardLoop = Arc::new(|_| Box::pin(std::future::pending()));
    let app = Router::new().route("/", get(async || "here"));
    let (server, acceptor) = Server::start(1, &app, &idle).unwrap();
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut waiting = Vec::new();
    for _ in 0..20 {
        let mut connection = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        send_request(&mut connection).await;
        waiting.push(connection);
    }
    let (drained, ()) =
        tokio::join!(server.drain(WAIT_TIMEOUT, std::future::ready(())), acceptor.run(listener));
    assert!(drained);
    for connection in waiting {
        let text = read_to_end(connection).await;
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("here"), "{text}");
    }
}

#[tokio::test]
async fn a_request_that_was_not_read_before_the_drain_is_answered() {
    let (release, released) = sync_channel::<()>(0);
    let released: Arc<Mutex<Receiver<()>>> = Arc::new(Mutex::new(released));
    let (busy, is_busy) = sync_channel(1);
    let test_server = TestServer::start(|_| {
        let hold = get(async move || {
            busy.send(()).unwrap();
            released.lock().unwrap().recv().unwrap();
        });
        Router::new().route("/hold", hold)
    })
    .await;
    let mut open = TcpStream::connect(test_server.addr).await.unwrap();
    send_request(&mut open).await;
    let mut first = [0; 12];
    open.read_exact(&mut first).await.unwrap();
    // The handler blocks the thread of the shard while a request arrives and the server begins to drain.
    let mut holding = TcpStream::connect(test_server.addr).await.unwrap();
    holding.write_all(b"GET /hold HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    tokio::task::spawn_blocking(move || is_busy.recv().unwrap()).await.unwrap();
    send_request(&mut open).await;
    let draining = tokio::spawn(test_server.server.drain(WAIT_TIMEOUT, std::future::ready(())));
    tokio::task::yield_now().await;
    tokio::task::spawn_blocking(move || release.send(()).unwrap()).await.unwrap();
    let text = read_to_end(open).await;
    assert_eq!(text.matches("here").count(), 2, "{text}");
    assert!(draining.await.unwrap());
}

#[tokio::test]
async fn connections_are_accepted_until_the_requests_in_progress_have_ended() {
    let (release, released) = tokio::sync::oneshot::channel::<()>();
    let released = Arc::new(Mutex::new(Some(released)));
    let (busy, is_busy) = tokio::sync::mpsc::channel(1);
    let test_server = TestServer::start(|_| {
        let hold = get(async move || {
            let released = released.lock().unwrap().take();
            busy.send(()).await.unwrap();
            released.unwrap().await.unwrap();
        });
        Router::new().route("/hold", hold)
    })
    .await;
    let mut is_busy = is_busy;
    let mut holding = TcpStream::connect(test_server.addr).await.unwrap();
    holding.write_all(b"GET /hold HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    is_busy.recv().await.unwrap();
    let draining = tokio::spawn(test_server.server.drain(WAIT_TIMEOUT, std::future::ready(())));
    for _ in 0..3 {
        let mut late = TcpStream::connect(test_server.addr).await.unwrap();
        send_request(&mut late).await;
        let text = read_to_end(late).await;
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("here"), "{text}");
    }
    release.send(()).unwrap();
    assert!(read_to_end(holding).await.starts_with("HTTP/1.1 200"));
    assert!(draining.await.unwrap());
    TcpStream::connect(test_server.addr).await.expect_err("the listener is closed");
}
