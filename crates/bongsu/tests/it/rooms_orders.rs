//! Access commands of operators, disconnect and revoke: they take effect in the whole fleet at once, and a revocation
//! lasts.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

use std::time::Duration;

use bongsu_testkit::sse::{Request, Stream};
use bongsu_testkit::tokens::{self, Claims};
use bongsu_testkit::ws::{SocketEvent, WebSocket};
use bongsu_testkit::{Api, Hub, wait};
use serde_json::json;

use crate::BONGSU;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

async fn hub() -> Hub {
    Hub::builder(BONGSU).start().await
}

async fn open(request: Request) -> Stream {
    request.open().await.unwrap_or_else(|answer| panic!("no stream: {} {}", answer.status, answer.text()))
}

async fn send_access_command(api: &Api, user: &str, what: &str) {
    api.admin().post(&format!("/api/admin/users/{user}/{what}"), json!({})).await.expect(200);
}

#[tokio::test]
async fn a_revoked_person_is_disconnected_until_there_is_a_new_token() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let old = Claims::new(7).iat(tokens::now() - 60).sign();
    let request = |token: &str| Stream::request(&hub, "/api/v1/rooms/1/stream").bearer(token);
    let mut gone = open(request(&old)).await;
    let mut socket = WebSocket::try_open(&hub, "/api/v1/ws", &[("authorization", &format!("Bearer {old}"))])
        .await
        .unwrap();
    let mut stays = open(Stream::request(&hub, "/api/v1/rooms/1/stream").person(8)).await;
    let ticket = api.bearer(&old).post("/api/v1/stream-tickets", json!({})).await.expect(200);
    let ticket = ticket.result()["ticket"].as_str().unwrap().to_owned();
    send_access_command(&api, "7", "revoke").await;
    let close = gone.expect_event("system.close", WAIT_TIMEOUT).await;
    assert_eq!((&close.json()["code"], &close.json()["reconnect"]), (&json!(3502), &json!(false)));
    assert_eq!(
        socket.next(WAIT_TIMEOUT).await,
        SocketEvent::Closed(3502, "token expired or revoked".to_owned())
    );
    api.publish_to(1, "a.b", json!({"n": 1})).await;
    stays.expect_event("a.b", WAIT_TIMEOUT).await;
    assert!(gone.next_event(WAIT_TIMEOUT).await.is_none(), "the stream must end");
    for hub_restarts in 0..2 {
        for base in [hub.url(""), hub.twin().unwrap_or(&hub).url("")] {
            let api = Api::at(&base).bearer(&old);
            api.get("/api/v1/rooms/1/events?since=0-0").await.expect_error(401, "AUTH4001");
        }
        request(&old).open().await.err().unwrap().expect_error(401, "AUTH4001");
        let late = Stream::request(&hub, &format!("/api/v1/rooms/1/stream?ticket={ticket}")).open().await;
        late.err().unwrap().expect_error(401, "AUTH4001");
        if hub_restarts == 0 {
            hub.restart().await;
        }
    }
    let new = Claims::new(7).iat(tokens::now() + 1).sign();
    open(request(&new)).await;
}

#[tokio::test]
async fn a_disconnected_person_may_reconnect() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let listen = || Stream::request(&hub, "/api/v1/rooms/1/stream").person(7);
    let mut streams = [open(listen()).await, open(listen().http2()).await];
    send_access_command(&api, "7", "disconnect").await;
    for stream in &mut streams {
        let close = stream.expect_event("system.close", WAIT_TIMEOUT).await;
        assert_eq!((&close.json()["code"], &close.json()["reconnect"]), (&json!(3001), &json!(true)));
    }
    open(listen()).await;
    send_access_command(&api, "nobody", "disconnect").await;
}

#[tokio::test]
async fn access_commands_need_an_operator_and_a_valid_person() {
    let hub = hub().await;
    let api = Api::new(&hub);
    for what in ["disconnect", "revoke"] {
        let path = format!("/api/admin/users/7/{what}");
        api.anonymous().post(&path, json!({})).await.expect_error(401, "AUTH4001");
        api.post(&path, json!({})).await.expect_error(401, "AUTH4001");
        api.person(7).post(&path, json!({})).await.expect_error(403, "COMMON403");
        let admin = Claims::new(1).role("admin").sign();
        api.bearer(&admin).post(&path, json!({})).await.expect(200);
        let nobody = format!("/api/admin/users/a%20b/{what}");
        api.admin().post(&nobody, json!({})).await.expect_error(400, "COMMON400");
    }
}

#[tokio::test]
async fn a_person_never_has_more_streams_than_allowed_however_many_come_at_once() {
    let hub = hub().await;
    let other = hub.twin().unwrap_or(&hub);
    let api = Api::new(&hub);
    let opening = (0..50).map(|n| {
        let at = if n % 2 == 0 { &hub } else { other };
        open(Stream::request(at, "/api/v1/rooms/1/stream").person(7))
    });
    let mut opened = futures_util::future::join_all(opening).await;
    // An admitted stream receives this event; a refused one was closed before.
    api.publish_to(1, "a.b", json!({})).await;
    let heard = futures_util::future::join_all(opened.iter_mut().map(is_admitted)).await;
    assert_eq!(heard.iter().filter(|inside| **inside).count(), 5);
    drop(opened);
    // A connection is released a moment after its stream has ended.
    wait::until(WAIT_TIMEOUT, async || {
        let mut stream = open(Stream::request(other, "/api/v1/rooms/1/stream").person(7)).await;
        api.publish_to(1, "a.b", json!({})).await;
        is_admitted(&mut stream).await
    })
    .await;
}

/// Whether a stream receives an event that is published later; a refused stream is closed instead.
async fn is_admitted(stream: &mut Stream) -> bool {
    let event = stream.next_event(WAIT_TIMEOUT).await.expect("an event");
    assert!(["a.b", "system.close"].contains(&event.event.as_str()), "{event:?}");
    event.event == "a.b"
}
