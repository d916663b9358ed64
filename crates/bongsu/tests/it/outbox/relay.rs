//! Rows that go on to rooms: each becomes one event, in the order of its target, whoever is killed meanwhile; and what
//! cannot is given up, seen by operators, and tried again.

use std::process::Command;
use std::time::Duration;

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::{Api, Hub, Rng, proof, tier, wait};
use serde_json::{Value, json};

use super::{SOON, Scene};
use crate::BONGSU;

const LONG: Duration = Duration::from_secs(120);
const TARGETS: u64 = 4;
const DLQ: &str = "/api/admin/dlq/outbox";

/// What a room has, by the numbers of rows.
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

/// Where rows are written, and how it is seen that nothing is left to do.
trait Rows {
    async fn run(&self, sql: &str);
    async fn undone(&self) -> i64;
}

impl Rows for Scene {
    async fn run(&self, sql: &str) {
        self.sql(sql).await;
    }

    async fn undone(&self) -> i64 {
        let file = rusqlite::Connection::open(self.hub.data_dir().join("bongsu.db")).unwrap();
        let count = "SELECT count(*) FROM outbox_events WHERE status <> 'DONE'";
        file.query_row(count, [], |row| row.get(0)).unwrap()
    }
}

/// A database, by its server and name.
struct On<'a>(&'a Server, &'a str);

impl Rows for On<'_> {
    async fn run(&self, sql: &str) {
        self.0.execute(self.1, sql);
    }

    async fn undone(&self) -> i64 {
        let count = "SELECT count(*) FROM outbox_events WHERE status <> 'DONE'";
        self.0.execute(self.1, count).trim().parse().unwrap()
    }
}

/// Writes rows while hubs are killed, and compares what rooms have with what was written.
async fn killed_at_random(name: &str, hubs: &[&Hub], rows: &impl Rows) {
    let (mut rng, count) = (Rng::for_test(name), tier::size(400, 20_000) as u64);
    let (mut kills, mut landed, batches) = (0, 0, tier::size(8, 100) as u64);
    for batch in 0..batches {
        let numbers = (batch * count / batches)..((batch + 1) * count / batches);
        for number in numbers {
            rows.run(&super::rows(&format!("t{}", number % TARGETS), [number])).await;
        }
        let hub = hubs[rng.below(hubs.len() as u64) as usize];
        landed += usize::from(rows.undone().await > 0);
        kills += 1;
        hub.restart().await;
    }
    wait::until(LONG, async || rows.undone().await == 0).await;
    let api = Api::new(hubs[0]);
    let mut relayed = 0;
    for target in 0..TARGETS {
        let expected: Vec<u64> = (0..count).filter(|number| number % TARGETS == target).collect();
        let found = numbers_in(&api, &format!("t{target}")).await;
        assert_eq!(found, expected, "each once, in order, in the room of t{target}");
        relayed += found.len();
    }
    let facts = json!({"seed": tier::seed(), "rows": count, "relayed": relayed, "kills": kills,
        "killsWhileRowsWaited": landed});
    proof::record("outbox", name, facts);
}

#[tokio::test]
async fn rows_become_events_of_rooms_once_and_in_order_while_the_hub_is_killed() {
    let with = |builder: bongsu_testkit::hub::Builder| builder.env("OUTBOX_RELAY", "*=room");
    let scene = Scene::start_with(None, with).await.unwrap();
    let name = "rows_become_events_of_rooms_once_and_in_order_while_the_hub_is_killed";
    killed_at_random(name, &[&scene.hub], &scene).await;
}

async fn two_hubs(flavour: Flavour, name: &str) {
    if !tier::needs_engine("redis") || !tier::needs_engine(flavour.name()) {
        return;
    }
    let (redis, server) = (Redis::start().await, Server::start(flavour).await);
    let url = server.database();
    let start = async || {
        let hub = Hub::builder(BONGSU).env("REDIS_URL", redis.url()).env("DATABASE_URL", &url);
        hub.env("OUTBOX_RELAY", "*=room").env("LOCK_TTL_SECS", 1).start().await
    };
    let hubs = [start().await, start().await];
    killed_at_random(name, &[&hubs[0], &hubs[1]], &On(&server, Server::name_in(&url))).await;
}

