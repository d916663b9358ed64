//! How a WebSocket ends: by the client, by the session, by a violation, or without a close frame.
//!
//! In every case the session is dropped; the close frame that the client gets differs.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bongsu_http::websocket::Output;
use socket2::SockRef;

use super::client::{CLOSE, Client, PING, TEXT, close_payload, frame};
use super::serve;
use crate::test_server::wait_until_closed;

#[tokio::test]
async fn a_close_frame_is_answered_with_its_own_code() {
    let (test_server, echo) = serve().await;
    for (payload, code) in [
        (close_payload(1000, "done"), 1000),
        (close_payload(1001, ""), 1001),
        (close_payload(4999, "봉수"), 4999),
        (Vec::new(), 1000),
    ] {
        let mut client = Client::open(test_server.addr).await;
        client.send(CLOSE, &payload).await;
        assert_eq!(client.final_close_frame().await, (code, String::new()));
        echo.until_closed().await;
    }
}

#[tokio::test]
async fn messages_after_a_close_frame_are_ignored() {
    let (test_server, echo) = serve().await;
    let mut client = Client::open(test_server.addr).await;
    let wire =
        [frame(TEXT, b"before"), frame(CLOSE, &close_payload(1000, "")), frame(TEXT, b"after")].concat();
    client.send_raw(&wire).await;
    // Output of the session may be lost, because the session is dropped and the close frame is sent next.
    let (code, _) = loop {
        match client.next_frame().await.unwrap() {
            (CLOSE, payload) => break (u16::from_be_bytes([payload[0], payload[1]]), payload),
            (_, payload) => assert_eq!(payload, b"before"),
        }
    };
    assert_eq!((code, client.next_frame().await), (1000, None));
    assert_eq!(echo.received(), ["before"]);
}

#[tokio::test]
async fn a_session_closes_with_its_code_and_awaits_the_close_frame() {
    let (test_server, echo) = serve().await;
    let mut client = Client::open(test_server.addr).await;
    echo.send_text("last words");
    echo.send(Output::Close { code: 3502, reason: "token expired or revoked" });
    echo.send_text("never sent");
    assert_eq!(client.next_text().await, "last words");
    assert_eq!(client.close_frame().await, (3502, "token expired or revoked".to_owned()));
    // The session is dropped before the client has confirmed the close frame.
    echo.until_closed().await;
    client.send(TEXT, b"on its way already").await;
    client.send(PING, b"too").await;
    let peer = echo.peer();
    test_server.round_trip().await;
    assert!(peer.bytes_written() > 0, "the server waits for the close frame");
    client.send(CLOSE, &close_payload(3502, "")).await;
    assert_eq!(client.next_frame().await, None);
    assert!(echo.received().is_empty());
    drop(client);
    wait_until_closed(&peer).await;
}

#[tokio::test]
async fn a_client_may_disconnect_instead_of_sending_a_close_frame() {
    let (test_server, echo) = serve().await;
    let mut client = Client::open(test_server.addr).await;
    echo.send(Output::Close { code: 3000, reason: "draining" });
    assert_eq!(client.close_frame().await, (3000, "draining".to_owned()));
    let peer = echo.peer();
    drop(client);
    wait_until_closed(&peer).await;
}

#[tokio::test]
async fn a_violation_closes_the_connection_with_its_code() {
    let (test_server, echo) = serve().await;
    let too_long = frame(TEXT, &vec![b'a'; 65_537]);
    let in_parts = [frame(0x01, &[b'a'; 65_536]), frame(0x80, b"a")].concat();
    for (name, wire, code) in [
        ("unmasked", vec![TEXT, 2, b'h', b'i'], 1002),
        ("reserved bits", frame(0xc1, b"hi"), 1002),
        ("unknown opcode", frame(0x83, b"hi"), 1002),
        ("nothing to continue", frame(0x80, b"hi"), 1002),
        ("long ping", frame(PING, &[0; 126]), 1002),
        ("no such code", frame(CLOSE, &close_payload(1005, "")), 1002),
        ("binary", frame(0x82, b"hi"), 1003),
        ("not UTF-8", frame(TEXT, b"\xff"), 1007),
        ("not UTF-8 over fragments", [frame(0x01, b"\xeb"), frame(0x80, b"a")].concat(), 1007),
        ("too long", too_long, 1009),
        ("too long in parts", in_parts, 1009),
    ] {
        let mut client = Client::open(test_server.addr).await;
        client.send_raw(&wire).await;
        let (got, reason) = client.final_close_frame().await;
        assert_eq!(got, code, "{name}: {reason}");
        assert!(!reason.is_empty(), "{name}");
        echo.until_closed().await;
    }
    assert!(echo.received().is_empty());
}

#[tokio::test]
async fn a_session_is_dropped_when_its_client_disconnects() {
    let (test_server, echo) = serve().await;
    for is_reset in [false, true] {
        let client = Client::open(test_server.addr).await;
        echo.until(|echo| echo.open.load(Ordering::SeqCst) == 1).await;
        if is_reset {
            SockRef::from(&client.tcp).set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(client);
        echo.until_closed().await;
        // Also in the middle of a message.
        let mut client = Client::open(test_server.addr).await;
        client.send_raw(&frame(TEXT, b"half of it")[..9]).await;
        drop(client);
        echo.until_closed().await;
    }
}

#[tokio::test]
async fn a_client_that_reads_nothing_can_be_aborted() {
    let (test_server, echo) = serve().await;
    echo.is_flooding.store(true, Ordering::SeqCst);
    let _client = Client::open(test_server.addr).await;
    test_server.wait_until_stable(|| echo.output_bytes()).await;
    let (output_bytes, peer) = (echo.output_bytes(), echo.peer());
    // Like the hub when a client stalls, the test allows a last frame and then aborts the connection.
    peer.lift_send_limit();
    echo.until(|echo| echo.output_bytes() > output_bytes).await;
    peer.abort_request();
    echo.until_closed().await;
}

#[tokio::test]
async fn a_drain_waits_for_close_frames() {
    let (test_server, echo) = serve().await;
    let mut client = Client::open(test_server.addr).await;
    echo.send_text("here");
    assert_eq!(client.next_text().await, "here");
    echo.send(Output::Close { code: 3000, reason: "draining" });
    let drained = tokio::spawn(test_server.server.drain(crate::WAIT_TIMEOUT, std::future::ready(())));
    assert_eq!(client.close_frame().await.0, 3000);
    client.send(CLOSE, &close_payload(3000, "")).await;
    assert_eq!(client.next_frame().await, None);
    assert!(drained.await.unwrap(), "a connection is still open");
}
