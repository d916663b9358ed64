//! `bongsu backup`: a copy taken under load holds everything that was acknowledged before the backup began. A hub
//! that starts on the copy sends `system.reset` to clients whose position is newer than the copy.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic with its reason")]

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bongsu_testkit::engine::needs_embedded;
use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Api, Hub, wait};
use rusqlite::Connection;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{WAIT_TIMEOUT, error_line, run, stdout_of};
use crate::BONGSU;

const ROOM: &str = "busy";
const PERSON: u64 = 7;

/// Events and notifications that the hub acknowledged to publishers and services.
#[derive(Default)]
struct AcknowledgedWrites {
    events: Mutex<Vec<(String, String)>>,
    notices: Mutex<Vec<String>>,
    next: AtomicU64,
    stop: AtomicBool,
}

impl AcknowledgedWrites {
    fn counts(&self) -> (usize, usize) {
        (self.events.lock().unwrap().len(), self.notices.lock().unwrap().len())
    }

    async fn publish(&self, api: &Api) {
        while !self.stop.load(Ordering::SeqCst) {
            let key = self.next.fetch_add(1, Ordering::SeqCst).to_string();
            let id =
                api.publish(event(&key)).await.expect(200).result()["streamId"].as_str().unwrap().to_owned();
            self.events.lock().unwrap().push((key, id));
        }
    }

    async fn notify(&self, api: &Api) {
        while !self.stop.load(Ordering::SeqCst) {
            let id = format!("n{}", self.next.fetch_add(1, Ordering::SeqCst));
            let notice = json!({"eventId": id, "type": "FOLLOW", "targetIds": [PERSON, 8]});
            api.post("/api/v1/members/notify", notice).await.expect(202);
            self.notices.lock().unwrap().push(id);
        }
    }
}

fn event(key: &str) -> Value {
    json!({"roomId": ROOM, "eventType": "a.b", "data": {"key": key}, "idempotencyKey": key})
}

