//! Streams that are requested while Redis is unreachable: an EventSource gets a stream that asks it to reconnect,
//! other clients get a 503 with a reason; the inbox works.

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::sse::{End, Item, Stream};
use bongsu_testkit::tokens::token;
use bongsu_testkit::ws::WebSocket;
use bongsu_testkit::{Api, Hub, wait};
use futures_util::future::join_all;
use serde_json::json;

use super::{WAIT_TIMEOUT, can_run, health, hub};

const STREAM_PATHS: [&str; 3] =
    ["/api/notifications/stream", "/api/v1/rooms/42/stream", "/api/v1/stream?rooms=42,43"];

async fn open(hub: &Hub, path: &str, user: u64) -> Stream {
    let opened = Stream::request(hub, path).person(user).open().await;
    opened.unwrap_or_else(|answer| panic!("{path}: {} {}", answer.status, answer.text()))
}

/// An EventSource gives up for good on any status but 200.
async fn expect_passing_end(hub: &Hub, path: &str, user: u64) {
    let mut stream = open(hub, path, user).await;
    let items = stream.read_to_end(WAIT_TIMEOUT).await;
    assert_eq!(stream.end(), Some(End::Proper), "{path}");
    let [Item::Retry(_), Item::Event(close)] = &items[..] else { panic!("{path}: {items:?}") };
    assert_eq!((close.event.as_str(), &close.own_id), ("system.close", &None), "{path}");
    let close = close.json();
    assert!((3_000..3_500).contains(&close["code"].as_u64().unwrap()), "{path}: {close}");
    assert!(close["reconnect"] == true && close["retryMs"].as_u64().is_some(), "{path}: {close}");
}

/// Checks every kind of request of a person to a hub that has lost Redis.
async fn expect_refusals_and_an_inbox(hub: &Hub, user: u64) {
    wait::until(WAIT_TIMEOUT, async || health(hub).await["redisConnected"] == false).await;
    let api = Api::at(&hub.url(""));
    let refused = async |path: &str| {
        let refused = api.person(user).get(path).await.expect_error(503, "SSE5001");
        assert!(refused.header("retry-after").parse::<u32>().is_ok(), "{path}: {:?}", refused.headers);
    };
    let streams =
        STREAM_PATHS.map(async |path| tokio::join!(expect_passing_end(hub, path, user), refused(path)));
    join_all(streams).await;
    let bearer = format!("Bearer {}", token(user));
    match WebSocket::try_open(hub, "/api/v1/ws", &[("authorization", &bearer)]).await {
        Err(status) => assert_eq!(status, 503),
        // Without a connection limit, a socket needs Redis only when its client subscribes to a room.
        Ok(mut socket) => {
            socket.send(&json!({"op": "subscribe", "room": 42})).await;
            let refused = json!({"event": "error", "code": "SSE5001", "room": 42});
            assert_eq!(socket.message(WAIT_TIMEOUT).await, refused);
        }
    }
    let notice = json!({"eventId": format!("e{user}"), "type": "FOLLOW", "targetIds": [user]});
    api.post("/api/v1/members/notify", notice).await.expect(202);
    let inbox = api.person(user).get("/api/notifications").await.expect(200).result().clone();
    assert_eq!((&inbox["unread"], &inbox["items"][0]["id"]), (&json!(1), &json!(1)), "{inbox}");
}

#[tokio::test]
async fn streams_are_refused_temporarily_without_redis_and_the_inbox_works() {
    if !can_run(Flavour::Postgres) {
        return;
    }
    let (redis, database) = (Redis::start().await, Flavour::Postgres.database().await);
    let open_rooms = |most: u32| {
        hub(&redis, &database).env("ROOMS_MODE", "open").env("SSE_MAX_CONNECTIONS_PER_USER", most).start()
    };
    // A limit per person is counted in Redis, so the refusal comes from another place in the code than without a
    // limit.
    let (limited, unlimited) = tokio::join!(open_rooms(5), open_rooms(0));
    redis.kill9().await;
    tokio::join!(expect_refusals_and_an_inbox(&limited, 7), expect_refusals_and_an_inbox(&unlimited, 8));
    redis.restart().await;
    for (hub, user) in [(&limited, 7), (&unlimited, 8)] {
        // The only remaining finding is that their limits differ.
        wait::until(WAIT_TIMEOUT, async || {
            let degraded = health(hub).await["degraded"].clone();
            let reasons = degraded.as_array().unwrap();
            reasons.iter().all(|reason| reason.as_str().unwrap().contains("SSE_MAX_CONNECTIONS_PER_USER"))
        })
        .await;
        let mut personal = open(hub, STREAM_PATHS[0], user).await;
        assert_eq!(personal.expect_event("notification", WAIT_TIMEOUT).await.own_id.as_deref(), Some("1"));
        let mut room = open(hub, STREAM_PATHS[1], user).await;
        Api::at(&hub.url("")).publish_to(42, "a.b", json!({})).await;
        room.expect_event("a.b", WAIT_TIMEOUT).await;
    }
}
