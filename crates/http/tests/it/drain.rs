//! Requests that reached the machine before the server drains are answered, wherever they wait.

use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::get;
use bongsu_http::server::{Server, ShardLoop, listen};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::LONG;
use crate::serving::Serving;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// What comes until the server closes.
async fn rest(mut connection: TcpStream) -> String {
    let mut text = String::new();
    timeout(LONG, connection.read_to_string(&mut text)).await.expect("an end in time").expect("no reset");
    text
}

async fn ask(connection: &mut TcpStream) {
    connection.write_all(REQUEST).await.unwrap();
}

#[tokio::test]
async fn who_waited_in_the_backlog_is_answered() {
    let idle: ShardLoop = Arc::new(|_| Box::pin(std::future::pending()));
    let app = Router::new().route("/", get(async || "here"));
    let (server, acceptor) = Server::start(1, &app, &idle).unwrap();
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut waiting = Vec::new();
    for _ in 0..20 {
        let mut connection = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        ask(&mut connection).await;
        waiting.push(connection);
    }
    let (drained, ()) = tokio::join!(server.drain(LONG, std::future::ready(())), acceptor.run(listener));
    assert!(drained);
    for connection in waiting {
        let text = rest(connection).await;
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("here"), "{text}");
    }
}

#[tokio::test]
async fn a_request_that_came_on_an_open_connection_is_answered_though_nobody_had_looked() {
    let (free, held) = sync_channel::<()>(0);
    let held: Arc<Mutex<Receiver<()>>> = Arc::new(Mutex::new(held));
    let (busy, is_busy) = sync_channel(1);
    let serving = Serving::start(|_| {
        let hold = get(async move || {
            busy.send(()).unwrap();
            held.lock().unwrap().recv().unwrap();
        });
        Router::new().route("/hold", hold)
    })
    .await;
    let mut open = TcpStream::connect(serving.addr).await.unwrap();
    ask(&mut open).await;
    let mut first = [0; 12];
    open.read_exact(&mut first).await.unwrap();
    // The shard stands still while a request comes and the server begins to drain.
    let mut holding = TcpStream::connect(serving.addr).await.unwrap();
    holding.write_all(b"GET /hold HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    tokio::task::spawn_blocking(move || is_busy.recv().unwrap()).await.unwrap();
    ask(&mut open).await;
    let draining = tokio::spawn(serving.server.drain(LONG, std::future::ready(())));
    tokio::task::yield_now().await;
    tokio::task::spawn_blocking(move || free.send(()).unwrap()).await.unwrap();
    let text = rest(open).await;
    assert_eq!(text.matches("here").count(), 2, "{text}");
    assert!(draining.await.unwrap());
}

#[tokio::test]
async fn connections_are_accepted_until_the_requests_in_progress_have_ended() {
    let (free, held) = tokio::sync::oneshot::channel::<()>();
    let held = Arc::new(Mutex::new(Some(held)));
    let (busy, is_busy) = tokio::sync::mpsc::channel(1);
    let serving = Serving::start(|_| {
        let hold = get(async move || {
            let held = held.lock().unwrap().take();
            busy.send(()).await.unwrap();
            held.unwrap().await.unwrap();
        });
        Router::new().route("/hold", hold)
    })
    .await;
    let mut is_busy = is_busy;
    let mut holding = TcpStream::connect(serving.addr).await.unwrap();
    holding.write_all(b"GET /hold HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    is_busy.recv().await.unwrap();
    let draining = tokio::spawn(serving.server.drain(LONG, std::future::ready(())));
    for _ in 0..3 {
        let mut late = TcpStream::connect(serving.addr).await.unwrap();
        ask(&mut late).await;
        let text = rest(late).await;
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("here"), "{text}");
    }
    free.send(()).unwrap();
    assert!(rest(holding).await.starts_with("HTTP/1.1 200"));
    assert!(draining.await.unwrap());
    TcpStream::connect(serving.addr).await.expect_err("the listener is closed");
}