fn column(file: &Connection, query: &str) -> BTreeSet<String> {
    let mut statement = file.prepare(query).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// Checks that a copy passes the integrity check, is readable by its owner only, and contains these events and
/// notifications.
fn check_copy(copy: &Path, events: &[(String, String)], notices: &[String]) {
    assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let file = Connection::open(copy).unwrap();
    let verdict: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
    let stored = column(&file, "SELECT ms || '-' || seq FROM entries");
    let missing: Vec<_> = events.iter().filter(|(_, id)| !stored.contains(id)).collect();
    assert!(missing.is_empty(), "{} of {} events are missing: {missing:?}", missing.len(), events.len());
    let stored = column(&file, "SELECT event_id FROM bongsu_notices");
    assert!(notices.iter().all(|id| stored.contains(id)), "notifications are missing");
    let count =
        |query: &str| file.query_row(query, [PERSON.to_string()], |row| row.get::<_, i64>(0)).unwrap();
    let (counted, there) = (
        count("SELECT unread FROM bongsu_people WHERE person_id = ?1"),
        count("SELECT count(*) FROM bongsu_inbox WHERE person_id = ?1"),
    );
    assert_eq!(counted, there, "the unread count and the rows of the copy differ");
}

#[tokio::test]
async fn a_copy_taken_under_load_holds_what_was_acknowledged_and_a_hub_starts_on_it() {
    if !needs_embedded("it copies the file") {
        return;
    }
    let hub = Hub::builder(BONGSU).start().await;
    let (api, data) = (Api::new(&hub), hub.data_dir().to_str().unwrap().to_owned());
    // The hub stores enough data that the copy takes some time.
    let text = "x".repeat(4_000);
    for batch in 0..6 {
        let many: Vec<Value> = (0..400)
            .map(|n| json!({"roomId": format!("old-{batch}"), "eventType": "a.b", "data": {"n": n, "text": text}}))
            .collect();
        api.publish_batch(&many).await.expect(200);
    }
    let acknowledged = Arc::new(AcknowledgedWrites::default());
    let mut load = JoinSet::new();
    for n in 0..4 {
        let (acknowledged, api) = (acknowledged.clone(), Api::new(&hub));
        load.spawn(async move {
            if n == 0 { acknowledged.notify(&api).await } else { acknowledged.publish(&api).await }
        });
    }
    let copies = tempfile::tempdir().unwrap();
    let (mut kept, mut during) = (Vec::new(), 0);
    for round in 0..3 {
        let begun = acknowledged.counts();
        wait::until(WAIT_TIMEOUT, async || {
            let now = acknowledged.counts();
            now.0 > begun.0 + 20 && now.1 > begun.1 + 5
        })
        .await;
        let before = acknowledged.counts();
        let copy = copies.path().join(format!("{round}.db"));
        let (target, folder) = (copy.to_str().unwrap().to_owned(), data.clone());
        let told = tokio::task::spawn_blocking(move || run(&["backup", &target], &[("DATA_DIR", &folder)]));
        let told = stdout_of(&told.await.unwrap());
        assert!(told.contains("complete copy") && told.lines().count() == 1, "{told}");
        during += acknowledged.counts().0 - before.0;
        kept.push((copy, before));
    }
    acknowledged.stop.store(true, Ordering::SeqCst);
    load.join_all().await;
    assert!(during > 0, "no event was acknowledged during a backup");
    hub.terminate().await;
    let (events, notices) =
        (acknowledged.events.lock().unwrap().clone(), acknowledged.notices.lock().unwrap().clone());
    for (copy, before) in &kept {
        check_copy(copy, &events[..before.0], &notices[..before.1]);
    }
    // Restores the copy into an empty folder, as an operator does.
    let folder = tempfile::tempdir().unwrap();
    let (copy, before) = &kept[0];
    std::fs::copy(copy, folder.path().join("bongsu.db")).unwrap();
    let restored = Hub::builder(BONGSU).data_dir(folder.path()).start().await;
    let api = Api::new(&restored);
    let (key, id) = &events[before.0 - 1];
    let again = api.publish(event(key)).await.expect(200);
    assert_eq!((&again.result()["duplicate"], &again.result()["streamId"]), (&json!(true), &json!(id)));
    let list = api.person(PERSON).get("/api/notifications?limit=1").await.expect(200).result().clone();
    assert!(list["unread"].as_u64().unwrap() >= before.1 as u64, "{list}");
    // A client whose position is newer than the copy receives `system.reset` and then the next event.
    let newest = events.iter().map(|(_, id)| id.clone()).max_by_key(|id| {
        let (ms, seq) = id.split_once('-').unwrap();
        (ms.parse::<u64>().unwrap(), seq.parse::<u64>().unwrap())
    });
    let newest_number = notices.len().to_string();
    for (path, position, event) in [
        (format!("/api/v1/rooms/{ROOM}/stream"), newest.unwrap(), "a.b"),
        ("/api/notifications/stream".to_owned(), newest_number, "notification"),
    ] {
        let request = Stream::request(&restored, &path).person(PERSON).last_event_id(&position);
        let mut stream = request.open().await.unwrap_or_else(|answer| panic!("{}", answer.text()));
        let reset = stream.expect_event("system.reset", WAIT_TIMEOUT).await;
        assert_eq!(reset.json()["reason"], "unknown", "{path}");
        api.publish_to(ROOM, "a.b", json!({})).await;
        let notice = json!({"eventId": format!("next-{event}"), "type": "FOLLOW", "targetIds": [PERSON]});
        api.post("/api/v1/members/notify", notice).await.expect(202);
        stream.expect_event(event, WAIT_TIMEOUT).await;
    }
}

#[tokio::test]
async fn a_backup_overwrites_no_file_and_names_what_it_does_not_contain() {
    if !needs_embedded("it copies the file") {
        return;
    }
    let hub = Hub::builder(BONGSU).start().await;
    Api::new(&hub).publish_to("a", "a.b", json!({})).await;
    let data = ("DATA_DIR", hub.data_dir().to_str().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let target = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(target("there"), "mine").unwrap();
    assert!(error_line(&run(&["backup", &target("there")], &[data]), 1).contains("not overwritten"));
    assert_eq!(std::fs::read(target("there")).unwrap(), b"mine");
    assert!(
        error_line(&run(&["backup", &target("no/folder/copy")], &[data]), 1).contains("cannot be written")
    );
    let (redis, database) =
        (("REDIS_URL", "redis://127.0.0.1:1"), ("DATABASE_URL", "postgres://me@127.0.0.1:1/db"));
    let records_only = stdout_of(&run(&["backup", &target("records")], &[data, redis]));
    assert!(records_only.contains("not in it") && records_only.contains("in Redis"), "{records_only}");
    let events_only = stdout_of(&run(&["backup", &target("events")], &[data, database]));
    assert!(events_only.contains("not in it") && events_only.contains("in the database"), "{events_only}");
    let nothing = error_line(&run(&["backup", &target("nothing")], &[data, redis, database]), 1);
    assert!(nothing.contains("nothing is kept in DATA_DIR") && nothing.contains("own tools"), "{nothing}");
    let empty = tempfile::tempdir().unwrap();
    error_line(&run(&["backup", &target("empty")], &[("DATA_DIR", empty.path().to_str().unwrap())]), 3);
    let mut left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["events", "records", "there"], "a failed backup must leave no file");
}
