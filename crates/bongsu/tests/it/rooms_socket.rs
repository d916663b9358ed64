//! Rooms over a WebSocket: requests, answers and refusals, and that no event is lost.

use std::time::Duration;

use bongsu_testkit::tokens::{Claims, token};
use bongsu_testkit::ws::{SocketEvent, WebSocket};
use bongsu_testkit::{Api, Hub, wait};
use serde_json::{Value, json};

use crate::BONGSU;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const SOCKET_PATH: &str = "/api/v1/ws";

async fn hub() -> Hub {
    Hub::builder(BONGSU).env("SSE_MAX_CONNECTIONS_PER_USER", 0).start().await
}

/// Subscribes to a room; returns its position.
async fn subscribe(socket: &mut WebSocket, room: Value, since: Option<&str>) -> String {
    let mut request = json!({"op": "subscribe", "room": room});
    if let Some(since) = since {
        request["since"] = since.into();
    }
    socket.send(&request).await;
    let answer = socket.message(WAIT_TIMEOUT).await;
    assert_eq!((&answer["event"], &answer["room"]), (&json!("system.subscribed"), &room), "{answer}");
    answer["id"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn events_of_subscribed_rooms_arrive_with_room_and_id() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let mut socket = WebSocket::open(&hub, SOCKET_PATH, 7).await;
    subscribe(&mut socket, json!(42), None).await;
    subscribe(&mut socket, json!("lobby"), None).await;
    let id = api.publish_to(42, "a.b", json!({"n": 1})).await;
    let event = socket.message(WAIT_TIMEOUT).await;
    assert_eq!((&event["event"], &event["id"], &event["room"]), (&json!("a.b"), &json!(id), &json!(42)));
    assert_eq!(event["data"]["n"], 1);
    assert!(event["data"]["timestamp"].is_string(), "{event}");
    api.publish_to("elsewhere", "a.b", json!({"n": 2})).await;
    api.publish_to("lobby", "a.b", json!({"n": 3})).await;
    assert_eq!(socket.message(WAIT_TIMEOUT).await["data"]["n"], 3);
    socket.send(&json!({"op": "unsubscribe", "room": 42})).await;
    assert_eq!(socket.message(WAIT_TIMEOUT).await, json!({"event": "system.unsubscribed", "room": 42}));
    api.publish_to(42, "a.b", json!({"n": 4})).await;
    api.publish_to("lobby", "a.b", json!({"n": 5})).await;
    assert_eq!(socket.message(WAIT_TIMEOUT).await["data"]["n"], 5, "room 42 is unsubscribed");
}

#[tokio::test]
async fn a_client_comes_back_to_where_it_was() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let mut socket = WebSocket::open(&hub, SOCKET_PATH, 7).await;
    let before = subscribe(&mut socket, json!(1), None).await;
    drop(socket);
    for n in 1..=300 {
        api.publish_to(1, "a.b", json!({"n": n})).await;
    }
    let mut back = WebSocket::open(&hub, SOCKET_PATH, 7).await;
    subscribe(&mut back, json!(1), Some(&before)).await;
    for n in 1..=300 {
        assert_eq!(back.message(WAIT_TIMEOUT).await["data"]["n"], n);
    }
    subscribe(&mut back, json!(1), Some("12-3")).await;
    assert_eq!(back.message(WAIT_TIMEOUT).await["data"]["reason"], "trimmed", "older than the log");
}

#[tokio::test]
async fn an_invalid_message_is_refused_and_the_connection_stays_open() {
    let hub = hub().await;
    let mut socket = WebSocket::open(&hub, SOCKET_PATH, 7).await;
    for text in [
        "",
        "x",
        "[]",
        "{}",
        r#"{"op":"dance","room":1}"#,
        r#"{"op":"subscribe"}"#,
        r#"{"op":"subscribe","room":"a b"}"#,
    ] {
        socket.send_text(text).await;
        assert_eq!(
            socket.message(WAIT_TIMEOUT).await,
            json!({"event": "error", "code": "COMMON400", "room": null}),
            "{text}"
        );
    }
    for since in [json!("soon"), json!(5)] {
        socket.send(&json!({"op": "subscribe", "room": 1, "since": since})).await;
        assert_eq!(
            socket.message(WAIT_TIMEOUT).await,
            json!({"event": "error", "code": "COMMON400", "room": 1})
        );
    }
    socket.send(&json!({"op": "unsubscribe", "room": 1})).await;
    assert_eq!(socket.message(WAIT_TIMEOUT).await, json!({"event": "system.unsubscribed", "room": 1}));
    for room in 0..32 {
        subscribe(&mut socket, json!(room), None).await;
    }
    socket.send(&json!({"op": "subscribe", "room": "one more"})).await;
    assert_eq!(socket.message(WAIT_TIMEOUT).await["code"], "COMMON400");
    socket.send(&json!({"op": "subscribe", "room": "one-more"})).await;
    assert_eq!(
        socket.message(WAIT_TIMEOUT).await,
        json!({"event": "error", "code": "COMMON429", "room": "one-more"})
    );
    subscribe(&mut socket, json!(31), None).await;
}

