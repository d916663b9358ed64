//! Who may open a WebSocket, and what others are told.
//!
//! The rules of RFC 6455 first, then those of origins and credentials.

use bongsu_testkit::{Answer, raw, tokens};

use super::client::{ACCEPT, Client, KEY, handshake};
use super::serve;
use crate::LONG;
use crate::serving::Serving;

async fn ask(serving: &Serving, request: &str) -> Answer {
    let request = request.replacen("\r\n", "\r\nAccept-Language: en\r\n", 1);
    raw::answer(serving.addr, request.as_bytes(), LONG).await.expect("an answer")
}

#[tokio::test]
async fn the_answer_has_the_proof_and_what_the_layers_add() {
    let (serving, _) = serve().await;
    let request = handshake("/ws", "Origin: http://localhost:5173\r\n");
    let client = Client::begin(serving.addr, &request, b"").await;
    let accept = format!("sec-websocket-accept: {}\r\n", ACCEPT.to_ascii_lowercase());
    for line in [
        &accept,
        "upgrade: websocket\r\n",
        "connection: upgrade\r\n",
        "access-control-allow-origin: http://localhost:5173\r\n",
        "vary: origin\r\n",
    ] {
        assert!(client.head.contains(line), "{line} is missing in {}", client.head);
    }
    for name in ["content-length", "transfer-encoding", "sec-websocket-extensions", "sec-websocket-protocol"]
    {
        assert!(!client.head.contains(name), "{name} is in {}", client.head);
    }
}

#[tokio::test]
async fn a_handshake_may_be_written_in_other_ways() {
    let (serving, _) = serve().await;
    for (from, to) in [
        ("Upgrade: websocket", "upgrade: WebSocket"),
        ("Upgrade: websocket", "Upgrade: h2c, websocket"),
        ("keep-alive, Upgrade", "UPGRADE"),
        ("Connection: keep-alive, Upgrade", "Connection: keep-alive\r\nConnection: upgrade"),
        ("Upgrade: websocket", "Upgrade: websocket\r\nContent-Length: 0"),
        ("Upgrade: websocket", "Upgrade: websocket\r\nSec-WebSocket-Extensions: permessage-deflate"),
    ] {
        Client::begin(serving.addr, &handshake("/ws", "").replace(from, to), b"").await;
    }
}

