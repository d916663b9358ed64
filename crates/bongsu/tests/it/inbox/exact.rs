//! Concurrent requests with kills in between: unread counts equal the rows, no entry is made twice, and no read mark
//! is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bongsu_testkit::sse::ResumingClient;
use bongsu_testkit::{Answer, Api, Engine, Hub, Rng, engine, proof, tier, wait};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{
    INBOX_PATH, NOTIFY_PATH, WAIT_TIMEOUT, hub, like_notification, list, notify, open, stream_request, unread,
};
use crate::{BONGSU, crash_points};

const PEOPLE: [u64; 4] = [1, 2, 3, 4];
const WORKERS: usize = 8;
/// A kill that hit no request in flight is repeated, at most this often.
const MAX_KILLS: usize = 20;

/// The state that the workers share.
#[derive(Default)]
struct Workload {
    /// Pairs of person and event whose notification was acknowledged.
    notified: Mutex<BTreeSet<(u64, u64)>>,
    /// Pairs of person and event whose entry a worker tried to delete.
    deleted: Mutex<BTreeSet<(u64, u64)>>,
    next: AtomicU64,
    stopped: AtomicBool,
    changes: AtomicU64,
    /// Kills so far. A request that began before a kill and failed after it was in flight.
    kills: AtomicU64,
    cut: AtomicU64,
}