#[tokio::test]
async fn callers_without_access_are_refused() {
    let hub = hub().await;
    assert_eq!(WebSocket::try_open(&hub, SOCKET_PATH, &[]).await.err(), Some(401));
    let bearer = format!("Bearer {}", token(7));
    let foreign = [("authorization", bearer.as_str()), ("origin", "https://evil.example")];
    assert_eq!(WebSocket::try_open(&hub, SOCKET_PATH, &foreign).await.err(), Some(403));
    let cookie = format!("access_token={}", token(7));
    assert_eq!(WebSocket::try_open(&hub, SOCKET_PATH, &[("cookie", &cookie)]).await.err(), Some(403));
    let ours = [("cookie", cookie.as_str()), ("origin", "http://localhost:3000")];
    assert!(WebSocket::try_open(&hub, SOCKET_PATH, &ours).await.is_ok());
    let ticket = Api::new(&hub).person(7).post("/api/v1/stream-tickets", json!({})).await;
    let ticket = ticket.expect(200).result()["ticket"].as_str().unwrap().to_owned();
    let path = format!("{SOCKET_PATH}?ticket={ticket}");
    assert!(WebSocket::try_open(&hub, &path, &[]).await.is_ok());
    assert_eq!(WebSocket::try_open(&hub, &path, &[]).await.err(), Some(401), "a ticket is valid once");
    Api::new(&hub).person(7).get(SOCKET_PATH).await.expect_error(400, "COMMON400");
}

#[tokio::test]
async fn a_token_in_the_url_opens_a_websocket() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let open =
        async |token: &str| WebSocket::try_open(&hub, &format!("{SOCKET_PATH}?token={token}"), &[]).await;
    let mut socket = open(&token("anna")).await.ok().unwrap();
    subscribe(&mut socket, json!(1), None).await;
    api.publish_to(1, "a.b", json!({"n": 1})).await;
    assert_eq!(socket.message(WAIT_TIMEOUT).await["data"]["n"], 1);
    let online = async || {
        let answer = api.person("bert").get("/api/v1/rooms/1/presence").await.expect(200);
        answer.result()["onlineUsers"].as_array().unwrap().clone()
    };
    wait::until(WAIT_TIMEOUT, async || !online().await.is_empty()).await;
    let users: Vec<Value> = online().await.iter().map(|user| user["userId"].clone()).collect();
    assert_eq!(users, ["anna"], "the person of the socket");
    let good = Claims::new("anna");
    for (wrong, why) in [
        (good.sign_with("another secret"), "forged"),
        (good.unsigned(), "not signed"),
        (good.clone().expires_in(-600).sign(), "expired"),
        (good.clone().token_type("refresh").sign(), "of another type"),
        (String::new(), "empty"),
        ("no-token".to_owned(), "malformed"),
    ] {
        assert_eq!(open(&wrong).await.err(), Some(401), "a token that is {why}");
    }
    // A header takes precedence, and a malformed header is refused although the address has a valid token.
    let path = format!("{SOCKET_PATH}?token={}", token("anna"));
    let malformed = [("authorization", "Bearer x.y.z")];
    assert_eq!(WebSocket::try_open(&hub, &path, &malformed).await.err(), Some(401));
    // The socket is closed when the token that opened it expires.
    let mut expiring = open(&good.expires_in(6).sign()).await.ok().unwrap();
    assert_eq!(
        expiring.next(WAIT_TIMEOUT).await,
        SocketEvent::Closed(3502, "token expired or revoked".to_owned())
    );
}

#[tokio::test]
async fn close_codes_name_the_reason() {
    let hub = Hub::builder(BONGSU).movable_clock().env("SSE_MAX_CONNECTIONS_PER_USER", 0).start().await;
    let bearer = format!("Bearer {}", Claims::new(7).expires_in(600).sign());
    let mut expiring = WebSocket::try_open(&hub, SOCKET_PATH, &[("authorization", &bearer)])
        .await
        .expect("the token is still valid");
    hub.move_clock(Duration::from_secs(600)).await;
    assert_eq!(
        expiring.next(WAIT_TIMEOUT).await,
        SocketEvent::Closed(3502, "token expired or revoked".to_owned())
    );
    let mut drained = WebSocket::open(&hub, SOCKET_PATH, 7).await;
    subscribe(&mut drained, json!(1), None).await;
    let (_, end) = tokio::join!(hub.terminate(), drained.next(WAIT_TIMEOUT));
    assert_eq!(end, SocketEvent::Closed(3000, "draining".to_owned()));
}

#[tokio::test]
async fn a_member_who_is_removed_loses_that_room_and_keeps_the_others() {
    let hub = Hub::builder(BONGSU).alone().env("ROOMS_MODE", "registered").start().await;
    let api = Api::new(&hub);
    for path in ["1", "2", "1/members/7", "2/members/7", "3"] {
        api.call("PUT", &format!("/api/v1/rooms/{path}"), "").await.expect(200);
    }
    let mut socket = WebSocket::open(&hub, SOCKET_PATH, 7).await;
    for (room, code) in [(json!(3), "COMMON403"), (json!(4), "ROOM4041")] {
        socket.send(&json!({"op": "subscribe", "room": room})).await;
        assert_eq!(socket.message(WAIT_TIMEOUT).await, json!({"event": "error", "code": code, "room": room}));
    }
    subscribe(&mut socket, json!(1), None).await;
    subscribe(&mut socket, json!(2), None).await;
    api.call("DELETE", "/api/v1/rooms/1/members/7", "").await.expect(200);
    let removed = socket.message(WAIT_TIMEOUT).await;
    assert_eq!(
        removed,
        json!({"event": "system.removed", "room": 1, "data": {"roomId": 1}}),
        "a removal has no id"
    );
    api.publish_to(1, "a.b", json!({"n": 1})).await;
    api.publish_to(2, "a.b", json!({"n": 2})).await;
    assert_eq!(socket.message(WAIT_TIMEOUT).await["room"], 2);
}

#[tokio::test]
async fn a_disconnected_client_is_noticed() {
    let hub = hub().await;
    let mut socket = WebSocket::open(&hub, SOCKET_PATH, 7).await;
    subscribe(&mut socket, json!(1), None).await;
    drop(socket);
    let health = Api::at(&hub.url("")).anonymous();
    wait::until(WAIT_TIMEOUT, async || health.get("/health").await.result()["activeConnections"] == 0).await;
}
