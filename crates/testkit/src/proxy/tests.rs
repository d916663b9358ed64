//! Tests of every fault on connections of which the test has both ends, and of dropped messages of a real Redis server.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::*;
use crate::redis::{Client, Redis, Reply};
use crate::{tier, wait};

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A server and a proxy in front of it.
struct ProxiedServer {
    proxy: Proxy,
    listener: TcpListener,
}

impl ProxiedServer {
    async fn new() -> Self {
        let listener = TcpListener::bind(loopback(0)).await.unwrap();
        Self { proxy: Proxy::start(listener.local_addr().unwrap()).await, listener }
    }

    /// Opens a connection through the proxy and returns both ends.
    async fn open(&self) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(self.proxy.addr()).await.unwrap();
        (client, self.listener.accept().await.unwrap().0)
    }
}

/// Sends a text and asserts that the other end receives it next.
async fn send_and_expect(from: &mut TcpStream, to: &mut TcpStream, text: &str) {
    from.write_all(text.as_bytes()).await.unwrap();
    expect_text(to, text).await;
}

async fn expect_text(to: &mut TcpStream, text: &str) {
    let mut received = vec![0; text.len()];
    to.read_exact(&mut received).await.unwrap();
    assert_eq!(String::from_utf8(received).unwrap(), text);
}

