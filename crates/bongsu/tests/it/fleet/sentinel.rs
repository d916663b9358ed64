//! The master is killed with events that its replica never received, and the Sentinels promote the replica. Those
//! events are lost, and every reader that has received one of them gets `system.reset`.

use std::sync::atomic::{AtomicUsize, Ordering};

use bongsu_testkit::redis::Sentinels;
use bongsu_testkit::sse::{Event, Stream};
use bongsu_testkit::{Api, Hub, proof, tier, wait};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Fleet, PUBLISH_TIMEOUT, WAIT_TIMEOUT};

const STREAM_PATH: &str = "/api/v1/rooms/42/stream";

#[tokio::test]
async fn a_failover_that_loses_recent_events_resets_the_streams_that_had_them() {
    if !tier::needs_engine("sentinel") {
        return;
    }
    let rounds = tier::size(2, 50);
    let sentinels = Sentinels::start().await;
    let fleet = Fleet::start(&sentinels.url()).await;
    let mut test =
        FailoverTest { sentinels: &sentinels, fleet: &fleet, next: 0, kept: Vec::new(), lost: Vec::new() };
    let (mut resets, mut failovers) = (0, 0);
    for round in 0..rounds {
        resets += test.round(round % 2 == 1).await;
        failovers += 1;
        if round + 1 < rounds {
            // The former master returns as the replica of the new one.
            sentinels.replica().restart().await;
            sentinels.wait_following().await;
        }
    }
    // The lost events are gone, and all others are stored once and in order.
    let stored = fleet.apis()[0].stored_ids(42).await;
    let missing = test.kept.iter().filter(|id| !stored.contains(id)).count();
    assert_eq!(stored, test.kept);
    proof::record(
        "fleet",
        "a_failover_that_loses_recent_events_resets_the_streams_that_had_them",
        json!({
            "failovers": failovers, "acknowledged": test.kept.len() + test.lost.len(),
            "lostInFailovers": test.lost.len(), "toldByReset": resets, "kept": stored.len(), "missing": missing,
        }),
    );
}

#[tokio::test]
async fn a_suspended_master_is_replaced_without_a_long_delay() {
    if !tier::needs_engine("sentinel") {
        return;
    }
    let sentinels = Sentinels::start().await;
    let fleet = Fleet::start(&sentinels.url()).await;
    let late = AtomicUsize::new(0);
    let publishing = fleet.apis().into_iter().cycle().take(8).enumerate().map(|(n, api)| {
        let (late, event) =
            (&late, json!({"roomId": n, "eventType": "a.b", "data": {}, "idempotencyKey": "one"}));
        async move {
            wait::until(WAIT_TIMEOUT, async || match timeout(PUBLISH_TIMEOUT, api.publish(&event)).await {
                Ok(answer) if answer.status == 200 => true,
                Ok(answer) => {
                    answer.expect_error(503, "REDIS5001");
                    false
                }
                Err(_) => {
                    late.fetch_add(1, Ordering::SeqCst);
                    false
                }
            })
            .await;
        }
    });
    // While no server can take over, requests are refused instead of waiting.
    sentinels.replica().pause();
    sentinels.master().pause();
    let refused = fleet.apis().into_iter().cycle().take(8).map(async |api| {
        let event = json!({"roomId": 42, "eventType": "a.b", "data": {}, "idempotencyKey": "none"});
        let answer = timeout(PUBLISH_TIMEOUT, api.publish(&event)).await.expect("an answer in time");
        answer.expect_error(503, "REDIS5001");
    });
    for _ in 0..4 {
        join_all(refused.clone()).await;
    }
    sentinels.replica().resume();
    tokio::join!(join_all(publishing), sentinels.wait_failover());
    assert_eq!(late.load(Ordering::SeqCst), 0, "requests that were not answered within {PUBLISH_TIMEOUT:?}");
    // Once it resumes, the old master is a replica of the new one, and no client takes it for the master.
    sentinels.replica().resume();
    sentinels.wait_following().await;
    for (n, api) in fleet.apis().iter().cycle().take(8).enumerate() {
        assert_eq!(api.stored_ids(n).await.len(), 1, "events of room {n}");
    }
    fleet.wait_connected(true).await;
}

struct FailoverTest<'a> {
    sentinels: &'a Sentinels,
    fleet: &'a Fleet,
    next: u64,
    /// Ids of the events that must be stored at the end, and of those that were acknowledged and lost.
    kept: Vec<String>,
    lost: Vec<String>,
}

