//! A disk that is really full: publishing is refused, everything else works, and publishing resumes once there is
//! space.

use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Answer, Api, Hub, proof, wait};
use serde_json::{Value, json};

use super::disk::Disk;
use super::{WAIT_TIMEOUT, database};

const STREAM_PATH: &str = "/api/v1/rooms/r/stream";

/// A hub on a disk of 8 MiB, of which a removable file takes 3 MiB.
struct FullDiskTest {
    hub: Hub,
    api: Api,
    disk: Disk,
}

impl FullDiskTest {
    async fn start() -> Option<Self> {
        let disk = Disk::mount("size=8m")?;
        let data_dir = disk.path().join("data");
        let hub = Hub::builder(crate::BONGSU).wrapper(disk.wrapper()).data_dir(data_dir).start().await;
        std::fs::write(disk.outside().join("ballast"), vec![1; 3 << 20]).unwrap();
        let api = Api::new(&hub).with_header("accept-language", "en");
        Some(Self { hub, api, disk })
    }

    /// Publishes until an event is refused; returns the ids of the stored events and the refusal.
    async fn fill(&self) -> (Vec<String>, Answer) {
        let mut ids = Vec::new();
        loop {
            let answer = self.api.publish(event(ids.len())).await;
            if answer.status != 200 {
                return (ids, answer);
            }
            ids.push(id(&answer));
            assert!(ids.len() < 10_000, "the disk never got full");
        }
    }

    fn make_room(&self) {
        std::fs::remove_file(self.disk.outside().join("ballast")).unwrap();
    }

    async fn health(&self) -> Value {
        self.api.get("/health").await.expect(200).result().clone()
    }
}

fn event(n: usize) -> Value {
    let data = json!({"n": n, "text": "x".repeat(2_000)});
    json!({"roomId": "r", "eventType": "a.b", "data": data, "idempotencyKey": format!("key-{n}")})
}

fn id(answer: &Answer) -> String {
    answer.result()["streamId"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn a_full_disk_stops_publishing_only_and_is_survived() {
    let Some(test) = FullDiskTest::start().await else { return };
    let FullDiskTest { hub, api, disk } = &test;
    let mut stream = Stream::request(hub, STREAM_PATH).person(1).open().await.expect("a stream");
    let (mut acknowledged, refused) = test.fill().await;
    let refused = refused.expect_error(500, "NOTIF5001");
    assert!(refused.message().contains("disk is full"), "{}", refused.message());

    // Reading still works, and no refused event is delivered.
    let seen = stream.take_events(acknowledged.len(), WAIT_TIMEOUT).await;
    assert_eq!(seen.iter().map(|event| event.id.clone()).collect::<Vec<_>>(), acknowledged);
    assert_eq!(api.stored_ids("r").await, acknowledged);
    api.publish(event(acknowledged.len())).await.expect_error(500, "NOTIF5001");
    Stream::request(hub, STREAM_PATH).person(2).open().await.expect("a stream");

    // Once there is space again, publishing works without a restart.
    let when_full = acknowledged.len();
    test.make_room();
    for n in when_full..when_full + 20 {
        let answer = api.publish(event(n)).await.expect(200);
        assert_eq!(answer.result()["duplicate"], false, "a refused event used up its key");
        assert_eq!(stream.expect_event("a.b", WAIT_TIMEOUT).await.id, id(&answer));
        acknowledged.push(id(&answer));
    }
    wait::until(WAIT_TIMEOUT, async || test.health().await["status"] == "healthy").await;

    hub.kill9().await;
    hub.restart().await;
    let stored = api.stored_ids("r").await;
    let missing = acknowledged.iter().filter(|id| !stored.contains(id)).count();
    assert_eq!(stored, acknowledged, "events after a kill");
    assert!(hub.terminate().await.success());
    // SQLite cannot open the file by a path through /proc, so the test copies it.
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(database(&disk.outside().join("data")), database(copy.path())).unwrap();
    let file = rusqlite::Connection::open(database(copy.path())).unwrap();
    let verdict: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
    let entries: u32 = file.query_row("SELECT count(*) FROM entries", [], |row| row.get(0)).unwrap();
    assert_eq!(entries as usize, acknowledged.len(), "events in the database file after a clean stop");
    proof::record(
        "rooms",
        "a_full_disk_stops_publishing_only_and_is_survived",
        json!({"acknowledged": acknowledged.len(), "acknowledgedWhenFull": when_full, "missing": missing}),
    );
}

#[tokio::test]
async fn a_hub_that_is_killed_on_a_full_disk_has_everything_when_there_is_space() {
    let Some(test) = FullDiskTest::start().await else { return };
    let (acknowledged, _) = test.fill().await;
    test.hub.kill9().await;
    test.make_room();
    test.hub.restart().await;
    assert_eq!(test.api.stored_ids("r").await, acknowledged);
    test.api.publish(event(acknowledged.len())).await.expect(200);
}

#[tokio::test]
async fn a_full_disk_shows_in_health_for_as_long_as_it_lasts() {
    let Some(test) = FullDiskTest::start().await else { return };
    test.fill().await;
    // While no event is published, the status must stay degraded, here for two seconds of the hub's uptime.
    let mut until = None;
    loop {
        let health = test.health().await;
        assert_eq!(health["status"], "degraded", "{health}");
        let trouble = health["degraded"][0].as_str().expect("a reason");
        assert!(trouble.contains("disk") && trouble.contains("full"), "{health}");
        let uptime = health["uptimeSecs"].as_u64().expect("seconds");
        if uptime > *until.get_or_insert(uptime + 2) {
            break;
        }
    }
    test.make_room();
    test.api.publish_to("r", "a.b", json!({})).await;
    wait::until(WAIT_TIMEOUT, async || test.health().await["status"] == "healthy").await;
}
