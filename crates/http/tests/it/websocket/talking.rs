//! What is said on an open WebSocket, and what a side costs that does not listen.
//!
//! "Not more than that" is shown by numbers that come to rest while the shard goes on (`Serving::settled`).

use std::sync::atomic::Ordering;

use bongsu_http::websocket::{self, Output};

use super::client::{Client, PING, PONG, TEXT, frame, handshake};
use super::notes::FLOOD;
use super::serve;

#[tokio::test]
async fn messages_of_any_length_come_back_in_order() {
    let (serving, _) = serve().await;
    let mut client = Client::open(serving.addr).await;
    let lengths = [0, 1, 125, 126, 4_000, 65_535, 65_536];
    let texts: Vec<String> = lengths.iter().map(|length| "a".repeat(*length)).collect();
    for text in &texts {
        client.send(TEXT, text.as_bytes()).await;
        assert!(client.text().await == *text, "{} bytes", text.len());
    }
    // All at once, in one piece.
    let wire: Vec<u8> = texts[..5].iter().flat_map(|text| frame(TEXT, text.as_bytes())).collect();
    client.send_raw(&wire).await;
    for text in &texts[..5] {
        assert!(client.text().await == *text, "{} bytes", text.len());
    }
}

#[tokio::test]
async fn a_message_may_come_in_fragments_with_a_ping_between() {
    let (serving, _) = serve().await;
    let mut client = Client::open(serving.addr).await;
    let beacon = "봉수".as_bytes();
    client.send(0x01, &beacon[..2]).await;
    client.send(0x00, &beacon[2..4]).await;
    client.send(PING, b"between").await;
    assert_eq!(client.frame().await, Some((PONG, b"between".to_vec())));
    client.send(0x80, &beacon[4..]).await;
    assert_eq!(client.text().await, "봉수");
    // Byte by byte.
    for byte in frame(TEXT, b"slowly") {
        client.send_raw(&[byte]).await;
    }
    assert_eq!(client.text().await, "slowly");
}

