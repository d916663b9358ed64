//! Rows that are relayed to rooms: each becomes one event, in the order of its target, whichever hub is killed
//! meanwhile. Rows that cannot be relayed become dead letters that operators see and redrive.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use bongsu_testkit::hub::Builder;
use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::{Api, Hub, Rng, proof, tier, wait};
use serde_json::{Value, json};

use super::{OutboxTest, WAIT_TIMEOUT, open};
use crate::{BONGSU, crash_points};

const RELAY_TIMEOUT: Duration = Duration::from_secs(120);
const TARGETS: u64 = 4;
const DLQ_PATH: &str = "/api/admin/dlq/outbox";

/// The row numbers of the events in a room.
async fn numbers_in(api: &Api, room: &str) -> Vec<u64> {
    let (person, mut since, mut all) = (api.person(1), "0-0".to_owned(), Vec::new());
    for _ in 0..10_000 {
        let page = person.get(&format!("/api/v1/rooms/{room}/events?since={since}&count=500")).await;
        let page = page.expect(200);
        for event in page.result()["events"].as_array().unwrap() {
            assert_eq!(event["eventType"], "proposal.created.v1");
            all.push(event["data"]["proposal_id"].as_u64().unwrap());
        }
        if page.result()["hasMore"] == false {
            return all;
        }
        page.result()["lastId"].as_str().unwrap().clone_into(&mut since);
    }
    panic!("the pages of room {room} have no end");
}

/// The outbox table to which a test writes rows, with queries for the state of the relay.
trait OutboxTable {
    async fn run(&self, sql: &str);
    /// The number that a query returns.
    async fn count(&self, sql: &str) -> i64;

    /// The number of rows that are not marked as DONE.
    async fn not_done(&self) -> i64 {
        self.count("SELECT count(*) FROM outbox_events WHERE status <> 'DONE'").await
    }

    /// The number of rows that a worker has claimed and not marked as DONE.
    async fn claimed(&self) -> i64 {
        self.count("SELECT count(*) FROM outbox_events WHERE status = 'PROCESSING'").await
    }

    /// Ends the leases of all claims, as the passing of time does. Call it only while no hub runs, when every claim
    /// belongs to a dead worker.
    async fn end_leases(&self) {
        self.run("UPDATE outbox_events SET available_at = 0 WHERE status = 'PROCESSING'").await;
    }
}

impl OutboxTable for OutboxTest {
    async fn run(&self, sql: &str) {
        self.sql(sql).await;
    }

    async fn count(&self, sql: &str) -> i64 {
        self.numbers(sql).await[0]
    }
}

impl OutboxTest {
    /// The number of events in all rooms while the relaying process is dead. Where the roles are separate, the API
    /// process still answers.
    async fn stored_in_rooms(&self, api: &Api) -> u64 {
        if self.hub.worker().is_some() {
            return numbers_in(api, "42").await.len() as u64;
        }
        let file = rusqlite::Connection::open(self.hub.data_dir().join("bongsu.db")).unwrap();
        let stored = file.query_row("SELECT count(*) FROM entries", [], |row| row.get::<_, i64>(0));
        stored.unwrap().unsigned_abs()
    }
}

/// A database, by its server and its name.
struct ServerDatabase<'a>(&'a Server, &'a str);

impl OutboxTable for ServerDatabase<'_> {
    async fn run(&self, sql: &str) {
        self.0.execute(self.1, sql);
    }

    async fn count(&self, sql: &str) -> i64 {
        self.0.execute(self.1, sql).trim().parse().unwrap()
    }
}

/// Rows that are written before each kill, for all targets together: as many as a worker claims at once.
const ROWS_PER_KILL: u64 = 200;

/// The kills of one run, and how many of them hit rows in progress.
#[derive(Default)]
struct KillCounts {
    all: usize,
    /// Kills with rows that were not done.
    while_rows_waited: usize,
    /// Kills with rows that a worker had claimed. This is known only when no other worker was left.
    while_claimed: usize,
}

