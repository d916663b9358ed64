//! Messages on an open WebSocket, and limits while one side does not read.
//!
//! A test shows that the hub sends or buffers no more by waiting until a counter stays the same while the shard runs
//! (`TestServer::wait_until_stable`).

use std::sync::atomic::Ordering;

use bongsu_http::websocket::{self, Output};

use super::client::{Client, PING, PONG, TEXT, frame, handshake};
use super::echo::FLOOD_SIZE;
use super::serve;

#[tokio::test]
async fn messages_of_any_length_come_back_in_order() {
    let (test_server, _) = serve().await;
    let mut client = Client::open(test_server.addr).await;
    let lengths = [0, 1, 125, 126, 4_000, 65_535, 65_536];
    let texts: Vec<String> = lengths.iter().map(|length| "a".repeat(*length)).collect();
    for text in &texts {
        client.send(TEXT, text.as_bytes()).await;
        assert!(client.next_text().await == *text, "{} bytes", text.len());
    }
    // Several messages in one write.
    let wire: Vec<u8> = texts[..5].iter().flat_map(|text| frame(TEXT, text.as_bytes())).collect();
    client.send_raw(&wire).await;
    for text in &texts[..5] {
        assert!(client.next_text().await == *text, "{} bytes", text.len());
    }
}

#[tokio::test]
async fn a_message_may_come_in_fragments_with_a_ping_between() {
    let (test_server, _) = serve().await;
    let mut client = Client::open(test_server.addr).await;
    let beacon = "봉수".as_bytes();
    client.send(0x01, &beacon[..2]).await;
    client.send(0x00, &beacon[2..4]).await;
    client.send(PING, b"between").await;
    assert_eq!(client.next_frame().await, Some((PONG, b"between".to_vec())));
    client.send(0x80, &beacon[4..]).await;
    assert_eq!(client.next_text().await, "봉수");
    // Byte by byte.
    for byte in frame(TEXT, b"slowly") {
        client.send_raw(&[byte]).await;
    }
    assert_eq!(client.next_text().await, "slowly");
}

