//! How a WebSocket ends: by the client, by the session, by something that must not be, or without a word.
//!
//! Every ending has to drop the session; what the client is told differs.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bongsu_http::websocket::Output;
use socket2::SockRef;

use super::client::{CLOSE, Client, PING, TEXT, frame, goodbye};
use super::serve;
use crate::serving::gone;

#[tokio::test]
async fn a_client_that_says_goodbye_is_answered_with_its_own_code() {
    let (serving, notes) = serve().await;
    for (payload, code) in [
        (goodbye(1000, "done"), 1000),
        (goodbye(1001, ""), 1001),
        (goodbye(4999, "봉수"), 4999),
        (Vec::new(), 1000),
    ] {
        let mut client = Client::open(serving.addr).await;
        client.send(CLOSE, &payload).await;
        assert_eq!(client.ending().await, (code, String::new()));
        notes.until_left().await;
    }
}

#[tokio::test]
async fn what_a_client_says_after_its_goodbye_is_not_heard() {
    let (serving, notes) = serve().await;
    let mut client = Client::open(serving.addr).await;
    let wire = [frame(TEXT, b"before"), frame(CLOSE, &goodbye(1000, "")), frame(TEXT, b"after")].concat();
    client.send_raw(&wire).await;
    // What the session had to say may be lost: it is dropped, and the end is the next thing to be said.
    let (code, _) = loop {
        match client.frame().await.unwrap() {
            (CLOSE, payload) => break (u16::from_be_bytes([payload[0], payload[1]]), payload),
            (_, payload) => assert_eq!(payload, b"before"),
        }
    };
    assert_eq!((code, client.frame().await), (1000, None));
    assert_eq!(notes.heard(), ["before"]);
}

#[tokio::test]
async fn a_session_says_why_it_ends_and_the_client_confirms() {
    let (serving, notes) = serve().await;
    let mut client = Client::open(serving.addr).await;
    notes.say("last words");
    notes.put(Output::Close { code: 3502, reason: "token expired or revoked" });
    notes.say("never said");
    assert_eq!(client.text().await, "last words");
    assert_eq!(client.close_frame().await, (3502, "token expired or revoked".to_owned()));
    // It is gone before the client has confirmed.
    notes.until_left().await;
    client.send(TEXT, b"on its way already").await;
    client.send(PING, b"too").await;
    let peer = notes.peer();
    serving.round().await;
    assert!(peer.bytes_taken() > 0, "the server waits for the goodbye");
    client.send(CLOSE, &goodbye(3502, "")).await;
    assert_eq!(client.frame().await, None);
    assert!(notes.heard().is_empty());
    drop(client);
    gone(&peer).await;
}

#[tokio::test]
async fn a_client_that_only_ends_the_connection_has_confirmed_too() {
    let (serving, notes) = serve().await;
    let mut client = Client::open(serving.addr).await;
    notes.put(Output::Close { code: 3000, reason: "draining" });
    assert_eq!(client.close_frame().await, (3000, "draining".to_owned()));
    let peer = notes.peer();
    drop(client);
    gone(&peer).await;
}

#[tokio::test]
async fn what_must_not_be_ends_the_connection_with_the_code_that_says_so() {
    let (serving, notes) = serve().await;
    let too_long = frame(TEXT, &vec![b'a'; 65_537]);
    let in_parts = [frame(0x01, &[b'a'; 65_536]), frame(0x80, b"a")].concat();
    for (name, wire, code) in [
        ("unmasked", vec![TEXT, 2, b'h', b'i'], 1002),
        ("reserved bits", frame(0xc1, b"hi"), 1002),
        ("unknown opcode", frame(0x83, b"hi"), 1002),
        ("nothing to continue", frame(0x80, b"hi"), 1002),
        ("long ping", frame(PING, &[0; 126]), 1002),
        ("no such code", frame(CLOSE, &goodbye(1005, "")), 1002),
        ("binary", frame(0x82, b"hi"), 1003),
        ("not UTF-8", frame(TEXT, b"\xff"), 1007),
        ("not UTF-8 over fragments", [frame(0x01, b"\xeb"), frame(0x80, b"a")].concat(), 1007),
        ("too long", too_long, 1009),
        ("too long in parts", in_parts, 1009),
    ] {
        let mut client = Client::open(serving.addr).await;
        client.send_raw(&wire).await;
        let (got, reason) = client.ending().await;
        assert_eq!(got, code, "{name}: {reason}");
        assert!(!reason.is_empty(), "{name}");
        notes.until_left().await;
    }
    assert!(notes.heard().is_empty());
}

#[tokio::test]
async fn a_client_that_vanishes_takes_its_session_with_it() {
    let (serving, notes) = serve().await;
    for resets in [false, true] {
        let client = Client::open(serving.addr).await;
        notes.until(|notes| notes.open.load(Ordering::SeqCst) == 1).await;
        if resets {
            SockRef::from(&client.tcp).set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(client);
        notes.until_left().await;
        // In the middle of a message, too.
        let mut client = Client::open(serving.addr).await;
        client.send_raw(&frame(TEXT, b"half of it")[..9]).await;
        drop(client);
        notes.until_left().await;
    }
}

#[tokio::test]
async fn a_client_that_reads_nothing_can_be_cut_off() {
    let (serving, notes) = serve().await;
    notes.floods.store(true, Ordering::SeqCst);
    let _client = Client::open(serving.addr).await;
    serving.settled(|| notes.given()).await;
    let (given, peer) = (notes.given(), notes.peer());
    // What the hub does with a stream that is too slow: room for the last words, then the end.
    peer.make_room();
    notes.until(|notes| notes.given() > given).await;
    peer.cut();
    notes.until_left().await;
}

#[tokio::test]
async fn a_drain_waits_for_the_goodbyes() {
    let (serving, notes) = serve().await;
    let mut client = Client::open(serving.addr).await;
    notes.say("here");
    assert_eq!(client.text().await, "here");
    notes.put(Output::Close { code: 3000, reason: "draining" });
    let drained = tokio::spawn(serving.server.drain(crate::LONG, std::future::ready(())));
    assert_eq!(client.close_frame().await.0, 3000);
    client.send(CLOSE, &goodbye(3000, "")).await;
    assert_eq!(client.frame().await, None);
    assert!(drained.await.unwrap(), "nothing was left open");
}
