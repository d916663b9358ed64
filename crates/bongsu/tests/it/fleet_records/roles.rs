//! The roles `api` and `worker` in separate processes.

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Api, wait};
use serde_json::json;

use super::{WAIT_TIMEOUT, can_run, hub};

#[tokio::test]
async fn a_worker_process_handles_what_an_api_process_accepts() {
    if !can_run(Flavour::Postgres) {
        return;
    }
    let (redis, database) = (Redis::start().await, Flavour::Postgres.database().await);
    let start = |roles: &str| {
        let hub = hub(&redis, &database).env("ROOMS_MODE", "open").env("ROLES", roles);
        hub.env("OUTBOX_RELAY", "task.added.v1=room").start()
    };
    let api = start("api").await;
    let client = Api::new(&api);
    let mut personal = Stream::request(&api, "/api/notifications/stream").person(7).open().await.unwrap();
    let mut room = Stream::request(&api, "/api/v1/rooms/42/stream").person(7).open().await.unwrap();
    let event = json!({"roomId": 42, "eventType": "a.b", "data": {"n": 1}, "recipients": [7]});
    client.publish(&event).await.expect(200);
    assert_eq!(room.expect_event("a.b", WAIT_TIMEOUT).await.json()["n"], 1);
    let row = "INSERT INTO outbox_events (event_type, payload, target_event_id) VALUES ('task.added.v1', '{\"n\": 2}', '42')";
    Flavour::Postgres.shared().await.execute(Server::database_name(&database), row);
    let unread =
        async || client.person(7).get("/api/v1/notifications/unread").await.expect(200).result().clone();
    assert_eq!(unread().await["count"], 0, "no worker runs yet");

    let worker = start("worker").await;
    assert_eq!(personal.expect_event("notification", WAIT_TIMEOUT).await.json()["unread"], 1);
    assert_eq!(room.expect_event("task.added.v1", WAIT_TIMEOUT).await.json()["n"], 2);
    wait::until(WAIT_TIMEOUT, async || unread().await["count"] == 1).await;
    let worker = Api::new(&worker);
    worker.get("/health").await.expect(200);
    worker.get("/ready").await.expect(200);
    worker.publish(&event).await.expect_error(404, "COMMON404");
}
