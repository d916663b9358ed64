//! The process is killed under load, at random moments and at every crash point of the code: every acknowledged event
//! is stored once with its id, and readers that resume see every event once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

mod load;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bongsu_testkit::sse::{ResumingClient, Stream};
use bongsu_testkit::{Api, Hub, Rng, proof, tier, wait};
use futures_util::future::join_all;
use serde_json::json;

use load::{Load, MAIN_ROOM, StoredEvent, TRIMMED_ROOM};

use crate::crash_points;

const PUBLISHERS: usize = 8;
const READERS: usize = 4;
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_hub_that_is_killed_at_random_under_load_keeps_every_acknowledged_event() {
    let name = "a_hub_that_is_killed_at_random_under_load_keeps_every_acknowledged_event";
    let rounds = tier::size(5, 100);
    let (hub, load, mut rng) = (hub().await, Load::default(), Rng::for_test(name));
    let killing = async {
        let (mut landed, mut kills) = (0, 0);
        // A kill between an answer and the next request proves little, so only kills with requests in flight count as
        // rounds.
        while landed < rounds && kills < rounds * 20 {
            kills += 1;
            let enough = load.acknowledged.load(Ordering::SeqCst) + rng.range(20..400);
            wait::until(WAIT_TIMEOUT, async || load.acknowledged.load(Ordering::SeqCst) >= enough).await;
            let before = load.cut.load(Ordering::SeqCst);
            hub.kill9().await;
            hub.restart().await;
            landed += usize::from(load.cut.load(Ordering::SeqCst) > before);
        }
        landed
    };
    let landed = run_scenario(&hub, &load, name, killing).await;
    assert!(landed >= rounds, "only {landed} kills landed while requests were in flight");
}

#[tokio::test]
async fn a_hub_that_dies_at_any_crash_point_keeps_every_acknowledged_event() {
    let name = "a_hub_that_dies_at_any_crash_point_keeps_every_acknowledged_event";
    let points = crash_points::of(name);
    let times = tier::size(1, 10);
    let (hub, load, mut rng) = (hub().await, Load::default(), Rng::for_test(name));
    let killing = async {
        let mut landed = 0;
        for point in points {
            let (mut here, mut kills) = (0, 0);
            // Only kills with requests in flight count: the hub's background work may reach the crash point, too.
            while here < times && kills < times * 20 {
                kills += 1;
                load.pause();
                crash_points::arm(&hub, point, rng.range(3..40)).await;
                let before = load.cut.load(Ordering::SeqCst);
                load.resume();
                crash_points::wait_dead(&hub, point, WAIT_TIMEOUT).await;
                let cut = async || load.cut.load(Ordering::SeqCst) > before;
                here += usize::from(wait::holds_within(Duration::from_secs(1), cut).await);
            }
            assert!(
                here >= times,
                "only {here} of {kills} kills at {point} landed while requests were in flight"
            );
            landed += here;
        }
        hub.restart().await;
        landed
    };
    run_scenario(&hub, &load, name, killing).await;
}

