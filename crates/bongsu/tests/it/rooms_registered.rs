//! Registered rooms and members: who may read, who is notified, and that a removal takes effect at its place in the
//! order of the room.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

mod membership;
pub(crate) mod recipients;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bongsu_testkit::sse::{Request, Stream};
use bongsu_testkit::{Api, Hub, proof, tier, wait};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::BONGSU;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

async fn registered() -> (Hub, Api) {
    let hub = Hub::builder(BONGSU)
        .alone()
        .env("ROOMS_MODE", "registered")
        .env("SSE_MAX_CONNECTIONS_PER_USER", 0)
        .start()
        .await;
    let api = Api::new(&hub);
    (hub, api)
}

fn stream_request(hub: &Hub, room: &str, user: u64) -> Request {
    Stream::request(hub, &format!("/api/v1/rooms/{room}/stream")).person(user)
}

async fn open(request: Request) -> Stream {
    request.open().await.unwrap_or_else(|answer| panic!("no stream: {} {}", answer.status, answer.text()))
}

async fn put(api: &Api, path: &str) {
    api.call("PUT", path, "").await.expect(200);
}

async fn delete(api: &Api, path: &str) {
    api.call("DELETE", path, "").await.expect(200);
}

#[tokio::test]
async fn only_members_of_a_registered_room_get_in() {
    let (hub, api) = registered().await;
    let person = api.person(7);
    person.get("/api/v1/rooms/42/events?since=0-0").await.expect_error(404, "ROOM4041");
    api.publish(&json!({"roomId": 42, "eventType": "a.b", "data": {}})).await.expect_error(404, "ROOM4041");
    api.call("PUT", "/api/v1/rooms/42/members/7", "").await.expect_error(404, "ROOM4041");
    put(&api, "/api/v1/rooms/42").await;
    put(&api, "/api/v1/rooms/42").await;
    let refused = stream_request(&hub, "42", 7).open().await.err().unwrap();
    refused.expect_error(403, "COMMON403");
    person.get("/api/v1/rooms/42/events?since=0-0").await.expect_error(403, "COMMON403");
    put(&api, "/api/v1/rooms/42/members/7").await;
    put(&api, "/api/v1/rooms/42/members/7").await;
    let mut stream = open(stream_request(&hub, "42", 7)).await;
    api.publish_to(42, "a.b", json!({"n": 1})).await;
    stream.expect_event("a.b", WAIT_TIMEOUT).await;
    person.get("/api/v1/rooms/42/events?since=0-0").await.expect(200);
    hub.restart().await;
    person.get("/api/v1/rooms/42/events?since=0-0").await.expect(200);
    let many = Stream::request(&hub, "/api/v1/stream?rooms=42,43").person(7).open().await.err().unwrap();
    many.expect_error(404, "ROOM4041");
    put(&api, "/api/v1/rooms/43").await;
    let many = Stream::request(&hub, "/api/v1/stream?rooms=42,43").person(7).open().await.err().unwrap();
    many.expect_error(403, "COMMON403");
}

#[tokio::test]
async fn invalid_ids_and_unauthorized_callers_change_nothing() {
    let (_hub, api) = registered().await;
    for path in ["/api/v1/rooms/a%20b", "/api/v1/rooms/1/members/%00"] {
        for method in ["PUT", "DELETE"] {
            api.call(method, path, "").await.expect_error(400, "COMMON400");
            api.person(7).call(method, path, "").await.expect_error(401, "AUTH4001");
        }
    }
    api.anonymous().call("PUT", "/api/v1/rooms/1", "").await.expect_error(401, "AUTH4001");
    api.person(7).get("/api/v1/rooms/1/events?since=0-0").await.expect_error(404, "ROOM4041");
    delete(&api, "/api/v1/rooms/1").await;
    api.call("DELETE", "/api/v1/rooms/1/members/7", "").await.expect_error(404, "ROOM4041");
}