#[tokio::test]
async fn pings_work_in_both_directions() {
    let (test_server, echo) = serve().await;
    let mut client = Client::open(test_server.addr).await;
    for payload in [&b""[..], &[0xff; 125]] {
        client.send(PING, payload).await;
        assert_eq!(client.next_frame().await, Some((PONG, payload.to_vec())));
    }
    echo.send(Output::Frames(websocket::ping()));
    assert_eq!(client.next_frame().await, Some((PING, Vec::new())));
    client.send(PONG, b"").await;
    echo.until(|echo| echo.pongs.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn messages_sent_with_the_handshake_are_received() {
    let (test_server, echo) = serve().await;
    let early = [frame(TEXT, b"first"), frame(TEXT, b"second"), frame(TEXT, b"third")[..5].to_vec()].concat();
    let mut client = Client::connect(test_server.addr, &handshake("/ws", ""), &early).await;
    assert_eq!(
        (client.next_text().await, client.next_text().await),
        ("first".to_owned(), "second".to_owned())
    );
    client.send_raw(&frame(TEXT, b"third")[5..]).await;
    assert_eq!(client.next_text().await, "third");
    assert_eq!(echo.received(), ["first", "second", "third"]);
}

#[tokio::test]
async fn messages_wait_while_the_session_cannot_receive() {
    let (test_server, echo) = serve().await;
    echo.pauses_after_first.store(true, Ordering::SeqCst);
    let mut client = Client::open(test_server.addr).await;
    let wire: Vec<u8> = (0..5).flat_map(|n| frame(TEXT, format!("{n}").as_bytes())).collect();
    client.send_raw(&wire).await;
    assert_eq!(client.next_text().await, "0");
    test_server.wait_until_stable(|| echo.poll_count.load(Ordering::SeqCst)).await;
    assert_eq!(echo.received(), ["0"]);
    // The session can still send.
    echo.send_text("a moment");
    assert_eq!(client.next_text().await, "a moment");
    echo.pauses_after_first.store(false, Ordering::SeqCst);
    echo.wake();
    for n in 1..5 {
        assert_eq!(client.next_text().await, n.to_string());
    }
    test_server.wait_until_stable(|| echo.poll_count.load(Ordering::SeqCst)).await;
}

#[tokio::test]
async fn a_session_that_can_receive_again_gets_messages_without_sending() {
    let (test_server, echo) = serve().await;
    echo.pauses_after_first.store(true, Ordering::SeqCst);
    let mut client = Client::open(test_server.addr).await;
    client.send(TEXT, b"first").await;
    assert_eq!(client.next_text().await, "first");
    client.send(TEXT, b"second").await;
    test_server.wait_until_stable(|| echo.poll_count.load(Ordering::SeqCst)).await;
    echo.resumes_on_poll.store(true, Ordering::SeqCst);
    echo.wake();
    assert_eq!(client.next_text().await, "second");
}

#[tokio::test]
async fn a_client_is_held_back_while_the_session_receives_no_messages() {
    let (test_server, echo) = serve().await;
    echo.pauses_after_first.store(true, Ordering::SeqCst);
    let mut client = Client::open(test_server.addr).await;
    client.send(TEXT, b"first").await;
    assert_eq!(client.next_text().await, "first");
    let message = frame(TEXT, &[b'a'; 60_000]);
    let sent = std::sync::atomic::AtomicUsize::new(0);
    let (mut reader, mut writer) = client.tcp.split();
    let send = async {
        loop {
            sent.fetch_add(
                tokio::io::AsyncWriteExt::write(&mut writer, &message).await.unwrap(),
                Ordering::SeqCst,
            );
        }
    };
    let stable = async { test_server.wait_until_stable(|| sent.load(Ordering::SeqCst)).await };
    tokio::select! {
        () = send => {}
        held = stable => assert!(held < 16 << 20, "the server and the kernel took {held} bytes"),
        read = tokio::io::AsyncReadExt::read_u8(&mut reader) => panic!("the server sent {read:?}"),
    }
    assert_eq!(echo.received(), ["first"]);
}

#[tokio::test]
async fn a_client_that_reads_nothing_costs_little_memory_and_can_still_send() {
    let (test_server, echo) = serve().await;
    echo.is_flooding.store(true, Ordering::SeqCst);
    let mut client = Client::open(test_server.addr).await;
    let output_bytes = test_server.wait_until_stable(|| echo.output_bytes()).await;
    assert!(
        output_bytes < 4 * FLOOD_SIZE,
        "{output_bytes} bytes were produced although the client does not read"
    );
    client.send(TEXT, b"I am here").await;
    echo.until(|echo| echo.received() == ["I am here"]).await;
    assert_eq!(echo.output_bytes(), output_bytes);
    // The client gets all output when it reads.
    echo.until(|echo| echo.peer().bytes_written() > 0).await;
    let mut floods = 0;
    loop {
        let (_, payload) = client.next_frame().await.unwrap();
        if payload == b"I am here" {
            break;
        }
        assert!(payload.len() == FLOOD_SIZE && payload.iter().all(|byte| *byte == b'x'));
        floods += 1;
        assert!(floods < 100_000, "the echo of the message did not arrive");
    }
    assert!(floods * FLOOD_SIZE <= output_bytes);
    assert!(client.next_frame().await.is_some(), "the session continues to send");
}

#[tokio::test]
async fn of_many_unread_pings_only_the_latest_is_answered() {
    let (test_server, echo) = serve().await;
    echo.is_flooding.store(true, Ordering::SeqCst);
    let mut client = Client::open(test_server.addr).await;
    test_server.wait_until_stable(|| echo.output_bytes()).await;
    for n in 0..1_000 {
        client.send(PING, format!("{n}").as_bytes()).await;
    }
    // When the session has received this message, the server has read all pings.
    client.send(TEXT, b"now").await;
    echo.until(|echo| echo.received() == ["now"]).await;
    echo.is_flooding.store(false, Ordering::SeqCst);
    let (mut pongs, mut frames) = (Vec::new(), 0..100_000);
    loop {
        assert!(frames.next().is_some(), "the echo of the message did not arrive");
        match client.next_frame().await.unwrap() {
            (PONG, payload) => pongs.push(payload),
            (_, payload) if payload == b"now" => break,
            _ => {}
        }
    }
    assert_eq!(pongs, [b"999"]);
}

#[tokio::test]
async fn two_sides_that_send_without_reading_do_not_block_each_other() {
    let (test_server, echo) = serve().await;
    let mut client = Client::open(test_server.addr).await;
    let text = "a".repeat(60_000);
    // The client sends more bytes than the kernel buffers in both directions; the server echoes every message.
    for _ in 0..300 {
        client.send(TEXT, text.as_bytes()).await;
    }
    echo.until(|echo| echo.received.lock().unwrap().len() == 300).await;
    for _ in 0..300 {
        assert!(client.next_text().await == text);
    }
}