#[tokio::test]
async fn a_bad_handshake_is_told_which_header_is_wrong() {
    let (serving, _) = serve().await;
    let key = format!("Sec-WebSocket-Key: {KEY}");
    for (from, to, named) in [
        ("Connection: keep-alive, Upgrade\r\n", "", "connection"),
        ("keep-alive, Upgrade", "keep-alive", "connection"),
        ("Upgrade: websocket\r\n", "", "upgrade"),
        ("Upgrade: websocket", "Upgrade: h2c", "upgrade"),
        (&*format!("{key}\r\n"), "", "sec-websocket-key"),
        (&key, "Sec-WebSocket-Key: c2hvcnQ=", "sec-websocket-key"),
        (&key, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ", "sec-websocket-key"),
        (&key, &format!("{key}\r\n{key}"), "sec-websocket-key"),
        ("Upgrade: websocket", "Upgrade: websocket\r\nContent-Length: 2", "content-length"),
        ("Upgrade: websocket", "Upgrade: websocket\r\nTransfer-Encoding: chunked", "transfer-encoding"),
        ("HTTP/1.1", "HTTP/1.0", "HTTP/1.1"),
    ] {
        let request = handshake("/ws", "").replace(from, to);
        assert_ne!(request, handshake("/ws", ""));
        let answer = ask(&serving, &request).await.expect_error(400, "COMMON400");
        assert!(answer.message().contains(named), "{named} is not named by {}", answer.message());
    }
    let head = ask(&serving, &handshake("/ws", "").replace("GET", "HEAD")).await;
    assert_eq!(head.status, 400);
    assert_eq!(ask(&serving, &handshake("/ws", "").replace("GET", "POST")).await.status, 405);
}

#[tokio::test]
async fn another_version_is_told_which_one_is_spoken() {
    let (serving, _) = serve().await;
    let version = "Sec-WebSocket-Version: 13\r\n";
    for other in ["", "Sec-WebSocket-Version: 8\r\n", "Sec-WebSocket-Version: 13, 8\r\n"] {
        let answer = ask(&serving, &handshake("/ws", "").replace(version, other)).await;
        let answer = answer.expect_error(426, "COMMON426");
        assert_eq!(answer.header("sec-websocket-version"), "13");
        assert_eq!(answer.header("upgrade"), "websocket");
        assert!(answer.message().contains("sec-websocket-version"), "{}", answer.message());
    }
}

#[tokio::test]
async fn http_2_is_told_to_come_by_http_1() {
    let (serving, _) = serve().await;
    let client = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    let url = format!("http://{}/ws", serving.addr);
    let answer = client.get(url).header("accept-language", "en").send().await.unwrap();
    assert_eq!(answer.status(), 400);
    assert!(answer.text().await.unwrap().contains("HTTP/1.1"));
}

#[tokio::test]
async fn a_page_of_a_foreign_origin_is_refused_whatever_it_brings() {
    let (serving, notes) = serve().await;
    let token = tokens::token(7);
    let ticket = async || {
        let person = bongsu_http::Person {
            id: bongsu_kernel::Id::new("7").unwrap(),
            issued_at: 0,
            expires_at: u64::MAX,
            is_admin: false,
        };
        serving.identity.tickets().issue(person).await.unwrap().ticket
    };
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let cookie = format!("Cookie: access_token={token}\r\n");
    let spent_late = ticket().await;
    for origin in ["https://evil.example", "null", "http://localhost:3001", "http://hub.example.evil.example"]
    {
        let origin = format!("Origin: {origin}\r\n");
        for request in [
            handshake("/ws", &origin),
            handshake("/mine", &format!("{origin}{bearer}")),
            handshake("/mine", &format!("{origin}{cookie}")),
            handshake(&format!("/mine?ticket={spent_late}"), &origin),
            handshake(&format!("/mine?token={token}"), &origin),
        ] {
            ask(&serving, &request).await.expect_error(403, "COMMON403");
        }
    }
    // A refused handshake has not spent the ticket.
    for origin in ["http://localhost:3000", "http://hub.example", "https://hub.example"] {
        let origin = format!("Origin: {origin}\r\n");
        for request in [
            handshake("/mine", &format!("{origin}{bearer}")),
            handshake("/mine", &format!("{origin}{cookie}")),
            handshake(&format!("/mine?ticket={}", ticket().await), &origin),
            handshake(&format!("/mine?token={token}"), &origin),
        ] {
            let mut client = Client::begin(serving.addr, &request, b"").await;
            assert_eq!(client.text().await, "hello 7");
            drop(client);
            notes.until_left().await;
        }
    }
    let request = handshake(&format!("/mine?ticket={spent_late}"), "");
    assert_eq!(Client::begin(serving.addr, &request, b"").await.text().await, "hello 7");
}

#[tokio::test]
async fn without_an_origin_a_cookie_does_not_count() {
    let (serving, notes) = serve().await;
    let token = tokens::token(7);
    let cookie = format!("Cookie: access_token={token}\r\n");
    ask(&serving, &handshake("/mine", &cookie)).await.expect_error(403, "COMMON403");
    ask(&serving, &handshake("/mine", "")).await.expect_error(401, "AUTH4001");
    ask(&serving, &handshake("/mine", "Authorization: Basic abc\r\n")).await.expect_error(401, "AUTH4001");
    ask(&serving, &handshake("/mine?token=forged", "")).await.expect_error(401, "AUTH4001");
    for request in [
        handshake("/mine", &format!("Authorization: Bearer {token}\r\n")),
        handshake("/mine", &format!("Authorization: Bearer {token}\r\n{cookie}")),
        handshake(&format!("/mine?token={token}"), ""),
    ] {
        let mut client = Client::begin(serving.addr, &request, b"").await;
        assert_eq!(client.text().await, "hello 7");
        drop(client);
        notes.until_left().await;
    }
}