impl FailoverTest<'_> {
    /// Runs one failover; returns how many streams received a reset.
    async fn round(&mut self, noticed_by_itself: bool) -> usize {
        let mut streams = Vec::new();
        for hub in &self.fleet.hubs {
            streams.push(open(hub, "").await);
        }
        let before = self.publish(10).await;
        for stream in &mut streams {
            expect_ids(stream, &before).await;
        }
        self.kept.extend(before);
        wait::until(WAIT_TIMEOUT, async || {
            self.sentinels.replica().command(&["XLEN", "room:events:42"]).await.integer() as usize
                == self.kept.len()
        })
        .await;
        // A client that disconnected here has received none of the lost events.
        let place = self.kept.last().expect("an id").clone();

        self.sentinels.stop_replication();
        let tail = self.publish(5).await;
        for stream in &mut streams {
            expect_ids(stream, &tail).await;
        }
        self.sentinels.kill_master().await;
        self.sentinels.wait_failover().await;
        // In alternate rounds the streams are reset by the first events after the failover, or without any
        // event: no stream continues without a reset.
        let mut first = if noticed_by_itself { Vec::new() } else { self.publish(3).await };
        let mut resets = 0;
        for stream in &mut streams {
            let reset = stream.next_event(WAIT_TIMEOUT).await.expect("an event");
            assert_eq!((reset.event.as_str(), &reset.json()["reason"]), ("system.reset", &json!("unknown")));
            resets += 1;
        }
        if noticed_by_itself {
            first = self.publish(3).await;
        }
        // After the reset a stream receives every event, including those first ones that came after its reset.
        let last = self.publish(3).await;
        for stream in &mut streams {
            let mut seen = Vec::new();
            while seen.last() != last.last() {
                seen.push(event_id(&stream.next_event(WAIT_TIMEOUT).await.expect("an event")));
            }
            let all: Vec<String> = first.iter().chain(&last).cloned().collect();
            assert!(all.ends_with(&seen) && seen.ends_with(&last), "{seen:?} of {all:?}");
        }
        self.kept.extend(first.iter().chain(&last).cloned());

        // A client that resumes at a lost position gets a reset as well; a client that resumes at a stored
        // position misses no event.
        for hub in &self.fleet.hubs {
            let mut stream = open(hub, tail.last().expect("an id")).await;
            let reset = stream.expect_event("system.reset", WAIT_TIMEOUT).await;
            assert_eq!(reset.json()["reason"], "unknown");
            resets += 1;
            let mut stream = open(hub, &place).await;
            expect_ids(&mut stream, &first).await;
            expect_ids(&mut stream, &last).await;
        }
        self.lost.extend(tail);
        resets
    }

    /// Publishes through both hubs in turn, each event until it is acknowledged.
    async fn publish(&mut self, count: u64) -> Vec<String> {
        let (apis, mut ids) = (self.fleet.apis(), Vec::new());
        for _ in 0..count {
            self.next += 1;
            let event = json!({"roomId": 42, "eventType": "a.b", "data": {"n": self.next},
                "idempotencyKey": format!("event {}", self.next)});
            ids.push(acknowledged(&apis[self.next as usize % 2], &event).await);
        }
        ids
    }
}

async fn acknowledged(api: &Api, event: &Value) -> String {
    let id = wait::value_within(WAIT_TIMEOUT, || async {
        let answer = api.publish(event).await;
        if answer.status != 200 {
            answer.expect_error(503, "REDIS5001");
            return None;
        }
        answer.result()["streamId"].as_str().map(str::to_owned)
    });
    id.await.expect("an acknowledgement")
}

/// Opens a stream after this position, or from now on when it is empty.
async fn open(hub: &Hub, position: &str) -> Stream {
    let request = Stream::request(hub, STREAM_PATH).person("reader").last_event_id(position);
    request.open().await.expect("a stream")
}

async fn expect_ids(stream: &mut Stream, ids: &[String]) {
    for id in ids {
        assert_eq!(event_id(&stream.next_event(WAIT_TIMEOUT).await.expect("an event")), *id);
    }
}

fn event_id(event: &Event) -> String {
    assert_eq!(event.event, "a.b", "{event:?}");
    event.own_id.clone().expect("an id")
}