#[tokio::test]
async fn a_removed_member_is_closed_for_good_and_may_return_when_added_again() {
    let (hub, api) = registered().await;
    put(&api, "/api/v1/rooms/42").await;
    for user in [7, 8] {
        put(&api, &format!("/api/v1/rooms/42/members/{user}")).await;
    }
    let (mut gone, mut stays) =
        (open(stream_request(&hub, "42", 7)).await, open(stream_request(&hub, "42", 8)).await);
    let mut many = {
        put(&api, "/api/v1/rooms/43").await;
        put(&api, "/api/v1/rooms/43/members/7").await;
        open(Stream::request(&hub, "/api/v1/stream?rooms=42,43").person(7)).await
    };
    api.publish_to(42, "a.b", json!({"n": 1})).await;
    delete(&api, "/api/v1/rooms/42/members/7").await;
    api.publish_to(42, "a.b", json!({"n": 2})).await;
    assert_eq!(gone.expect_event("a.b", WAIT_TIMEOUT).await.json()["n"], 1);
    let close = gone.expect_event("system.close", WAIT_TIMEOUT).await;
    assert_eq!((&close.json()["code"], &close.json()["reconnect"]), (&json!(3501), &json!(false)));
    let ended = gone.last_event_id().to_owned();
    assert!(ended.starts_with("end.3501."), "{ended}");
    let back = stream_request(&hub, "42", 7).last_event_id(&ended).open().await.err().unwrap();
    assert_eq!(back.status, 204);
    stream_request(&hub, "42", 7).open().await.err().unwrap().expect_error(403, "COMMON403");
    for n in 1..=2 {
        assert_eq!(stays.expect_event("a.b", WAIT_TIMEOUT).await.json()["n"], n, "others must miss no event");
    }
    assert_eq!(many.expect_event("a.b", WAIT_TIMEOUT).await.json()["n"], 1);
    assert_eq!(many.expect_event("system.removed", WAIT_TIMEOUT).await.json(), json!({"roomId": 42}));
    api.publish_to(43, "a.b", json!({"n": 3})).await;
    assert_eq!(
        many.expect_event("a.b", WAIT_TIMEOUT).await.json()["roomId"],
        43,
        "the other room must go on"
    );
    put(&api, "/api/v1/rooms/42/members/7").await;
    let position = many.last_event_id().to_owned();
    let many = Stream::request(&hub, "/api/v1/stream?rooms=42,43").person(7).last_event_id(&position);
    assert_eq!(
        open(many).await.expect_event("a.b", WAIT_TIMEOUT).await.json()["n"],
        2,
        "the event after the removal"
    );
    let mut again = open(stream_request(&hub, "42", 7).last_event_id("0-0")).await;
    for n in 1..=2 {
        assert_eq!(
            again.expect_event("a.b", WAIT_TIMEOUT).await.json()["n"],
            n,
            "the earlier removal must have no effect"
        );
    }
    let page = api.person(7).get("/api/v1/rooms/42/events?since=0-0").await.expect(200);
    assert_eq!(page.result()["events"].as_array().unwrap().len(), 2, "control records are not listed");
}

#[tokio::test]
async fn a_deleted_room_closes_its_streams_and_loses_its_events() {
    let (hub, api) = registered().await;
    put(&api, "/api/v1/rooms/42").await;
    put(&api, "/api/v1/rooms/42/members/7").await;
    let mut stream = open(stream_request(&hub, "42", 7)).await;
    let event = json!({"roomId": 42, "eventType": "a.b", "data": {"n": 1}, "idempotencyKey": "k"});
    api.publish(&event).await.expect(200);
    let old = stream.expect_event("a.b", WAIT_TIMEOUT).await.own_id.unwrap();
    delete(&api, "/api/v1/rooms/42").await;
    assert_eq!(stream.expect_event("system.close", WAIT_TIMEOUT).await.json()["code"], 3501);
    api.person(7).get("/api/v1/rooms/42/events?since=0-0").await.expect_error(404, "ROOM4041");
    put(&api, "/api/v1/rooms/42").await;
    put(&api, "/api/v1/rooms/42/members/7").await;
    let page = api.person(7).get("/api/v1/rooms/42/events?since=0-0").await.expect(200);
    assert_eq!(page.result()["events"], json!([]));
    let again = api.publish(&event).await.expect(200);
    assert_eq!(again.result()["duplicate"], false, "the keys must go with the log");
    // The new room has no event of the deleted one, also for a client with an old position, and while the
    // room has other subscribers.
    put(&api, "/api/v1/rooms/42/members/9").await;
    let _follows = open(stream_request(&hub, "42", 9)).await;
    let mut all = open(stream_request(&hub, "42", 9).last_event_id("0-0")).await;
    let first = all.next_event(WAIT_TIMEOUT).await.unwrap();
    assert_eq!(
        first.own_id.map(Value::from).as_ref(),
        Some(&again.result()["streamId"]),
        "an event of the deleted room"
    );
    let mut since = open(stream_request(&hub, "42", 9).last_event_id(&old)).await;
    assert_eq!(
        since.next_event(WAIT_TIMEOUT).await.unwrap().event,
        "system.reset",
        "a position in the deleted room"
    );
}

/// One entry of a room's log.
enum LogEntry {
    Event {
        id: String,
        is_early: bool,
    },
    /// A control record: not an event, but with its place in the order.
    Record,
}

/// Upper bound for the log entries of one round.
const MAX_ENTRIES: usize = 1_000;