/// Writes rows, and kills one hub or all of them while the rows are relayed.
async fn kill_during_relay(
    hubs: &[&Hub],
    rows: &impl OutboxTable,
    first: u64,
    rng: &mut Rng,
    kills: &mut KillCounts,
) {
    for target in 0..TARGETS {
        let numbers = (first..first + ROWS_PER_KILL).filter(|number| number % TARGETS == target);
        rows.run(&super::rows(&format!("t{target}"), numbers)).await;
    }
    let at_work = async || rows.claimed().await > 0 || rows.not_done().await == 0;
    wait::until(RELAY_TIMEOUT, at_work).await;
    // Every second time all hubs, so that a claim that is found belongs to a dead worker.
    let victims = match kills.all % 2 {
        1 => vec![*rng.pick(hubs)],
        _ => hubs.to_vec(),
    };
    for hub in &victims {
        hub.kill9().await;
    }
    kills.all += 1;
    kills.while_rows_waited += usize::from(rows.not_done().await > 0);
    if victims.len() == hubs.len() {
        kills.while_claimed += usize::from(rows.claimed().await > 0);
        rows.end_leases().await;
    }
    for hub in &victims {
        hub.restart().await;
    }
}

/// Writes rows while hubs are killed, and compares the events in the rooms with the rows.
async fn relay_while_killed(name: &str, hubs: &[&Hub], rows: &impl OutboxTable) {
    let (mut rng, wanted) = (Rng::for_test(name), tier::size(5, 100));
    let (mut written, mut kills) = (0, KillCounts::default());
    // A kill without work in progress proves nothing, and is repeated.
    while kills.while_claimed < wanted && kills.all < wanted * 20 {
        kill_during_relay(hubs, rows, written, &mut rng, &mut kills).await;
        written += ROWS_PER_KILL;
    }
    wait::until(RELAY_TIMEOUT, async || rows.not_done().await == 0).await;
    let api = Api::new(hubs[0]);
    let (mut relayed, mut missing, mut repeated) = (0, 0, 0);
    for target in 0..TARGETS {
        let expected: Vec<u64> = (0..written).filter(|number| number % TARGETS == target).collect();
        let found = numbers_in(&api, &format!("t{target}")).await;
        let distinct: BTreeSet<u64> = found.iter().copied().collect();
        relayed += found.len();
        missing += expected.iter().filter(|number| !distinct.contains(number)).count();
        repeated += found.len() - distinct.len();
        assert!(
            found == expected,
            "events of room t{target} differ from the rows: {missing} missing, {repeated} repeated"
        );
    }
    let in_table = rows.count("SELECT count(*) FROM outbox_events").await;
    let facts = json!({"seed": tier::seed(), "rows": in_table, "relayed": relayed, "missing": missing,
        "repeated": repeated, "kills": kills.all, "killsWhileRowsWaited": kills.while_rows_waited,
        "killsWhileRowsWereClaimed": kills.while_claimed});
    proof::record("outbox", name, &facts);
    assert!(kills.while_claimed >= wanted, "too few kills landed while rows were claimed: {facts}");
}

/// Settings under which rooms keep every event that these tests relay.
fn relaying(builder: Builder) -> Builder {
    builder.env("OUTBOX_RELAY", "*=room").env("STREAM_MAXLEN", 1_000_000)
}

#[tokio::test]
async fn rows_become_events_of_rooms_once_and_in_order_while_the_hub_is_killed() {
    let test = OutboxTest::start_with(None, relaying).await.unwrap();
    let name = "rows_become_events_of_rooms_once_and_in_order_while_the_hub_is_killed";
    relay_while_killed(name, &[&test.hub], &test).await;
}

/// The hub dies between the append to the room and the update of the row: the stores differ, and agree again after
/// the restart.
pub(super) async fn a_row_appended_before_a_crash_is_one_event_of_its_room(flavour: Option<Flavour>) {
    let Some(test) = OutboxTest::start_with(flavour, relaying).await else { return };
    let (api, mut written) = (Api::new(&test.hub), 0);
    for point in crash_points::of("a_row_appended_before_a_crash_is_one_event_of_its_room") {
        for nth in [1, 2, 7] {
            crash_points::arm(&test.hub, point, nth).await;
            test.write("42", written..written + 10).await;
            let before = written;
            written += 10;
            crash_points::wait_dead(&test.hub, point, WAIT_TIMEOUT).await;
            // The room has the events of this batch, and none of its rows is marked as DONE.
            let done = test.count("SELECT count(*) FROM outbox_events WHERE status = 'DONE'").await;
            assert_eq!(done, before as i64, "rows that are marked at {point}");
            let appended = test.stored_in_rooms(&api).await;
            assert_eq!(appended, before + nth, "events that are stored at {point}");
            test.end_leases().await;
            test.hub.restart().await;
            wait::until(RELAY_TIMEOUT, async || test.not_done().await == 0).await;
            assert_eq!(numbers_in(&api, "42").await, (0..written).collect::<Vec<_>>(), "after {point}:{nth}");
        }
    }
}