#[tokio::test]
async fn pings_are_answered_both_ways() {
    let (serving, notes) = serve().await;
    let mut client = Client::open(serving.addr).await;
    for payload in [&b""[..], &[0xff; 125]] {
        client.send(PING, payload).await;
        assert_eq!(client.frame().await, Some((PONG, payload.to_vec())));
    }
    notes.put(Output::Frames(websocket::ping()));
    assert_eq!(client.frame().await, Some((PING, Vec::new())));
    client.send(PONG, b"").await;
    notes.until(|notes| notes.pongs.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn what_was_sent_too_early_is_heard() {
    let (serving, notes) = serve().await;
    let early = [frame(TEXT, b"first"), frame(TEXT, b"second"), frame(TEXT, b"third")[..5].to_vec()].concat();
    let mut client = Client::begin(serving.addr, &handshake("/ws", ""), &early).await;
    assert_eq!((client.text().await, client.text().await), ("first".to_owned(), "second".to_owned()));
    client.send_raw(&frame(TEXT, b"third")[5..]).await;
    assert_eq!(client.text().await, "third");
    assert_eq!(notes.heard(), ["first", "second", "third"]);
}

#[tokio::test]
async fn a_session_that_cannot_hear_lets_its_client_wait() {
    let (serving, notes) = serve().await;
    notes.hesitates.store(true, Ordering::SeqCst);
    let mut client = Client::open(serving.addr).await;
    let wire: Vec<u8> = (0..5).flat_map(|n| frame(TEXT, format!("{n}").as_bytes())).collect();
    client.send_raw(&wire).await;
    assert_eq!(client.text().await, "0");
    serving.settled(|| notes.asked.load(Ordering::SeqCst)).await;
    assert_eq!(notes.heard(), ["0"]);
    // It may still speak.
    notes.say("a moment");
    assert_eq!(client.text().await, "a moment");
    notes.hesitates.store(false, Ordering::SeqCst);
    notes.wake();
    for n in 1..5 {
        assert_eq!(client.text().await, n.to_string());
    }
    serving.settled(|| notes.asked.load(Ordering::SeqCst)).await;
}

#[tokio::test]
async fn a_session_that_can_hear_again_is_heard_though_it_has_nothing_to_say() {
    let (serving, notes) = serve().await;
    notes.hesitates.store(true, Ordering::SeqCst);
    let mut client = Client::open(serving.addr).await;
    client.send(TEXT, b"first").await;
    assert_eq!(client.text().await, "first");
    client.send(TEXT, b"second").await;
    serving.settled(|| notes.asked.load(Ordering::SeqCst)).await;
    notes.recovers.store(true, Ordering::SeqCst);
    notes.wake();
    assert_eq!(client.text().await, "second");
}

#[tokio::test]
async fn a_client_that_sends_without_end_is_held_back_while_nobody_hears() {
    let (serving, notes) = serve().await;
    notes.hesitates.store(true, Ordering::SeqCst);
    let mut client = Client::open(serving.addr).await;
    client.send(TEXT, b"first").await;
    assert_eq!(client.text().await, "first");
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
    let settled = async { serving.settled(|| sent.load(Ordering::SeqCst)).await };
    tokio::select! {
        () = send => {}
        held = settled => assert!(held < 16 << 20, "{held} bytes went somewhere"),
        read = tokio::io::AsyncReadExt::read_u8(&mut reader) => panic!("{read:?} was said"),
    }
    assert_eq!(notes.heard(), ["first"]);
}

#[tokio::test]
async fn a_client_that_reads_nothing_costs_little_and_is_still_heard() {
    let (serving, notes) = serve().await;
    notes.floods.store(true, Ordering::SeqCst);
    let mut client = Client::open(serving.addr).await;
    let given = serving.settled(|| notes.given()).await;
    assert!(given < 4 * FLOOD, "{given} bytes were asked for, and nobody reads them");
    client.send(TEXT, b"I am here").await;
    notes.until(|notes| notes.heard() == ["I am here"]).await;
    assert_eq!(notes.given(), given);
    // All of it comes when it is read.
    notes.until(|notes| notes.peer().bytes_taken() > 0).await;
    let mut floods = 0;
    loop {
        let (_, payload) = client.frame().await.unwrap();
        if payload == b"I am here" {
            break;
        }
        assert!(payload.len() == FLOOD && payload.iter().all(|byte| *byte == b'x'));
        floods += 1;
        assert!(floods < 100_000, "what was said is not answered among all that comes");
    }
    assert!(floods * FLOOD <= given);
    assert!(client.frame().await.is_some(), "and it goes on");
}

#[tokio::test]
async fn a_client_that_only_pings_costs_one_answer() {
    let (serving, notes) = serve().await;
    notes.floods.store(true, Ordering::SeqCst);
    let mut client = Client::open(serving.addr).await;
    serving.settled(|| notes.given()).await;
    for n in 0..1_000 {
        client.send(PING, format!("{n}").as_bytes()).await;
    }
    // Whoever hears this has heard all pings.
    client.send(TEXT, b"now").await;
    notes.until(|notes| notes.heard() == ["now"]).await;
    notes.floods.store(false, Ordering::SeqCst);
    let (mut pongs, mut frames) = (Vec::new(), 0..100_000);
    loop {
        assert!(frames.next().is_some(), "what was said is not answered among all that comes");
        match client.frame().await.unwrap() {
            (PONG, payload) => pongs.push(payload),
            (_, payload) if payload == b"now" => break,
            _ => {}
        }
    }
    assert_eq!(pongs, [b"999"]);
}

#[tokio::test]
async fn two_that_both_talk_without_listening_do_not_block_each_other() {
    let (serving, notes) = serve().await;
    let mut client = Client::open(serving.addr).await;
    let text = "a".repeat(60_000);
    // Far more than the kernel holds in both directions, and every message comes back.
    for _ in 0..300 {
        client.send(TEXT, text.as_bytes()).await;
    }
    notes.until(|notes| notes.heard.lock().unwrap().len() == 300).await;
    for _ in 0..300 {
        assert!(client.text().await == text);
    }
}