#[tokio::test]
async fn every_acknowledged_group_commit_was_synced() {
    if !tier::needs_engine("strace") {
        return;
    }
    let trace = tempfile::NamedTempFile::new().unwrap();
    let strace = tier::program("strace").display().to_string();
    let file = trace.path().display().to_string();
    let words = [&strace, "-f", "-y", "-e", "trace=fdatasync,fsync", "-o", &file].map(str::to_owned).to_vec();
    let hub = Hub::builder(crate::BONGSU).wrapper(words).start().await;
    let api = Api::new(&hub);
    let syncs = || {
        let trace = std::fs::read_to_string(trace.path()).unwrap();
        let is_start = |line: &&str| line.contains("fdatasync(") || line.contains("fsync(");
        trace.lines().filter(is_start).filter(|line| line.contains("bongsu.db-wal>")).count()
    };
    let commits = async || hub.metrics().await.get("store_commits_total", &[]) as usize;
    // The hub also commits in the background. One thread writes, so when this answer arrives, all syncs before it are
    // counted, and no commit is counted without its sync. The sync of a later commit comes afterwards.
    let syncs_before = syncs();
    api.publish_to("sync", "a.b", json!({})).await;
    let commits_before = commits().await - 1;

    // Each publish waits for the answer to the previous one, so each is stored by a separate group commit.
    let (alone, mut acknowledged) = (tier::size(50, 500), Vec::new());
    for n in 0..alone {
        acknowledged.push(api.publish_to("sync", "a.b", json!({"n": n})).await);
        let (commits, syncs) = (commits().await - commits_before, syncs() - syncs_before);
        assert!(commits > n, "{} answers, {commits} commits", n + 1);
        assert!(syncs >= commits, "{commits} group commits were acknowledged with {syncs} syncs");
    }
    // Concurrent publishes share group commits: there are fewer commits than answers, and still one sync per commit.
    let together = tier::size(400, 4_000);
    let publishing = (0..together).map(|n| api.publish_to("sync", "a.b", json!({"n": n})));
    acknowledged.extend(join_all(publishing).await);
    let (commits, syncs) = (commits().await - commits_before, syncs() - syncs_before);
    assert!(syncs >= commits, "{commits} group commits were acknowledged with {syncs} syncs");
    assert!(commits < acknowledged.len(), "no commit had several events");
    proof::record(
        "rooms",
        "every_acknowledged_group_commit_was_synced",
        json!({"acknowledged": acknowledged.len(), "groupCommits": commits, "syncs": syncs}),
    );
}

async fn hub() -> Hub {
    let hub = Hub::builder(crate::BONGSU).env("SSE_MAX_CONNECTIONS_PER_USER", 0);
    let hub = hub.env("STREAM_MAXLEN", 1_000_000).env("STREAM_MAXLEN_PER_ROOM", format!("{TRIMMED_ROOM}=5"));
    hub.env("SSE_CHANNEL_CAPACITY", 32).start().await
}

/// Runs publishers and readers while `killing` kills the hub, then compares their records with the log.
async fn run_scenario(hub: &Hub, load: &Load, name: &str, killing: impl Future<Output = usize>) -> usize {
    let api = Api::new(hub);
    let mut rng = Rng::for_test(&format!("{name} load"));
    let publishing = (0..PUBLISHERS).map(|_| load.publish(&api, Rng::new(rng.next_u64())));
    let publishing = join_all(publishing.collect::<Vec<_>>());
    let reading = join_all((0..READERS).map(|reader| read(hub, reader)));
    let working = async {
        let kills = async {
            let landed = killing.await;
            load.stop();
            landed
        };
        let (landed, _, ()) = tokio::join!(kills, publishing, load.register(&api));
        // The readers stop at this event.
        api.publish_to(MAIN_ROOM, "crash.end", json!({"n": u64::MAX})).await;
        landed
    };
    let (landed, seen) = tokio::join!(working, reading);

    let registered = load.registered.load(Ordering::SeqCst);
    let file = rusqlite::Connection::open(hub.data_dir().join("bongsu.db")).unwrap();
    let members: i64 = file.query_row("SELECT count(*) FROM bongsu_members", [], |row| row.get(0)).unwrap();
    assert_eq!(members, registered as i64, "members that were acknowledged");
    drop(file);

    let told = load.published();
    let mut kept = load::stored_events(&api, MAIN_ROOM).await;
    let end = kept.pop().expect("the last event");
    assert_eq!(end.n, u64::MAX);
    let (missing, repeated) = load::compare(&told, &kept);
    let stored: Vec<(String, u64)> = kept.iter().map(|event| (event.id.clone(), event.n)).collect();
    let (mut lost, mut again) = (0, 0);
    for seen in &seen {
        let distinct: BTreeSet<_> = seen.iter().collect();
        lost += stored.iter().filter(|one| !distinct.contains(one)).count();
        again += seen.len() - distinct.len();
    }
    proof::record(
        "rooms",
        name,
        json!({
            "seed": tier::seed(), "killsInFlight": landed,
            "requestsCut": load.cut.load(Ordering::SeqCst),
            "acknowledged": load.acknowledged.load(Ordering::SeqCst),
            "repeatedUnderTheirKey": load.found_stored.load(Ordering::SeqCst),
            "delivered": seen.iter().map(Vec::len).sum::<usize>(),
            "missing": missing + lost, "repeated": repeated + again,
        }),
    );
    assert_eq!((missing, repeated), (0, 0), "acknowledged events that are missing, and stored twice");
    for seen in &seen {
        assert!(*seen == stored, "a reader did not see the stored events in their order");
    }
    check_trimmed_room(&told, &load::stored_events(&api, TRIMMED_ROOM).await);
    check_inbox(hub, &told, &stored).await;
    landed
}