async fn two_hubs(flavour: Flavour, name: &str) {
    if !tier::needs_engine("redis") || !tier::needs_engine(flavour.name()) {
        return;
    }
    let (redis, server) = (Redis::start().await, Server::start(flavour).await);
    let url = server.database();
    let start = async || {
        let hub = Hub::builder(BONGSU).env("REDIS_URL", redis.url()).env("DATABASE_URL", &url);
        relaying(hub).env("LOCK_TTL_SECS", 1).start().await
    };
    let hubs = [start().await, start().await];
    relay_while_killed(name, &[&hubs[0], &hubs[1]], &ServerDatabase(&server, Server::database_name(&url)))
        .await;
}

#[tokio::test]
async fn two_hubs_on_postgres_relay_each_row_once_while_they_are_killed() {
    two_hubs(Flavour::Postgres, "two_hubs_on_postgres_relay_each_row_once_while_they_are_killed").await;
}

#[tokio::test]
async fn two_hubs_on_mariadb_relay_each_row_once_while_they_are_killed() {
    two_hubs(Flavour::MariaDb, "two_hubs_on_mariadb_relay_each_row_once_while_they_are_killed").await;
}

/// Runs `bongsu dlq` on a hub.
fn dlq(hub: &Hub, arguments: &[&str]) -> Vec<Value> {
    let output = Command::new(BONGSU)
        .arg("dlq")
        .args(arguments)
        .args(["--url", &hub.url("")])
        .env_clear()
        .output()
        .expect("the command");
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {error}");
    out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| json!(line))).collect()
}

