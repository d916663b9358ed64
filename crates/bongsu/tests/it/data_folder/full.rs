//! A disk that is really full: publishing is refused, nothing else suffers, and it goes on by itself.

use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Answer, Api, Hub, proof, wait};
use serde_json::{Value, json};

use super::disk::Disk;
use super::{LONG, database};

const STREAM: &str = "/api/v1/rooms/r/stream";

/// A hub on a disk of 8 MiB, 3 of which are taken by a file that can be removed.
struct Scene {
    hub: Hub,
    api: Api,
    disk: Disk,
}

impl Scene {
    async fn start() -> Option<Self> {
        let disk = Disk::mount("size=8m")?;
        let data_dir = disk.path().join("data");
        let hub = Hub::builder(crate::BONGSU).wrapper(disk.wrapper()).data_dir(data_dir).start().await;
        std::fs::write(disk.outside().join("ballast"), vec![1; 3 << 20]).unwrap();
        let api = Api::new(&hub).with_header("accept-language", "en");
        Some(Self { hub, api, disk })
    }

    /// Publishes until it is refused: the ids, and the refusal.
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
    let Some(scene) = Scene::start().await else { return };
    let Scene { hub, api, disk } = &scene;
    let mut stream = Stream::request(hub, STREAM).person(1).open().await.expect("a stream");
    let (mut acknowledged, refused) = scene.fill().await;
    let refused = refused.expect_error(500, "NOTIF5001");
    assert!(refused.message().contains("disk is full"), "{}", refused.message());

    // Reading goes on, and nothing that was refused is seen.
    let seen = stream.take_events(acknowledged.len(), LONG).await;
    assert_eq!(seen.iter().map(|event| event.id.clone()).collect::<Vec<_>>(), acknowledged);
    assert_eq!(api.stored_ids("r").await, acknowledged);
    api.publish(event(acknowledged.len())).await.expect_error(500, "NOTIF5001");
    Stream::request(hub, STREAM).person(2).open().await.expect("a stream");

    // With space again, publishing goes on by itself.
    let when_full = acknowledged.len();
    scene.make_room();
    for n in when_full..when_full + 20 {
        let answer = api.publish(event(n)).await.expect(200);
        assert_eq!(answer.result()["duplicate"], false, "a refused event was kept");
        assert_eq!(stream.expect_event("a.b", LONG).await.id, id(&answer));
        acknowledged.push(id(&answer));
    }
    wait::until(LONG, async || scene.health().await["status"] == "healthy").await;

    hub.kill9().await;
    hub.restart().await;
    let stored = api.stored_ids("r").await;
    let missing = acknowledged.iter().filter(|id| !stored.contains(id)).count();
    assert_eq!(stored, acknowledged, "after a crash");
    assert!(hub.terminate().await.success());
    // SQLite would not find the file by a name that leads through /proc.
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(database(&disk.outside().join("data")), database(copy.path())).unwrap();
    let file = rusqlite::Connection::open(database(copy.path())).unwrap();
    let verdict: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
    let entries: u32 = file.query_row("SELECT count(*) FROM entries", [], |row| row.get(0)).unwrap();
    assert_eq!(entries as usize, acknowledged.len(), "a clean stop leaves a file that is whole in itself");
    proof::record(
        "rooms",
        "a_full_disk_stops_publishing_only_and_is_survived",
        json!({"acknowledged": acknowledged.len(), "acknowledgedWhenFull": when_full, "missing": missing}),
    );
}

#[tokio::test]
async fn a_hub_that_is_killed_on_a_full_disk_has_everything_when_there_is_space() {
    let Some(scene) = Scene::start().await else { return };
    let (acknowledged, _) = scene.fill().await;
    scene.hub.kill9().await;
    scene.make_room();
    scene.hub.restart().await;
    assert_eq!(scene.api.stored_ids("r").await, acknowledged);
    scene.api.publish(event(acknowledged.len())).await.expect(200);
}

#[tokio::test]
async fn a_full_disk_shows_in_health_for_as_long_as_it_lasts() {
    let Some(scene) = Scene::start().await else { return };
    scene.fill().await;
    // Nothing is published meanwhile, and nothing gets better: two seconds of the hub's own time.
    let mut until = None;
    loop {
        let health = scene.health().await;
        assert_eq!(health["status"], "degraded", "{health}");
        let trouble = health["degraded"][0].as_str().expect("what is wrong");
        assert!(trouble.contains("disk") && trouble.contains("full"), "{health}");
        let uptime = health["uptimeSecs"].as_u64().expect("seconds");
        if uptime > *until.get_or_insert(uptime + 2) {
            break;
        }
    }
    scene.make_room();
    scene.api.publish_to("r", "a.b", json!({})).await;
    wait::until(LONG, async || scene.health().await["status"] == "healthy").await;
}