impl Workload {
    /// Whether a request was answered with this status.
    async fn has_status<E>(&self, request: impl Future<Output = Result<Answer, E>>, status: u16) -> bool {
        let kills = self.kills.load(Ordering::SeqCst);
        let answer = request.await;
        let is_cut = answer.is_err() && self.kills.load(Ordering::SeqCst) > kills;
        self.cut.fetch_add(u64::from(is_cut), Ordering::SeqCst);
        answer.is_ok_and(|answer| answer.status == status)
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Kills the hub until a kill hits requests in flight; returns the number of kills.
    async fn kill(&self, hub: &Hub, rng: &mut Rng) -> usize {
        for kill in 1..=MAX_KILLS {
            let enough = self.changes() + rng.range(30..150);
            wait::until(WAIT_TIMEOUT * 3, async || self.changes() >= enough).await;
            let before = self.cut.load(Ordering::SeqCst);
            self.kills.fetch_add(1, Ordering::SeqCst);
            hub.kill9().await;
            hub.restart().await;
            if self.cut.load(Ordering::SeqCst) > before {
                return kill;
            }
        }
        panic!("none of {MAX_KILLS} kills landed while requests were in flight");
    }
}

/// One API client per hub of the test.
pub(super) fn apis(hub: &Hub) -> Vec<Api> {
    let own = Api::at(&hub.url(""));
    std::iter::once(own).chain(hub.twin().map(|twin| Api::at(&twin.url("")))).collect()
}

async fn work(load: &Workload, apis: &[Api], mut rng: Rng) {
    while !load.stopped.load(Ordering::SeqCst) {
        let (api, person) = (rng.pick(apis), *rng.pick(&PEOPLE));
        let known = load.next.load(Ordering::SeqCst);
        // A request without an answer may have taken effect or not; the comparison checks that it took effect at most
        // once.
        let done = match rng.below(20) {
            0..10 => {
                let again = known > 0 && rng.chance(1, 5);
                let event = if again { rng.below(known) } else { load.next.fetch_add(1, Ordering::SeqCst) };
                let targets: Vec<u64> = PEOPLE.into_iter().filter(|_| rng.chance(2, 3)).collect();
                if targets.is_empty() {
                    continue;
                }
                let notice = like_notification(&format!("e{event}"), &targets);
                let done = load.has_status(api.try_post(NOTIFY_PATH, notice), 202).await;
                if done {
                    load.notified.lock().unwrap().extend(targets.into_iter().map(|person| (person, event)));
                }
                done
            }
            10..16 => {
                let path = format!("{INBOX_PATH}/{}/read", rng.below(60) + 1);
                load.has_status(api.person(person).try_call("PATCH", &path, ""), 200).await
            }
            16..18 if known > 0 => {
                let event = rng.below(known);
                load.deleted.lock().unwrap().insert((person, event));
                let path = format!("{INBOX_PATH}/e{event}");
                load.has_status(api.person(person).try_call("DELETE", &path, ""), 200).await
            }
            18 => {
                let path = format!("{INBOX_PATH}/read-all");
                load.has_status(api.person(person).try_post(&path, json!({})), 200).await
            }
            _ => {
                let _ = api.person(person).try_call("GET", &format!("{INBOX_PATH}?unread=true"), "").await;
                false
            }
        };
        load.changes.fetch_add(u64::from(done), Ordering::SeqCst);
        if !done {
            // A client's pause: without it, retries would slow down the start of a hub that is down.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// All entries of a person, and the unread count that the pages show.
pub(super) async fn all(api: &Api, person: u64, filter: &str) -> (Vec<Value>, u64) {
    let (mut items, mut cursor, mut count) = (Vec::new(), String::new(), 0);
    for _ in 0..10_000 {
        let page = list(api, person, &format!("?limit=100&cursor={cursor}{filter}")).await;
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        count = page["unread"].as_u64().unwrap().max(count);
        match page["nextCursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => return (items, count),
        }
    }
    panic!("the pages of person {person} have no end");
}

async fn compare(load: &Workload, apis: &[Api], round: usize) {
    for person in PEOPLE {
        for api in apis {
            let (items, shown) = all(api, person, "").await;
            let rows = items.iter().filter(|item| item["readAt"].is_null()).count() as u64;
            let (listed, _) = all(api, person, "&unread=true").await;
            let counted = unread(api, person).await;
            assert_eq!(
                (rows, rows, rows),
                (shown, counted, listed.len() as u64),
                "rows, shown, counted and listed of {person} in round {round}"
            );
            let mut events: BTreeMap<String, u64> = BTreeMap::new();
            for item in &items {
                *events.entry(item["eventId"].as_str().unwrap().to_owned()).or_default() += 1;
            }
            assert!(events.values().all(|times| *times == 1), "{person} has an entry twice");
            let deleted = load.deleted.lock().unwrap().clone();
            for (_, event) in load.notified.lock().unwrap().iter().filter(|(of, _)| *of == person) {
                let there = events.contains_key(&format!("e{event}"));
                assert!(there || deleted.contains(&(person, *event)), "{person} lacks the entry e{event}");
            }
        }
    }
}

/// Changes one entry of every person once more, with a device connected to every hub: all devices show the same
/// unread count, which equals the number of unread rows, and a version that is newer than all before.
async fn compare_devices(hub: &Hub, apis: &[Api], versions: &mut BTreeMap<u64, u64>, round: usize) {
    for person in PEOPLE {
        let hubs = std::iter::once(hub).chain(hub.twin());
        let devices = join_all(hubs.map(|hub| open(stream_request(hub, person)))).await;
        notify(&apis[0], &like_notification(&format!("quiet{round}-{person}"), &[person])).await.expect(202);
        let newest = list(&apis[0], person, "?limit=1").await["items"][0]["id"].as_u64().unwrap();
        let path = format!("{INBOX_PATH}/{newest}/read");
        apis[apis.len() - 1].person(person).call("PATCH", &path, "").await.expect(200);
        let (rows, _) = all(&apis[0], person, "&unread=true").await;
        let before = versions.get(&person).copied().unwrap_or_default();
        for mut device in devices {
            let shown =
                device.find_event("what was read", WAIT_TIMEOUT, |event| event.event == "read").await.json();
            assert_eq!(shown["ids"], json!([newest]), "of {person} in round {round}");
            assert_eq!(shown["unread"], json!(rows.len()), "of {person} in round {round}");
            let version = shown["version"].as_u64().unwrap();
            assert!(version > before, "{version} is not above {before}");
            let known =
                *versions.entry(person).and_modify(|known| *known = version.max(*known)).or_insert(version);
            assert_eq!(known, version, "versions at the devices of {person}");
        }
    }
}

#[tokio::test]
async fn counts_are_the_rows_whatever_happens_at_once_and_whatever_is_killed() {
    let name = "counts_are_the_rows_whatever_happens_at_once_and_whatever_is_killed";
    let (rounds, mut rng) = (tier::size(5, 100), Rng::for_test(name));
    let hub = Hub::builder(BONGSU)
        .records()
        .env("WRITE_BEHIND_INTERVAL_SECS", 1)
        .env("LOCK_TTL_SECS", 1)
        .start()
        .await;
    let (load, apis, mut versions) = (Workload::default(), apis(&hub), BTreeMap::new());
    let (mut kills, mut landed) = (0, 0);
    let mut compared = 0;
    for round in 0..rounds {
        load.stopped.store(false, Ordering::SeqCst);
        let workers = (0..WORKERS).map(|_| Rng::new(rng.next_u64())).collect::<Vec<_>>();
        let working = join_all(workers.into_iter().map(|rng| work(&load, &apis, rng)));
        let killing = async {
            // Every second round kills the hub in the middle of the work.
            if round % 2 == 0 {
                kills += load.kill(&hub, &mut rng).await;
                landed += 1;
            }
            let enough = load.changes() + rng.range(30..150);
            wait::until(WAIT_TIMEOUT * 3, async || load.changes() >= enough).await;
            load.stopped.store(true, Ordering::SeqCst);
        };
        tokio::join!(working, killing);
        compare(&load, &apis, round).await;
        compare_devices(&hub, &apis, &mut versions, round).await;
        compared += 1;
    }
    assert!(landed >= rounds.div_ceil(2), "only {landed} kills landed while requests were in flight");
    proof::record(
        "inbox",
        name,
        json!({
            "seed": tier::seed(), "engine": engine().name(), "rounds": compared, "kills": kills,
            "killsInFlight": landed, "requestsCut": load.cut.load(Ordering::SeqCst),
            "changes": load.changes(), "told": load.notified.lock().unwrap().len(),
        }),
    );
}

#[tokio::test]
async fn read_marks_survive_a_kill_at_every_step_of_their_write() {
    if engine() == Engine::Embedded {
        // The embedded engine writes read marks at once.
        return;
    }
    let hub = Hub::builder(BONGSU)
        .records()
        .env("WRITE_BEHIND_INTERVAL_SECS", 1)
        .env("LOCK_TTL_SECS", 1)
        .start()
        .await;
    let (api, mut people) = (Api::new(&hub), 10..20_u64);
    for point in crash_points::of("read_marks_survive_a_kill_at_every_step_of_their_write") {
        // Only answered marks are checked, and the hub may die before it answers the second one. If it dies
        // before it answers the first one, the round is repeated with another person.
        let (person, answered) = loop {
            let person = people.next().unwrap_or_else(|| panic!("no mark was answered at {point}"));
            crash_points::arm(&hub, point, 1).await;
            for n in 0..3 {
                notify(&api, &like_notification(&format!("m{person}-{n}"), &[person])).await.expect(202);
            }
            let read = async |seq: u64| {
                let path = format!("{INBOX_PATH}/{seq}/read");
                let answer = api.person(person).try_call("PATCH", &path, "").await.ok()?;
                (answer.status == 200).then(|| answer.result()["readAt"].clone())
            };
            let answered = [(1, read(1).await), (2, read(2).await)];
            if answered[0].1.is_some() {
                break (person, answered);
            }
        };
        // At least the process that writes the marks must die; the other process may have no mark to write.
        assert!(
            wait::holds_within(WAIT_TIMEOUT * 3, async || hub.has_any_exited()).await,
            "no hub reached {point}"
        );
        hub.restart().await;
        let (items, _) = all(&api, person, "").await;
        for (seq, read_at) in answered {
            let item = items.iter().find(|item| item["id"] == seq).unwrap();
            if let Some(read_at) = read_at {
                assert_eq!(item["readAt"], read_at, "{seq} after {point}");
            }
        }
        let rows = items.iter().filter(|item| item["readAt"].is_null()).count() as u64;
        assert_eq!(unread(&api, person).await, rows, "after {point}");
        // The marks must be written as well: of three flushes that ended on two hubs, at least one began after now.
        let turns = async || hub.metrics().await.get("write_behind_flush_entries_count", &[]);
        let before = turns().await;
        wait::until(WAIT_TIMEOUT, async || turns().await >= before + 3.0).await;
        assert_eq!(unread(&api, person).await, rows, "written after {point}");
        assert_eq!(all(&api, person, "").await.0, items, "written after {point}");
    }
}

#[tokio::test]
async fn follow_up_records_become_one_entry_each_despite_kills_and_trimming() {
    let hub = Hub::builder(BONGSU).records().env("STREAM_MAXLEN", 5).env("LOCK_TTL_SECS", 1).start().await;
    let apis = apis(&hub);
    let name = "follow_up_records_become_one_entry_each_despite_kills_and_trimming";
    let rounds = (0..tier::size(2, 20)).flat_map(|_| crash_points::of(name)).enumerate();
    for (round, point) in rounds {
        // The third time: the previous round may have left a record, and one publish must be answered.
        crash_points::arm(&hub, point, 3).await;
        let (person, mut published) = (100 + round as u64, 0);
        // Until every hub that makes entries has died: a remaining hub needs follow-up records to reach the crash
        // point.
        let publishing = async {
            for n in 0.. {
                let event = json!({"roomId": format!("r{}", n % 3), "eventType": "a.b", "data": {"n": n},
                    "recipients": [person], "idempotencyKey": format!("{round}-{n}")});
                let answer = apis[n % apis.len()].try_publish(&event).await;
                published += u64::from(answer.is_ok_and(|answer| answer.status == 200));
                if hub.worker().unwrap_or(&hub).has_exited() {
                    break;
                }
                // Slowly enough that the records are not all handled in one batch.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(tokio::time::timeout(WAIT_TIMEOUT * 3, publishing).await.is_ok(), "no hub reached {point}");
        hub.restart().await;
        let api = &apis[0];
        wait::until(WAIT_TIMEOUT * 2, async || unread(api, person).await >= published).await;
        let (items, _) = all(api, person, "").await;
        let numbers: BTreeSet<u64> =
            items.iter().map(|item| item["payload"]["n"].as_u64().unwrap()).collect();
        assert_eq!(numbers.len(), items.len(), "an event has two entries");
        assert!(items.len() as u64 >= published && published > 0, "{published} events were published");
    }
}

#[tokio::test]
async fn a_notification_saved_before_a_crash_becomes_one_entry_and_one_live_event() {
    let hub = hub().await;
    // The API of the hub that the device is connected to, also where there are two hubs.
    let api = Api::at(&hub.url(""));
    let name = "a_notification_saved_before_a_crash_becomes_one_entry_and_one_live_event";
    for (round, point) in (0..tier::size(3, 20)).flat_map(|_| crash_points::of(name)).enumerate() {
        let (person, notice) =
            (100 + round as u64, like_notification(&format!("saved{round}"), &[100 + round as u64]));
        crash_points::arm(&hub, point, 1).await;
        let mut device =
            ResumingClient::new(stream_request(&hub, person)).max_retry_delay(Duration::from_millis(20));
        // The device is connected, knows that the inbox is empty, and does not receive the entry that was saved
        // before the crash.
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while device.connections() == 0 {
            let early = device.try_next_event(Duration::from_millis(50)).await;
            assert!(early.is_err() && Instant::now() < deadline, "{early:?}");
        }
        let answer = api.try_post(NOTIFY_PATH, notice.clone()).await;
        assert!(answer.is_err(), "the hub never reached {point}: {answer:?}");
        assert!(
            wait::holds_within(WAIT_TIMEOUT, async || hub.has_any_exited()).await,
            "the hub still runs after {point}"
        );
        hub.restart().await;
        assert_eq!(unread(&api, person).await, 1, "the entry saved before {point}");
        // The service got no answer and repeats its request.
        notify(&api, &notice).await.expect(202);
        notify(&api, &like_notification(&format!("last{round}"), &[person])).await.expect(202);
        let mut told = Vec::new();
        while told.last().is_none_or(|(_, event)| *event != format!("last{round}")) {
            let event = device.next_event(WAIT_TIMEOUT).await.expect("an open stream");
            assert_eq!(event.event, "notification", "{event:?}");
            told.push((event.own_id.clone().unwrap(), event.json()["eventId"].clone()));
        }
        let expected = [("1", format!("saved{round}")), ("2", format!("last{round}"))];
        let expected = expected.map(|(id, event)| (id.to_owned(), json!(event)));
        assert_eq!(told, expected, "each is one live event");
        let (items, shown) = all(&api, person, "").await;
        let listed: Vec<&Value> = items.iter().map(|item| &item["eventId"]).collect();
        assert_eq!((listed, shown), (vec![&expected[1].1, &expected[0].1], 2), "each is one entry");
    }
}