/// Whether neither bytes nor a close can be read.
fn is_silent(socket: &TcpStream) -> bool {
    socket.try_read(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[tokio::test]
async fn new_connections_go_to_the_new_address_and_open_ones_stay() {
    let (setup, other) = (ProxiedServer::new().await, TcpListener::bind(loopback(0)).await.unwrap());
    let (mut client, mut server) = setup.open().await;
    setup.proxy.set_target(other.local_addr().unwrap());
    let mut later = TcpStream::connect(setup.proxy.addr()).await.unwrap();
    send_and_expect(&mut later, &mut other.accept().await.unwrap().0, "new").await;
    send_and_expect(&mut client, &mut server, "old").await;
}

#[tokio::test]
async fn without_a_fault_bytes_and_closes_are_forwarded() {
    let setup = ProxiedServer::new().await;
    let (mut client, mut server) = setup.open().await;
    send_and_expect(&mut client, &mut server, "ping").await;
    send_and_expect(&mut server, &mut client, "pong").await;
    let large = "x".repeat(1_000_000);
    tokio::join!(
        async { client.write_all(large.as_bytes()).await.unwrap() },
        expect_text(&mut server, &large)
    );
    assert_eq!((setup.proxy.connections(), setup.proxy.accepted_connections()), (1, 1));
    client.shutdown().await.unwrap();
    assert_eq!(server.read(&mut [0; 1]).await.unwrap(), 0);
    // One direction is closed, the other one still works.
    send_and_expect(&mut server, &mut client, "more").await;
    drop(server);
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
    wait::until(WAIT_TIMEOUT, async || setup.proxy.connections() == 0).await;

    let addr = setup.proxy.addr();
    drop(setup);
    assert_eq!(TcpStream::connect(addr).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn a_cut_closes_connections_and_refuses_new_ones_until_healed() {
    let setup = ProxiedServer::new().await;
    let mut pairs = [setup.open().await, setup.open().await];
    setup.proxy.cut();
    assert_eq!(setup.proxy.connections(), 0);
    for (client, server) in &mut pairs {
        assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
        assert_eq!(server.read(&mut [0; 1]).await.unwrap(), 0);
    }
    let refused = TcpStream::connect(setup.proxy.addr()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    setup.proxy.heal();
    let (mut client, mut server) = setup.open().await;
    send_and_expect(&mut client, &mut server, "again").await;
    setup.proxy.heal();
    send_and_expect(&mut server, &mut client, "still").await;
}

#[tokio::test]
async fn both_sides_receive_a_reset() {
    let setup = ProxiedServer::new().await;
    let (mut client, mut server) = setup.open().await;
    send_and_expect(&mut client, &mut server, "before").await;
    setup.proxy.reset();
    for socket in [&mut client, &mut server] {
        assert_eq!(socket.read(&mut [0; 1]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    let (mut client, mut server) = setup.open().await;
    send_and_expect(&mut client, &mut server, "after").await;
    assert_eq!((setup.proxy.connections(), setup.proxy.accepted_connections()), (1, 2));

    let addr = setup.proxy.addr();
    drop(setup.listener);
    // Without a server the connection is also reset, possibly before `connect` returns.
    let ended = match TcpStream::connect(addr).await {
        Ok(mut socket) => socket.read(&mut [0; 1]).await.map(drop),
        Err(error) => Err(error),
    };
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn paused_bytes_arrive_completely_after_the_pause() {
    let setup = ProxiedServer::new().await;
    let (mut client, mut server) = setup.open().await;
    setup.proxy.pause(Direction::ToClient);
    let large = "y".repeat(30_000_000);
    let sending = async {
        server.write_all(large.as_bytes()).await.unwrap();
        server.shutdown().await.unwrap();
    };
    let receiving = async {
        // New connections can be opened during the pause, and are paused as well.
        let (mut other_client, mut other_server) = setup.open().await;
        other_server.write_all(b"held").await.unwrap();
        send_and_expect(&mut other_client, &mut other_server, "the other way").await;
        assert!(is_silent(&client) && is_silent(&other_client));
        setup.proxy.resume();
        expect_text(&mut other_client, "held").await;
        expect_text(&mut client, &large).await;
        assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
    };
    tokio::join!(sending, receiving);
}

#[tokio::test]
async fn a_stalled_direction_discards_bytes_and_keeps_connections_open() {
    let setup = ProxiedServer::new().await;
    let (mut client, mut server) = setup.open().await;
    let (mut lucky_client, mut lucky_server) = setup.open().await;
    setup.proxy.stall(Direction::ToClient);
    server.write_all(b"lost").await.unwrap();
    send_and_expect(&mut client, &mut server, "the other way").await;
    drop(server);
    // The server's kernel refuses these bytes, and the client does not notice it.
    for _ in 0..20 {
        client.write_all(b"into the void").await.unwrap();
        tokio::task::yield_now().await;
    }
    let (mut late_client, mut late_server) = setup.open().await;
    late_server.write_all(b"lost").await.unwrap();
    send_and_expect(&mut late_client, &mut late_server, "seen").await;

    setup.proxy.heal();
    // A connection that has lost no bytes works again; one that has stays stalled; new connections work.
    send_and_expect(&mut lucky_server, &mut lucky_client, "lucky").await;
    let (mut fresh_client, mut fresh_server) = setup.open().await;
    send_and_expect(&mut fresh_server, &mut fresh_client, "fresh").await;
    assert!(is_silent(&client) && is_silent(&late_client));
    // A connection that both ends have closed is removed, although one end did not receive the close of the other.
    assert_eq!(setup.proxy.connections(), 4);
    drop((client, late_client, late_server));
    wait::until(WAIT_TIMEOUT, async || setup.proxy.connections() == 2).await;
}

#[tokio::test]
async fn a_stall_of_one_client_does_not_affect_others() {
    let setup = ProxiedServer::new().await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.9:0".parse().unwrap()).unwrap();
    let chosen = socket.connect(setup.proxy.addr()).await.unwrap();
    let mut to_chosen = setup.listener.accept().await.unwrap().0;
    let (mut client, mut server) = setup.open().await;
    setup.proxy.stall_from("127.0.0.9".parse().unwrap(), Direction::ToClient);
    to_chosen.write_all(b"lost").await.unwrap();
    send_and_expect(&mut server, &mut client, "kept").await;
    setup.proxy.end_stall_from("127.0.0.9".parse().unwrap());
    send_and_expect(&mut server, &mut client, "kept").await;
    assert!(is_silent(&chosen));
}

#[tokio::test]
async fn a_slow_connection_limits_the_rate_and_loses_no_bytes() {
    let setup = ProxiedServer::new().await;
    let (mut client, mut server) = setup.open().await;
    setup.proxy.slow(20_000);
    let started = Instant::now();
    send_and_expect(&mut client, &mut server, &"z".repeat(6_000)).await;
    // Three reads of 2,000 bytes, with 100 ms before the second and the third.
    assert!(started.elapsed() >= Duration::from_millis(190));
    setup.proxy.heal();
    send_and_expect(&mut client, &mut server, &"z".repeat(6_000_000)).await;
}

/// Subscribes through the proxy, with this version of the protocol.
async fn subscriber(proxy: &Proxy, version: &str, subscribe: [&str; 2]) -> Client {
    let mut client = Client::connect(proxy.addr()).await.unwrap();
    client.call(&["HELLO", version]).await.unwrap().expect_ok();
    client.call(&subscribe).await.unwrap().expect_ok();
    client
}

async fn next_text(client: &mut Client) -> String {
    client.read().await.unwrap().items().last().unwrap().text().to_owned()
}

#[tokio::test]
async fn exactly_one_message_is_dropped() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let proxy = Proxy::start(redis.addr()).await;
    let kinds = [
        ("2", ["SUBSCRIBE", "room"], "PUBLISH"),
        ("3", ["SUBSCRIBE", "room"], "PUBLISH"),
        ("2", ["SSUBSCRIBE", "room"], "SPUBLISH"),
        ("3", ["SSUBSCRIBE", "room"], "SPUBLISH"),
        ("3", ["PSUBSCRIBE", "r*"], "PUBLISH"),
    ];
    for ((version, subscribe, publish), before) in kinds.into_iter().zip(0..) {
        let mut client = subscriber(&proxy, version, subscribe).await;
        let publish_text = async |text: &str| redis.command(&[publish, "room", text]).await.expect_ok();
        publish_text("one").await;
        assert_eq!(next_text(&mut client).await, "one");
        proxy.drop_next_message(b"tw");
        publish_text("three").await;
        assert_eq!(next_text(&mut client).await, "three");
        assert_eq!(proxy.dropped_messages(), before);
        publish_text("two").await;
        wait::until(WAIT_TIMEOUT, async || proxy.dropped_messages() == before + 1).await;
        publish_text("twelve").await;
        assert_eq!(next_text(&mut client).await, "twelve");
        // The connection is still open and its protocol intact.
        client.send(&["PING", "hello"]).await.unwrap();
        let pong = client.read().await.unwrap();
        assert!(pong.to_string().ends_with("hello"), "{pong:?}");
    }
    assert_eq!(proxy.accepted_connections(), kinds.len());
}

#[tokio::test]
async fn one_of_several_subscribers_misses_a_message() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let proxy = Proxy::start(redis.addr()).await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(subscriber(&proxy, "3", ["SUBSCRIBE", "room"]).await);
    }
    // An answer that contains the same text is not a message and is not dropped.
    proxy.drop_next_message(b"missed");
    let mut other_client = Client::connect(proxy.addr()).await.unwrap();
    other_client.call(&["SET", "key", "missed"]).await.unwrap().expect_ok();
    assert_eq!(other_client.call(&["GET", "key"]).await.unwrap(), Reply::Text("missed".to_owned()));
    for text in ["missed", "end"] {
        redis.command(&["PUBLISH", "room", text]).await.expect_ok();
    }
    let mut missed = 0;
    for client in &mut clients {
        if next_text(client).await == "end" {
            missed += 1;
        } else {
            assert_eq!(next_text(client).await, "end");
        }
    }
    assert_eq!((missed, proxy.dropped_messages()), (1, 1));
}