/// Reads the room across all crashes, from its beginning to the last event.
async fn read(hub: &Hub, reader: usize) -> Vec<(String, u64)> {
    let request = Stream::request(hub, &format!("/api/v1/rooms/{MAIN_ROOM}/stream")).person(reader);
    let request = if reader == 0 { request.http2() } else { request };
    let stream = ResumingClient::new(request).starting_after("0-0");
    let mut stream = stream.max_retry_delay(Duration::from_millis(20));
    let mut seen = Vec::new();
    loop {
        let event = stream.next_event(WAIT_TIMEOUT * 2).await.expect("an open stream");
        match event.event.as_str() {
            "crash.counted" => {
                seen.push((
                    event.own_id.clone().expect("an id"),
                    event.json()["n"].as_u64().expect("a number"),
                ));
            }
            "crash.end" => return seen,
            other => panic!("a reader received {other}: {event:?}"),
        }
    }
}

/// Checks that the trimmed room holds its newest events and no others.
fn check_trimmed_room(told: &std::collections::HashMap<u64, load::PublishedEvent>, kept: &[StoredEvent]) {
    load::assert_in_order(kept);
    assert!((5..=10).contains(&kept.len()), "the room must keep 5 to 10 events, and has {}", kept.len());
    for event in kept {
        load::assert_same_content(&told[&event.n], event);
    }
    let newest = told.values().filter(|told| told.room == TRIMMED_ROOM).filter_map(|told| told.id.as_deref());
    let newest = newest.max_by_key(|id| load::number(id)).expect("an acknowledged event");
    assert_eq!(kept.last().map(|event| event.id.as_str()), Some(newest));
}

/// Checks that every recipient of an event has exactly one inbox entry for it, in the order of the room, and no other
/// entries.
async fn check_inbox(
    hub: &Hub,
    told: &std::collections::HashMap<u64, load::PublishedEvent>,
    stored: &[(String, u64)],
) {
    let open = || rusqlite::Connection::open(hub.data_dir().join("bongsu.db")).unwrap();
    let waiting =
        || open().query_row("SELECT count(*) FROM follow_ups", [], |row| row.get::<_, i64>(0)).unwrap();
    wait::until(WAIT_TIMEOUT, async || waiting() == 0).await;
    assert!(hub.terminate().await.success());
    let database = open();
    let mut query = database
        .prepare(
            "SELECT notice.event_id FROM bongsu_inbox entry JOIN bongsu_notices notice ON notice.id = entry.notice_id
             WHERE notice.ref_id = ?1 ORDER BY entry.seq",
        )
        .unwrap();
    let written: Vec<String> =
        query.query_map([MAIN_ROOM], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    let expected: Vec<String> = stored
        .iter()
        .filter(|(_, n)| told[n].event.get("recipients").is_some())
        .map(|(id, _)| format!("{MAIN_ROOM}:{id}"))
        .collect();
    assert!(written == expected, "the inbox entries and the events differ");
}