/// The log of a room after `position`, which moves to the last entry. Requested one entry at a time, the log reveals
/// control records: the position advances without an event.
async fn log_after(api: &Api, room: &str, position: &mut String) -> Vec<LogEntry> {
    let mut log = Vec::new();
    while log.len() < MAX_ENTRIES {
        let path = format!("/api/v1/rooms/{room}/events?since={position}&count=1");
        let page = api.get(&path).await.expect(200);
        let last = page.result()["lastId"].as_str().unwrap();
        if last == position {
            return log;
        }
        last.clone_into(position);
        log.push(match page.result()["events"].get(0) {
            Some(event) => LogEntry::Event { id: last.to_owned(), is_early: event["data"]["early"] == true },
            None => LogEntry::Record,
        });
    }
    panic!("the log has more than {MAX_ENTRIES} entries after one round");
}

/// The events around one removal.
struct Removal {
    /// Events before and after the control record.
    before: usize,
    after: usize,
    /// How many of the events after the record were sent before the removal was answered.
    overtaken: usize,
}

/// Removes a person while others publish, and compares the events that this person received with the log.
async fn race(hub: &Hub, api: &Api, round: usize, position: &mut String) -> Removal {
    const PUBLISHERS: usize = 3;
    put(api, "/api/v1/rooms/42/members/7").await;
    let mut stream = open(stream_request(hub, "42", 7)).await;
    let (published, is_removed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let publishing = join_all((0..PUBLISHERS).map(async |_| {
        for _ in 0..MAX_ENTRIES / PUBLISHERS / 2 {
            let is_early = !is_removed.load(Ordering::SeqCst);
            api.publish_to(42, "a.b", json!({"early": is_early})).await;
            published.fetch_add(1, Ordering::SeqCst);
            if !is_early {
                return;
            }
        }
    }));
    let removing = async {
        // Varies the moment of the removal relative to the publish requests.
        let enough = 1 + round % (2 * PUBLISHERS);
        wait::until(WAIT_TIMEOUT, async || published.load(Ordering::SeqCst) >= enough).await;
        delete(api, "/api/v1/rooms/42/members/7").await;
        is_removed.store(true, Ordering::SeqCst);
    };
    futures_util::future::join(publishing, removing).await;

    let mut sent = Vec::new();
    loop {
        let event = stream.next_event(WAIT_TIMEOUT).await.expect("a `system.close` event");
        if event.event == "system.close" {
            assert_eq!(event.json()["code"], 3501);
            break;
        }
        sent.push(event.own_id.expect("an id"));
    }
    let log = log_after(&api.person(8), "42", position).await;
    let records = log.iter().filter(|entry| matches!(entry, LogEntry::Record)).count();
    assert_eq!(records, 1, "records of a removal in round {round}");
    let mut sides = log.split(|entry| matches!(entry, LogEntry::Record));
    let (before, after) = (sides.next().unwrap(), sides.next().unwrap());
    let ids = |side: &[LogEntry]| -> Vec<String> {
        let id = |entry: &LogEntry| match entry {
            LogEntry::Event { id, .. } => Some(id.clone()),
            LogEntry::Record => None,
        };
        side.iter().filter_map(id).collect()
    };
    let too_late: Vec<String> = sent.iter().filter(|id| ids(after).contains(id)).cloned().collect();
    assert_eq!(too_late, [""; 0], "round {round}: events after the record reached the person");
    assert_eq!(sent, ids(before), "round {round}: events before the record");
    let overtaken = after.iter().filter(|entry| matches!(entry, LogEntry::Event { is_early: true, .. }));
    Removal { before: before.len(), after: after.len(), overtaken: overtaken.count() }
}

#[tokio::test]
async fn no_event_after_the_removal_reaches_the_removed_person() {
    let (rounds, mut position) = (tier::size(50, 500), "0-0".to_owned());
    let (hub, api) = registered().await;
    put(&api, "/api/v1/rooms/42").await;
    put(&api, "/api/v1/rooms/42/members/8").await;
    let mut removals: Vec<Removal> = Vec::new();
    // A removal has raced if an event that was sent before its answer was stored after its control record.
    let raced = |removals: &[Removal]| removals.iter().filter(|removal| removal.overtaken > 0).count();
    while removals.len() < rounds || (raced(&removals) < rounds / 2 && removals.len() < rounds * 4) {
        removals.push(race(&hub, &api, removals.len(), &mut position).await);
    }
    let between = removals.iter().filter(|removal| removal.before > 0 && removal.after > 0).count();
    let facts = json!({"removals": removals.len(), "betweenEvents": between,
        "overtookRequestsUnderWay": raced(&removals),
        "eventsBefore": removals.iter().map(|removal| removal.before).sum::<usize>(),
        "eventsAfter": removals.iter().map(|removal| removal.after).sum::<usize>()});
    proof::record("rooms", "no_event_after_the_removal_reaches_the_removed_person", &facts);
    assert_eq!(between, removals.len(), "removals that had events on both sides: {facts}");
    assert!(raced(&removals) >= rounds / 2, "too few removals raced with events: {facts}");
}
