//! Every fault, on connections whose both ends the test holds, and messages of a real server.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::*;
use crate::redis::{Client, Redis, Reply};
use crate::{tier, wait};

const LONG: Duration = Duration::from_secs(60);

/// A server, a proxy before it, and the means to have connections through it.
struct Wire {
    proxy: Proxy,
    listener: TcpListener,
}

impl Wire {
    async fn new() -> Self {
        let listener = TcpListener::bind(loopback(0)).await.unwrap();
        Self { proxy: Proxy::start(listener.local_addr().unwrap()).await, listener }
    }

    /// Both ends of a new connection.
    async fn open(&self) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(self.proxy.addr()).await.unwrap();
        (client, self.listener.accept().await.unwrap().0)
    }
}

/// Sends a text and makes sure that it is the next thing to arrive.
async fn pass(from: &mut TcpStream, to: &mut TcpStream, text: &str) {
    from.write_all(text.as_bytes()).await.unwrap();
    arrives(to, text).await;
}

async fn arrives(to: &mut TcpStream, text: &str) {
    let mut received = vec![0; text.len()];
    to.read_exact(&mut received).await.unwrap();
    assert_eq!(String::from_utf8(received).unwrap(), text);
}

/// Nothing is there to be read, not even an end.
fn is_silent(socket: &TcpStream) -> bool {
    socket.try_read(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[tokio::test]
async fn new_connections_go_to_the_new_address_and_open_ones_stay() {
    let (wire, other) = (Wire::new().await, TcpListener::bind(loopback(0)).await.unwrap());
    let (mut client, mut server) = wire.open().await;
    wire.proxy.set_target(other.local_addr().unwrap());
    let mut later = TcpStream::connect(wire.proxy.addr()).await.unwrap();
    pass(&mut later, &mut other.accept().await.unwrap().0, "new").await;
    pass(&mut client, &mut server, "old").await;
}

#[tokio::test]
async fn without_a_fault_bytes_and_ends_pass() {
    let wire = Wire::new().await;
    let (mut client, mut server) = wire.open().await;
    pass(&mut client, &mut server, "ping").await;
    pass(&mut server, &mut client, "pong").await;
    let large = "x".repeat(1_000_000);
    tokio::join!(async { client.write_all(large.as_bytes()).await.unwrap() }, arrives(&mut server, &large));
    assert_eq!((wire.proxy.connections(), wire.proxy.accepted()), (1, 1));
    client.shutdown().await.unwrap();
    assert_eq!(server.read(&mut [0; 1]).await.unwrap(), 0);
    // One half is closed, the other one goes on.
    pass(&mut server, &mut client, "more").await;
    drop(server);
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
    wait::until(LONG, async || wire.proxy.connections() == 0).await;

    let addr = wire.proxy.addr();
    drop(wire);
    assert_eq!(TcpStream::connect(addr).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn a_cut_closes_all_and_refuses_until_it_is_healed() {
    let wire = Wire::new().await;
    let mut pairs = [wire.open().await, wire.open().await];
    wire.proxy.cut();
    assert_eq!(wire.proxy.connections(), 0);
    for (client, server) in &mut pairs {
        assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
        assert_eq!(server.read(&mut [0; 1]).await.unwrap(), 0);
    }
    let refused = TcpStream::connect(wire.proxy.addr()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    wire.proxy.heal();
    let (mut client, mut server) = wire.open().await;
    pass(&mut client, &mut server, "again").await;
    wire.proxy.heal();
    pass(&mut server, &mut client, "still").await;
}

#[tokio::test]
async fn a_reset_is_noticed_as_one_by_both_sides() {
    let wire = Wire::new().await;
    let (mut client, mut server) = wire.open().await;
    pass(&mut client, &mut server, "before").await;
    wire.proxy.reset();
    for socket in [&mut client, &mut server] {
        assert_eq!(socket.read(&mut [0; 1]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    let (mut client, mut server) = wire.open().await;
    pass(&mut client, &mut server, "after").await;
    assert_eq!((wire.proxy.connections(), wire.proxy.accepted()), (1, 2));

    let addr = wire.proxy.addr();
    drop(wire.listener);
    // With nobody behind it a connection ends the same way, perhaps before it is noticed that there was one.
    let ended = match TcpStream::connect(addr).await {
        Ok(mut socket) => socket.read(&mut [0; 1]).await.map(drop),
        Err(error) => Err(error),
    };
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn what_is_held_back_arrives_later_and_whole() {
    let wire = Wire::new().await;
    let (mut client, mut server) = wire.open().await;
    wire.proxy.pause(Direction::ToClient);
    let large = "y".repeat(30_000_000);
    let sending = async {
        server.write_all(large.as_bytes()).await.unwrap();
        server.shutdown().await.unwrap();
    };
    let receiving = async {
        // New connections can be had meanwhile, and are held as well.
        let (mut other_client, mut other_server) = wire.open().await;
        other_server.write_all(b"held").await.unwrap();
        pass(&mut other_client, &mut other_server, "the other way").await;
        assert!(is_silent(&client) && is_silent(&other_client));
        wire.proxy.resume();
        arrives(&mut other_client, "held").await;
        arrives(&mut client, &large).await;
        assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
    };
    tokio::join!(sending, receiving);
}

#[tokio::test]
async fn a_stalled_direction_swallows_everything_and_nothing_closes() {
    let wire = Wire::new().await;
    let (mut client, mut server) = wire.open().await;
    let (mut lucky_client, mut lucky_server) = wire.open().await;
    wire.proxy.stall(Direction::ToClient);
    server.write_all(b"lost").await.unwrap();
    pass(&mut client, &mut server, "the other way").await;
    drop(server);
    // The server's kernel refuses these, and the client never hears of it.
    for _ in 0..20 {
        client.write_all(b"into the void").await.unwrap();
        tokio::task::yield_now().await;
    }
    let (mut late_client, mut late_server) = wire.open().await;
    late_server.write_all(b"lost").await.unwrap();
    pass(&mut late_client, &mut late_server, "seen").await;

    wire.proxy.heal();
    // What has lost nothing goes on; what has stays dead, and new connections work.
    pass(&mut lucky_server, &mut lucky_client, "lucky").await;
    let (mut fresh_client, mut fresh_server) = wire.open().await;
    pass(&mut fresh_server, &mut fresh_client, "fresh").await;
    assert!(is_silent(&client) && is_silent(&late_client));
    // A connection that both ends have left is gone, though one of them never heard of the other's end.
    assert_eq!(wire.proxy.connections(), 4);
    drop((client, late_client, late_server));
    wait::until(LONG, async || wire.proxy.connections() == 2).await;
}

#[tokio::test]
async fn one_peer_is_stalled_and_others_are_not() {
    let wire = Wire::new().await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.9:0".parse().unwrap()).unwrap();
    let chosen = socket.connect(wire.proxy.addr()).await.unwrap();
    let mut to_chosen = wire.listener.accept().await.unwrap().0;
    let (mut client, mut server) = wire.open().await;
    wire.proxy.stall_from("127.0.0.9".parse().unwrap(), Direction::ToClient);
    to_chosen.write_all(b"lost").await.unwrap();
    pass(&mut server, &mut client, "kept").await;
    wire.proxy.end_stall_from("127.0.0.9".parse().unwrap());
    pass(&mut server, &mut client, "kept").await;
    assert!(is_silent(&chosen));
}

#[tokio::test]
async fn a_slow_wire_takes_its_time_and_loses_nothing() {
    let wire = Wire::new().await;
    let (mut client, mut server) = wire.open().await;
    wire.proxy.slow(20_000);
    let started = Instant::now();
    pass(&mut client, &mut server, &"z".repeat(6_000)).await;
    // Three pieces, and a tenth of a second before each but the first.
    assert!(started.elapsed() >= Duration::from_millis(190));
    wire.proxy.heal();
    pass(&mut client, &mut server, &"z".repeat(6_000_000)).await;
}

/// A subscriber through the proxy, in this version of the protocol.
async fn subscriber(proxy: &Proxy, version: &str, subscribe: [&str; 2]) -> Client {
    let mut client = Client::connect(proxy.addr()).await.unwrap();
    client.call(&["HELLO", version]).await.unwrap().accepted();
    client.call(&subscribe).await.unwrap().accepted();
    client
}

async fn next_text(client: &mut Client) -> String {
    client.read().await.unwrap().items().last().unwrap().text().to_owned()
}

#[tokio::test]
async fn exactly_one_message_is_taken_out() {
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
        let say = async |text: &str| redis.command(&[publish, "room", text]).await.accepted();
        say("one").await;
        assert_eq!(next_text(&mut client).await, "one");
        proxy.drop_next_message(b"tw");
        say("three").await;
        assert_eq!(next_text(&mut client).await, "three");
        assert_eq!(proxy.dropped(), before);
        say("two").await;
        wait::until(LONG, async || proxy.dropped() == before + 1).await;
        say("twelve").await;
        assert_eq!(next_text(&mut client).await, "twelve");
        // The connection is the same one, and what it carries makes sense.
        client.send(&["PING", "hello"]).await.unwrap();
        let pong = client.read().await.unwrap();
        assert!(pong.to_string().ends_with("hello"), "{pong:?}");
    }
    assert_eq!(proxy.accepted(), kinds.len());
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
    // What only looks like one is left alone: an answer with the same words in it.
    proxy.drop_next_message(b"missed");
    let mut asking = Client::connect(proxy.addr()).await.unwrap();
    asking.call(&["SET", "key", "missed"]).await.unwrap().accepted();
    assert_eq!(asking.call(&["GET", "key"]).await.unwrap(), Reply::Text("missed".to_owned()));
    for text in ["missed", "end"] {
        redis.command(&["PUBLISH", "room", text]).await.accepted();
    }
    let mut missed = 0;
    for client in &mut clients {
        if next_text(client).await == "end" {
            missed += 1;
        } else {
            assert_eq!(next_text(client).await, "end");
        }
    }
    assert_eq!((missed, proxy.dropped()), (1, 1));
}