pub(super) async fn failing_rows_become_dead_letters_and_can_be_redriven(flavour: Option<Flavour>) {
    let with =
        |builder: Builder| builder.env("OUTBOX_RELAY", "proposal.created.v1=room, other.v1.x=room:lobby");
    let Some(test) = OutboxTest::start_with(flavour, with).await else { return };
    let api = Api::new(&test.hub).admin();
    // The second row's payload is not an object, as rooms require; the third is not valid JSON.
    test
        .sql(
            "INSERT INTO outbox_events (event_type, payload, target_event_id) VALUES \
             ('proposal.created.v1', '{\"proposal_id\": 1}', '42'), ('proposal.created.v1', '[2]', '42'), \
             ('proposal.created.v1', '{broken', '42'), ('proposal.created.v1', '{\"proposal_id\": 4}', '42'), \
             ('other.v1.x', '{\"proposal_id\": 5}', '42'), ('unrelated.v1', '{}', '42')",
        )
        .await;
    wait::until(WAIT_TIMEOUT, async || numbers_in(&api, "42").await == [1, 4]).await;
    let lobby = || async { api.person(1).get("/api/v1/rooms/lobby/events?since=0-0").await.expect(200) };
    wait::until(WAIT_TIMEOUT, async || lobby().await.result()["events"].as_array().unwrap().len() == 1).await;
    wait::until(WAIT_TIMEOUT, async || {
        api.get("/api/admin/dlq").await.expect(200).result()["queues"][0]["depth"] == 2
    })
    .await;
    let page = api.get(&format!("{DLQ_PATH}?limit=1")).await.expect(200);
    let first = page.result()["letters"][0].clone();
    assert_eq!((&first["type"], &first["key"]), (&json!("proposal.created.v1"), &json!("42")));
    assert_eq!(first["payload"], "[2]");
    assert!(first["reason"].as_str().unwrap().contains("object"), "{first}");
    let cursor = page.result()["nextCursor"].as_str().unwrap().to_owned();
    let second = api.get(&format!("{DLQ_PATH}?limit=1&cursor={cursor}")).await.expect(200).result().clone();
    assert_eq!((&second["letters"][0]["payload"], &second["nextCursor"]), (&json!("{broken"), &Value::Null));
    let (one, two) = (first["id"].clone(), second["letters"][0]["id"].clone());
    assert_eq!(dlq(&test.hub, &["list"])[0], json!({"queue": "outbox", "depth": 2}));
    assert_eq!(dlq(&test.hub, &["show", "outbox", &one.to_string()])[0], first);
    assert_eq!(dlq(&test.hub, &["list", "outbox"]).len(), 2);
    // An operator fixes the payload of one row and redrives it, and drops the other row.
    test.sql(&format!("UPDATE outbox_events SET payload = '{{\"proposal_id\": 2}}' WHERE id = {one}")).await;
    assert_eq!(dlq(&test.hub, &["redrive", "outbox", &one.to_string()]), [json!({"letters": 1})]);
    wait::until(WAIT_TIMEOUT, async || numbers_in(&api, "42").await == [1, 4, 2]).await;
    assert_eq!(dlq(&test.hub, &["redrive", "outbox", "--all"]), [json!({"letters": 1})]);
    assert_eq!(dlq(&test.hub, &["drop", "outbox", &two.to_string()]), [json!({"id": two})]);
    assert_eq!(dlq(&test.hub, &["list"])[0], json!({"queue": "outbox", "depth": 0}));
    // The hub refuses callers without an admin key, and dead letters that do not exist.
    let path = format!("{DLQ_PATH}/{two}");
    for (method, path) in [("GET", path.as_str()), ("DELETE", path.as_str()), ("GET", "/api/admin/dlq/none")]
    {
        api.call(method, path, "").await.expect_error(404, "COMMON404");
        api.person(7).call(method, path, "").await.expect_error(403, "COMMON403");
    }
    for (body, field) in [
        ("{}", "ids"),
        (r#"{"ids":["x"]}"#, "ids[0]"),
        (r#"{"all":1}"#, "all"),
        (r#"{"all":true,"rate":0}"#, "rate"),
        (r#"{"all":true,"ids":[1]}"#, "ids"),
    ] {
        let refused =
            api.call("POST", &format!("{DLQ_PATH}/redrive"), body).await.expect_error(400, "COMMON400");
        assert!(refused.message().contains(field), "{}", refused.text());
    }
    api.get(&format!("{DLQ_PATH}/x")).await.expect_error(400, "COMMON400");
    api.get(&format!("{DLQ_PATH}?cursor=x")).await.expect_error(400, "COMMON400");
}

pub(super) async fn a_row_with_an_id_past_2_to_the_53_is_named_by_text(flavour: Option<Flavour>) {
    // JavaScript would round this id to another number if JSON contained it as a number.
    const LARGE_ID: &str = "9007199254740993";
    let with = |builder: Builder| builder.env("OUTBOX_RELAY", "proposal.created.v1=room");
    let Some(test) = OutboxTest::start_with(flavour, with).await else { return };
    let api = Api::new(&test.hub).admin();
    test.accept("42", &[7]).await;
    let mut stream = open(test.stream_request("42", 7)).await;
    let row = format!("({LARGE_ID}, 'proposal.created.v1', '[2]', '42')");
    test.sql(&format!("INSERT INTO outbox_events (id, event_type, payload, target_event_id) VALUES {row}"))
        .await;
    let event = stream.next_event(WAIT_TIMEOUT).await.expect("an event");
    assert_eq!((event.own_id.as_deref(), &event.json()["id"]), (Some(LARGE_ID), &json!(LARGE_ID)));
    wait::until(WAIT_TIMEOUT, async || {
        dlq(&test.hub, &["list"])[0] == json!({"queue": "outbox", "depth": 1})
    })
    .await;
    assert_eq!(dlq(&test.hub, &["list", "outbox"])[0]["id"], LARGE_ID);
    assert_eq!(api.get(&format!("{DLQ_PATH}/{LARGE_ID}")).await.expect(200).result()["id"], LARGE_ID);
    // A JSON number above 2^53 may have been rounded by its sender, so it is refused as an id.
    let rounded = format!("{{\"ids\":[{LARGE_ID}]}}");
    api.call("POST", &format!("{DLQ_PATH}/redrive"), rounded).await.expect_error(400, "COMMON400");
    test.sql(&format!("UPDATE outbox_events SET payload = '{{\"proposal_id\": 2}}' WHERE id = {LARGE_ID}"))
        .await;
    assert_eq!(dlq(&test.hub, &["redrive", "outbox", LARGE_ID]), [json!({"letters": 1})]);
    wait::until(WAIT_TIMEOUT, async || numbers_in(&api, "42").await == [2]).await;
}