#[tokio::test]
async fn two_hubs_on_postgres_relay_each_row_once_while_they_are_killed() {
    two_hubs(Flavour::Postgres, "two_hubs_on_postgres_relay_each_row_once_while_they_are_killed").await;
}

#[tokio::test]
async fn two_hubs_on_mariadb_relay_each_row_once_while_they_are_killed() {
    two_hubs(Flavour::MariaDb, "two_hubs_on_mariadb_relay_each_row_once_while_they_are_killed").await;
}

/// `bongsu dlq` on a hub.
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

pub(super) async fn what_cannot_go_on_is_given_up_seen_and_tried_again(flavour: Option<Flavour>) {
    let with = |builder: bongsu_testkit::hub::Builder| {
        builder.env("OUTBOX_RELAY", "proposal.created.v1=room, other.v1.x=room:lobby")
    };
    let Some(scene) = Scene::start_with(flavour, with).await else { return };
    let api = Api::new(&scene.hub).admin();
    // The second is no object, as rooms want it; the third is nothing at all.
    scene
        .sql(
            "INSERT INTO outbox_events (event_type, payload, target_event_id) VALUES \
             ('proposal.created.v1', '{\"proposal_id\": 1}', '42'), ('proposal.created.v1', '[2]', '42'), \
             ('proposal.created.v1', '{broken', '42'), ('proposal.created.v1', '{\"proposal_id\": 4}', '42'), \
             ('other.v1.x', '{\"proposal_id\": 5}', '42'), ('unrelated.v1', '{}', '42')",
        )
        .await;
    wait::until(SOON, async || numbers_in(&api, "42").await == [1, 4]).await;
    let lobby = || async { api.person(1).get("/api/v1/rooms/lobby/events?since=0-0").await.expect(200) };
    wait::until(SOON, async || lobby().await.result()["events"].as_array().unwrap().len() == 1).await;
    wait::until(SOON, async || {
        api.get("/api/admin/dlq").await.expect(200).result()["queues"][0]["depth"] == 2
    })
    .await;
    let page = api.get(&format!("{DLQ}?limit=1")).await.expect(200);
    let first = page.result()["letters"][0].clone();
    assert_eq!((&first["type"], &first["key"]), (&json!("proposal.created.v1"), &json!("42")));
    assert_eq!(first["payload"], "[2]");
    assert!(first["reason"].as_str().unwrap().contains("object"), "{first}");
    let cursor = page.result()["nextCursor"].as_str().unwrap().to_owned();
    let second = api.get(&format!("{DLQ}?limit=1&cursor={cursor}")).await.expect(200).result().clone();
    assert_eq!((&second["letters"][0]["payload"], &second["nextCursor"]), (&json!("{broken"), &Value::Null));
    let (one, two) = (first["id"].clone(), second["letters"][0]["id"].clone());
    assert_eq!(dlq(&scene.hub, &["list"]), [json!({"queue": "outbox", "depth": 2})]);
    assert_eq!(dlq(&scene.hub, &["show", "outbox", &one.to_string()])[0], first);
    assert_eq!(dlq(&scene.hub, &["list", "outbox"]).len(), 2);
    // Somebody mends them; one is tried again, the other one is let go.
    scene.sql(&format!("UPDATE outbox_events SET payload = '{{\"proposal_id\": 2}}' WHERE id = {one}")).await;
    assert_eq!(dlq(&scene.hub, &["redrive", "outbox", &one.to_string()]), [json!({"letters": 1})]);
    wait::until(SOON, async || numbers_in(&api, "42").await == [1, 4, 2]).await;
    assert_eq!(dlq(&scene.hub, &["redrive", "outbox", "--all"]), [json!({"letters": 1})]);
    assert_eq!(dlq(&scene.hub, &["drop", "outbox", &two.to_string()]), [json!({"id": two})]);
    assert_eq!(dlq(&scene.hub, &["list"]), [json!({"queue": "outbox", "depth": 0})]);
    // Who may not, and what is not there.
    let path = format!("{DLQ}/{two}");
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
        let refused = api.call("POST", &format!("{DLQ}/redrive"), body).await.expect_error(400, "COMMON400");
        assert!(refused.message().contains(field), "{}", refused.text());
    }
    api.get(&format!("{DLQ}/x")).await.expect_error(400, "COMMON400");
    api.get(&format!("{DLQ}?cursor=x")).await.expect_error(400, "COMMON400");
}
