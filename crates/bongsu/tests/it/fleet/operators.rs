//! A Redis that other programs use as well: an account limited to one key prefix, keys of another type, and `doctor`.

use std::process::Command;

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Api, Engine, tier, wait};
use serde_json::json;

use super::{Fleet, WAIT_TIMEOUT, health, hub};
use crate::BONGSU;

#[tokio::test]
async fn a_hub_needs_no_redis_permission_outside_its_prefix() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let words = ["ACL", "SETUSER", "tenant", "on", ">secret", "~pp:*", "&pp:*", "+@all"];
    redis.command(&words).await.expect_ok();
    let url = format!("redis://tenant:secret@{}", redis.addr());
    let start = async || hub(&url).env("REDIS_KEY_PREFIX", "pp:").start().await;
    let fleet = Fleet { hubs: [start().await, start().await] };
    let [one, other] = fleet.apis();
    let mut stream =
        Stream::request(&fleet.hubs[0], "/api/v1/rooms/1/stream").person(7).open().await.unwrap();
    let event = json!({"roomId": 1, "eventType": "a.b", "data": {}, "idempotencyKey": "k"});
    let id = other.publish(&event).await.expect(200).result()["streamId"].clone();
    assert_eq!(stream.expect_event("a.b", WAIT_TIMEOUT).await.own_id.map(Into::into), Some(id));
    one.person(7).post("/api/v1/rooms/1/presence/heartbeat", json!({})).await.expect(200);
    let present =
        async || other.person(8).get("/api/v1/rooms/1/presence").await.expect(200).result()["count"].clone();
    wait::until(WAIT_TIMEOUT, async || present().await == 1).await;
    one.person(7).post("/api/v1/stream-tickets", json!({})).await.expect(200);
    other.admin().post("/api/admin/users/7/revoke", json!({})).await.expect(200);
    assert_eq!(stream.expect_event("system.close", WAIT_TIMEOUT).await.json()["code"], 3502);
    let keys = redis.command(&["KEYS", "*"]).await;
    for key in keys.items() {
        assert!(key.text().starts_with("pp:"), "{} lacks the prefix", key.text());
    }
    assert_eq!(health(&fleet.hubs[0]).await["status"], "healthy");
}

#[tokio::test]
async fn a_room_that_cannot_be_read_does_not_delay_the_repair_of_others() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let hub = hub(&redis.url()).start().await;
    let api = Api::new(&hub);
    let open = async |room: &str| {
        let request = Stream::request(&hub, &format!("/api/v1/rooms/{room}/stream")).person(7);
        request.open().await.expect("a stream")
    };
    let mut whole = open("whole").await;
    let mut broken = Vec::new();
    for n in 0..20 {
        let room = format!("broken-{n}");
        broken.push(open(&room).await);
        redis.command(&["SET", &format!("room:events:{room}"), "no stream"]).await.expect_ok();
    }
    api.publish_to("whole", "a.b", json!({"n": 1})).await;
    whole.expect_event("a.b", WAIT_TIMEOUT).await;
    // No message announces this event; only the log has it.
    let fields = ["type", "a.b", "payload", "{\"n\":2}", "publisher_id", "", "timestamp", "1"];
    redis.command(&[&["XADD", "room:events:whole", "*"][..], &fields].concat()).await;
    assert_eq!(whole.expect_event("a.b", WAIT_TIMEOUT / 2).await.json()["n"], 2);
}

/// The output of `bongsu doctor` for a Redis, on a machine whose clock is this many milliseconds ahead.
fn doctor(url: &str, clock_ahead_ms: u64) -> String {
    let folder = tempfile::tempdir().unwrap();
    let clock = folder.path().join("clock");
    std::fs::write(&clock, clock_ahead_ms.to_string()).unwrap();
    let mut command = Command::new(BONGSU);
    command.arg("doctor").env_clear().current_dir(folder.path());
    command.envs([("REDIS_URL", url), ("RECORDS", "off")]).env("BONGSU_CLOCK_FILE", clock);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[tokio::test]
async fn doctor_checks_redis_and_its_clock_and_leaves_no_key() {
    if !tier::needs_engine("redis") {
        return;
    }
    let sound =
        "ok    Redis answers, takes writes, keeps what it acknowledges and forgets nothing when it is full";
    let redis = Redis::start().await;
    let said = doctor(&redis.url(), 0);
    assert!(said.contains(sound), "{said}");
    assert!(said.contains("ok    the clock of Redis agrees with this machine's"), "{said}");
    assert_eq!(redis.command(&["DBSIZE"]).await.integer(), 0, "doctor must leave no key");
    let cluster = Engine::Cluster.shared_url().await.expect("a Cluster");
    assert!(doctor(&cluster, 0).contains(sound));

    let said = doctor(&redis.url(), 5_000);
    assert!(
        said.contains("note  the clock of Redis is ") && said.contains(" ms behind this machine's"),
        "{said}"
    );
    let said = doctor(&redis.url(), 120_000);
    assert!(said.contains("BAD   the clock of Redis is "), "{said}");

    for (setting, value, finding) in [
        ("appendfsync", "everysec", "note  redis: appendfsync is not always"),
        ("maxmemory-policy", "allkeys-lru", "note  redis: maxmemory-policy is not noeviction"),
        ("appendonly", "no", "note  redis: appendonly is off"),
    ] {
        redis.command(&["CONFIG", "SET", setting, value]).await.expect_ok();
        let said = doctor(&redis.url(), 0);
        assert!(said.contains(finding) && !said.contains(sound), "{said}");
    }
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await.expect_ok();
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await.expect_ok();
    let said = doctor(&redis.url(), 0);
    assert!(said.contains("BAD   Redis takes no writes: a server has reached maxmemory"), "{said}");
    redis.kill9().await;
    let said = doctor(&redis.url(), 0);
    assert!(said.contains("BAD   Redis cannot be reached"), "{said}");
}
