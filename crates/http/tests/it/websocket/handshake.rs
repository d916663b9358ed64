//! Which handshakes are accepted, and how the others are refused: by the rules of RFC 6455, of origins and of
//! credentials.

use bongsu_testkit::{Answer, raw, tokens};

use super::client::{ACCEPT, Client, KEY, handshake};
use super::serve;
use crate::WAIT_TIMEOUT;
use crate::test_server::TestServer;

async fn send_request(test_server: &TestServer, request: &str) -> Answer {
    let request = request.replacen("\r\n", "\r\nAccept-Language: en\r\n", 1);
    raw::answer(test_server.addr, request.as_bytes(), WAIT_TIMEOUT).await.expect("an answer")
}

#[tokio::test]
async fn a_handshake_is_answered_with_the_accept_key_and_cors_headers() {
    let (test_server, _) = serve().await;
    let request = handshake("/ws", "Origin: http://localhost:5173\r\n");
    let client = Client::connect(test_server.addr, &request, b"").await;
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
async fn a_handshake_may_differ_in_case_lists_and_extra_headers() {
    let (test_server, _) = serve().await;
    for (from, to) in [
        ("Upgrade: websocket", "upgrade: WebSocket"),
        ("Upgrade: websocket", "Upgrade: h2c, websocket"),
        ("keep-alive, Upgrade", "UPGRADE"),
        ("Connection: keep-alive, Upgrade", "Connection: keep-alive\r\nConnection: upgrade"),
        ("Upgrade: websocket", "Upgrade: websocket\r\nContent-Length: 0"),
        ("Upgrade: websocket", "Upgrade: websocket\r\nSec-WebSocket-Extensions: permessage-deflate"),
    ] {
        Client::connect(test_server.addr, &handshake("/ws", "").replace(from, to), b"").await;
    }
}

#[tokio::test]
async fn a_malformed_handshake_is_refused_with_the_name_of_the_header() {
    let (test_server, _) = serve().await;
    let key = format!("Sec-WebSocket-Key: {KEY}");
    for (from, to, field) in [
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
        let answer = send_request(&test_server, &request).await.expect_error(400, "COMMON400");
        assert!(answer.message().contains(field), "{field} is not named in {}", answer.message());
    }
    let head = send_request(&test_server, &handshake("/ws", "").replace("GET", "HEAD")).await;
    assert_eq!(head.status, 400);
    assert_eq!(send_request(&test_server, &handshake("/ws", "").replace("GET", "POST")).await.status, 405);
}

#[tokio::test]
async fn another_version_is_answered_with_the_supported_one() {
    let (test_server, _) = serve().await;
    let version = "Sec-WebSocket-Version: 13\r\n";
    for other in ["", "Sec-WebSocket-Version: 8\r\n", "Sec-WebSocket-Version: 13, 8\r\n"] {
        let answer = send_request(&test_server, &handshake("/ws", "").replace(version, other)).await;
        let answer = answer.expect_error(426, "COMMON426");
        assert_eq!(answer.header("sec-websocket-version"), "13");
        assert_eq!(answer.header("upgrade"), "websocket");
        assert!(answer.message().contains("sec-websocket-version"), "{}", answer.message());
    }
}

#[tokio::test]
async fn a_handshake_over_http_2_is_refused_with_a_hint_to_http_1() {
    let (test_server, _) = serve().await;
    let client = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    let url = format!("http://{}/ws", test_server.addr);
    let answer = client.get(url).header("accept-language", "en").send().await.unwrap();
    assert_eq!(answer.status(), 400);
    assert!(answer.text().await.unwrap().contains("HTTP/1.1"));
}

#[tokio::test]
async fn a_page_of_a_foreign_origin_is_refused_with_any_credential() {
    let (test_server, echo) = serve().await;
    let token = tokens::token(7);
    let ticket = async || {
        let person = bongsu_http::Person {
            id: bongsu_kernel::Id::new("7").unwrap(),
            issued_at: 0,
            expires_at: u64::MAX,
            is_admin: false,
        };
        test_server.identity.tickets().issue(person).await.unwrap().ticket
    };
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let cookie = format!("Cookie: access_token={token}\r\n");
    let unused_ticket = ticket().await;
    for origin in ["https://evil.example", "null", "http://localhost:3001", "http://hub.example.evil.example"]
    {
        let origin = format!("Origin: {origin}\r\n");
        for request in [
            handshake("/ws", &origin),
            handshake("/mine", &format!("{origin}{bearer}")),
            handshake("/mine", &format!("{origin}{cookie}")),
            handshake(&format!("/mine?ticket={unused_ticket}"), &origin),
            handshake(&format!("/mine?token={token}"), &origin),
        ] {
            send_request(&test_server, &request).await.expect_error(403, "COMMON403");
        }
    }
    // A refused handshake does not use up the ticket; it is redeemed at the end.
    for origin in ["http://localhost:3000", "http://hub.example", "https://hub.example"] {
        let origin = format!("Origin: {origin}\r\n");
        for request in [
            handshake("/mine", &format!("{origin}{bearer}")),
            handshake("/mine", &format!("{origin}{cookie}")),
            handshake(&format!("/mine?ticket={}", ticket().await), &origin),
            handshake(&format!("/mine?token={token}"), &origin),
        ] {
            let mut client = Client::connect(test_server.addr, &request, b"").await;
            assert_eq!(client.next_text().await, "hello 7");
            drop(client);
            echo.until_closed().await;
        }
    }
    let request = handshake(&format!("/mine?ticket={unused_ticket}"), "");
    assert_eq!(Client::connect(test_server.addr, &request, b"").await.next_text().await, "hello 7");
}

#[tokio::test]
async fn a_cookie_without_an_origin_is_refused() {
    let (test_server, echo) = serve().await;
    let token = tokens::token(7);
    let cookie = format!("Cookie: access_token={token}\r\n");
    send_request(&test_server, &handshake("/mine", &cookie)).await.expect_error(403, "COMMON403");
    send_request(&test_server, &handshake("/mine", "")).await.expect_error(401, "AUTH4001");
    send_request(&test_server, &handshake("/mine", "Authorization: Basic abc\r\n"))
        .await
        .expect_error(401, "AUTH4001");
    send_request(&test_server, &handshake("/mine?token=forged", "")).await.expect_error(401, "AUTH4001");
    for request in [
        handshake("/mine", &format!("Authorization: Bearer {token}\r\n")),
        handshake("/mine", &format!("Authorization: Bearer {token}\r\n{cookie}")),
        handshake(&format!("/mine?token={token}"), ""),
    ] {
        let mut client = Client::connect(test_server.addr, &request, b"").await;
        assert_eq!(client.next_text().await, "hello 7");
        drop(client);
        echo.until_closed().await;
    }
}
