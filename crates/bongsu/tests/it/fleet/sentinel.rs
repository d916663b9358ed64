//! The master is killed with events that its replica never had, and Sentinels make the replica the master: those
//! events are lost, and whoever had seen one of them is told so.

use std::sync::atomic::{AtomicUsize, Ordering};

use bongsu_testkit::redis::Sentinels;
use bongsu_testkit::sse::{Event, Stream};
use bongsu_testkit::{Api, Hub, proof, tier, wait};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Fleet, IN_TIME, LONG};

const STREAM: &str = "/api/v1/rooms/42/stream";

#[tokio::test]
async fn a_failover_that_loses_the_tail_is_told_to_everybody_who_had_seen_it() {
    if !tier::needs_engine("sentinel") {
        return;
    }
    let rounds = tier::size(2, 50);
    let sentinels = Sentinels::start().await;
    let fleet = Fleet::start(&sentinels.url()).await;
    let mut scene =
        Scene { sentinels: &sentinels, fleet: &fleet, next: 0, kept: Vec::new(), lost: Vec::new() };
    let (mut resets, mut failovers) = (0, 0);
    for round in 0..rounds {
        resets += scene.round(round % 2 == 1).await;
        failovers += 1;
        if round + 1 < rounds {
            // What was the master comes back as the replica of the new one.
            sentinels.replica().restart().await;
            sentinels.wait_following().await;
        }
    }
    // Nothing is left of the lost ones, and all others are there, once and in order.
    let stored = fleet.apis()[0].stored_ids(42).await;
    let missing = scene.kept.iter().filter(|id| !stored.contains(id)).count();
    assert_eq!(stored, scene.kept);
    proof::record(
        "fleet",
        "a_failover_that_loses_the_tail_is_told_to_everybody_who_had_seen_it",
        json!({
            "failovers": failovers, "acknowledged": scene.kept.len() + scene.lost.len(),
            "lostInFailovers": scene.lost.len(), "toldByReset": resets, "kept": stored.len(), "missing": missing,
        }),
    );
}

#[tokio::test]
async fn a_master_that_stands_still_is_replaced_and_holds_up_nobody_for_long() {
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
            wait::until(LONG, async || match timeout(IN_TIME, api.publish(&event)).await {
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
    // While nobody can take over, there is nothing to wait for either.
    sentinels.replica().pause();
    sentinels.master().pause();
    let refused = fleet.apis().into_iter().cycle().take(8).map(async |api| {
        let event = json!({"roomId": 42, "eventType": "a.b", "data": {}, "idempotencyKey": "none"});
        let answer = timeout(IN_TIME, api.publish(&event)).await.expect("an answer in time");
        answer.expect_error(503, "REDIS5001");
    });
    for _ in 0..4 {
        join_all(refused.clone()).await;
    }
    sentinels.replica().resume();
    tokio::join!(join_all(publishing), sentinels.wait_failover());
    assert_eq!(late.load(Ordering::SeqCst), 0, "requests that were not answered within {IN_TIME:?}");
    // Once it goes on, the old one is the new one's replica, and nobody takes it for the master.
    sentinels.replica().resume();
    sentinels.wait_following().await;
    for (n, api) in fleet.apis().iter().cycle().take(8).enumerate() {
        assert_eq!(api.stored_ids(n).await.len(), 1, "events of room {n}");
    }
    fleet.wait_connected(true).await;
}

struct Scene<'a> {
    sentinels: &'a Sentinels,
    fleet: &'a Fleet,
    next: u64,
    /// Ids of what has to be there at the end, and of what was acknowledged and lost.
    kept: Vec<String>,
    lost: Vec<String>,
}

impl Scene<'_> {
    /// One failover; how many were told by a reset.
    async fn round(&mut self, noticed_by_itself: bool) -> usize {
        let mut streams = Vec::new();
        for hub in &self.fleet.hubs {
            streams.push(open(hub, "").await);
        }
        let before = self.publish(10).await;
        for stream in &mut streams {
            expect(stream, &before).await;
        }
        self.kept.extend(before);
        wait::until(LONG, async || {
            self.sentinels.replica().command(&["XLEN", "room:events:42"]).await.integer() as usize
                == self.kept.len()
        })
        .await;
        // Who left here has seen nothing that is lost.
        let place = self.kept.last().expect("an id").clone();

        self.sentinels.stop_replication();
        let tail = self.publish(5).await;
        for stream in &mut streams {
            expect(stream, &tail).await;
        }
        self.sentinels.kill_master().await;
        self.sentinels.wait_failover().await;
        // In turn, the first ones afterwards are what shows the hole, or nothing comes that could show it: nobody gets
        // anything as if nothing had happened.
        let mut first = if noticed_by_itself { Vec::new() } else { self.publish(3).await };
        let mut resets = 0;
        for stream in &mut streams {
            let reset = stream.next_event(LONG).await.expect("an event");
            assert_eq!((reset.event.as_str(), &reset.json()["reason"]), ("system.reset", &json!("unknown")));
            resets += 1;
        }
        if noticed_by_itself {
            first = self.publish(3).await;
        }
        // From the reset on everything comes, also of the first ones, as far as they came after it.
        let last = self.publish(3).await;
        for stream in &mut streams {
            let mut seen = Vec::new();
            while seen.last() != last.last() {
                seen.push(counted(&stream.next_event(LONG).await.expect("an event")));
            }
            let all: Vec<String> = first.iter().chain(&last).cloned().collect();
            assert!(all.ends_with(&seen) && seen.ends_with(&last), "{seen:?} of {all:?}");
        }
        self.kept.extend(first.iter().chain(&last).cloned());

        // Who comes back with a lost position is told as well; who comes back with a good one misses nothing.
        for hub in &self.fleet.hubs {
            let mut stream = open(hub, tail.last().expect("an id")).await;
            let reset = stream.expect_event("system.reset", LONG).await;
            assert_eq!(reset.json()["reason"], "unknown");
            resets += 1;
            let mut stream = open(hub, &place).await;
            expect(&mut stream, &first).await;
            expect(&mut stream, &last).await;
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
    let id = wait::value_within(LONG, || async {
        let answer = api.publish(event).await;
        if answer.status != 200 {
            answer.expect_error(503, "REDIS5001");
            return None;
        }
        answer.result()["streamId"].as_str().map(str::to_owned)
    });
    id.await.expect("Redis comes back")
}

/// After a position, or from now on.
async fn open(hub: &Hub, position: &str) -> Stream {
    let request = Stream::request(hub, STREAM).person("reader").last_event_id(position);
    request.open().await.expect("a stream")
}

async fn expect(stream: &mut Stream, ids: &[String]) {
    for id in ids {
        assert_eq!(counted(&stream.next_event(LONG).await.expect("an event")), *id);
    }
}

fn counted(event: &Event) -> String {
    assert_eq!(event.event, "a.b", "{event:?}");
    event.own_id.clone().expect("an id")
}
