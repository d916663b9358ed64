//! Publishing to rooms in open mode while the database is unavailable. The inbox entries are made when it is back,
//! each once: for recipients that an event names, and for the registered members of a room.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::{Api, proof, tier, wait};
use serde_json::{Value, json};

use super::super::exact::all;
use super::super::{INBOX_PATH, RECOUNT_TIMEOUT, WAIT_TIMEOUT, one_of_a_fleet, unread};

/// Recipients of every second event.
const NAMED_RECIPIENTS: [u64; 2] = [11, 12];
/// Members of the registered room, which gets the other events. The first member publishes them.
const MEMBERS: [u64; 3] = [21, 22, 23];
/// Time between two publishes: the inbox makes the entries of one event in a few milliseconds.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(10);
/// Publishes that must be answered during each outage: the database stays unavailable until they are.
const MIN_PUBLISHES_PER_OUTAGE: usize = 20;

/// The event ids that each person must have in the inbox.
type ExpectedEntries = BTreeMap<u64, Vec<String>>;

fn event(n: usize) -> (Value, &'static [u64]) {
    let event = json!({"eventType": "comment.created", "data": {"n": n}});
    let with = |fields: Value| {
        let mut event = event.clone();
        event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        event
    };
    if n.is_multiple_of(2) {
        (with(json!({"roomId": "plain", "recipients": NAMED_RECIPIENTS})), &NAMED_RECIPIENTS)
    } else {
        (with(json!({"roomId": "registered", "publisherId": MEMBERS[0]})), &MEMBERS[1..])
    }
}

async fn publishing_goes_on_while_the_database_is_away(flavour: Flavour, name: &str) {
    tier::counts_events();
    if !tier::needs_engine("redis") || !tier::needs_engine(flavour.name()) {
        return;
    }
    let (redis, server) = (Redis::start().await, Server::start(flavour).await);
    let hub = one_of_a_fleet(&redis.url(), &server.database()).start().await;
    let api = Api::at(&hub.url(""));
    api.call("PUT", "/api/v1/rooms/registered", "").await.expect(200);
    for member in MEMBERS {
        api.call("PUT", &format!("/api/v1/rooms/registered/members/{member}"), "").await.expect(200);
    }
    let (published, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let count = || published.load(Ordering::SeqCst);
    let publishing = async {
        let mut expected = ExpectedEntries::new();
        while !is_over.load(Ordering::SeqCst) {
            let (event, recipients) = event(count());
            let answer = api.publish(&event).await.expect(200);
            let room = event["roomId"].as_str().unwrap();
            let id = format!("{room}:{}", answer.result()["streamId"].as_str().unwrap());
            for person in recipients {
                expected.entry(*person).or_default().push(id.clone());
            }
            published.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(PUBLISH_INTERVAL).await;
        }
        expected
    };
    let seconds = tier::size(2, 20);
    let breaking = async {
        let mut while_away = Vec::new();
        for is_killed in [true, false] {
            let enough = count() + 20;
            wait::until(WAIT_TIMEOUT, async || count() >= enough).await;
            if is_killed {
                server.kill9().await;
            } else {
                server.pause();
            }
            let before = count();
            // The length of the outage is the fault itself, not a wait for a condition.
            tokio::time::sleep(Duration::from_secs(seconds as u64)).await;
            wait::until(WAIT_TIMEOUT, async || count() >= before + MIN_PUBLISHES_PER_OUTAGE).await;
            while_away.push(count() - before);
            if is_killed { server.restart().await } else { server.resume() }
        }
        let enough = count() + 20;
        wait::until(WAIT_TIMEOUT, async || count() >= enough).await;
        is_over.store(true, Ordering::SeqCst);
        while_away
    };
    let (expected, while_away) = tokio::join!(publishing, breaking);
    let (mut missing, mut repeated, mut entries) = (0, 0, 0);
    wait::until(WAIT_TIMEOUT, async || api.person(NAMED_RECIPIENTS[0]).get(INBOX_PATH).await.status == 200)
        .await;
    for (person, expected) in &expected {
        wait::holds_within(RECOUNT_TIMEOUT, async || unread(&api, *person).await >= expected.len() as u64)
            .await;
        let mut made: Vec<String> = all(&api, *person, "").await.0.iter().map(event_id).collect();
        entries += made.len();
        made.sort_unstable();
        missing += expected.iter().filter(|id| made.binary_search(id).is_err()).count();
        repeated += made.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert_eq!(unread(&api, *person).await, made.len() as u64, "the unread count of {person}");
    }
    let facts = json!({"seed": tier::seed(), "acknowledged": count(), "whileKilled": while_away[0],
        "whilePaused": while_away[1], "secondsEach": seconds, "people": expected.len(), "entries": entries,
        "missing": missing, "repeated": repeated});
    proof::record("publishing", name, &facts);
    let wanted: usize = expected.values().map(Vec::len).sum();
    assert_eq!((missing, repeated, entries), (0, 0, wanted), "{facts}");
}

fn event_id(entry: &Value) -> String {
    entry["eventId"].as_str().expect("the id of a room's event").to_owned()
}

#[tokio::test]
async fn publishing_goes_on_while_postgres_is_away_and_every_entry_is_made_once() {
    let name = "publishing_goes_on_while_postgres_is_away_and_every_entry_is_made_once";
    publishing_goes_on_while_the_database_is_away(Flavour::Postgres, name).await;
}

#[tokio::test]
async fn publishing_goes_on_while_mariadb_is_away_and_every_entry_is_made_once() {
    let name = "publishing_goes_on_while_mariadb_is_away_and_every_entry_is_made_once";
    publishing_goes_on_while_the_database_is_away(Flavour::MariaDb, name).await;
}
