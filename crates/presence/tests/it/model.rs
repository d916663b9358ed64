//! Random joins, leaves, shutdowns and kills on several instances, compared with a small model. After each round, the
//! people in a room and the updates of every instance match the model.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bongsu_kernel::Id;
use bongsu_presence::{Options, PresenceGuard};
use bongsu_testkit::{Engine, Redis, Rng, proof, tier, wait};

use crate::support::{Hub, RedisNamespace, WAIT_TIMEOUT, id};

const ROOMS: [&str; 2] = ["a", "b"];
const PEOPLE: [&str; 5] = ["1", "2", "3", "4", "5"];
const OPTIONS: Options = Options { user_ttl: Duration::from_secs(4), hash_ttl: Duration::from_secs(30) };

/// An instance with its open streams. One stream in every room stays open, so that the instance receives all updates.
struct Member {
    hub: Hub,
    streams: Vec<(&'static str, Id, PresenceGuard)>,
}

impl Member {
    async fn start(namespace: &RedisNamespace, number: usize) -> Self {
        let mut member = Self { hub: Hub::start_on(namespace, OPTIONS), streams: Vec::new() };
        for room in ROOMS {
            member.join(room, id(&format!("anchor:{number}"))).await;
        }
        member
    }

    async fn join(&mut self, room: &'static str, person: Id) {
        let guard = self.hub.presence.join(&id(room), &person).await;
        self.streams.push((room, person, guard));
    }
}

/// The people in a room according to the model.
fn expected(fleet: &[Member], room: &str) -> BTreeSet<Id> {
    let streams = fleet.iter().flat_map(|member| &member.streams);
    streams.filter(|(joined, ..)| *joined == room).map(|(_, person, _)| person.clone()).collect()
}

#[tokio::test]
async fn random_joins_and_failures_match_the_model_on_redis() {
    if let Some(namespace) = RedisNamespace::shared(Engine::Redis).await {
        run(&namespace, "redis", None).await;
    }
}

#[tokio::test]
async fn random_joins_and_failures_match_the_model_on_a_cluster() {
    if let Some(namespace) = RedisNamespace::shared(Engine::Cluster).await {
        run(&namespace, "cluster", None).await;
    }
}

#[tokio::test]
async fn random_joins_and_failures_match_the_model_with_a_cut_bus() {
    if tier::needs_engine("redis-server") {
        let redis = Redis::start().await;
        run(&RedisNamespace::at(redis.url()), "a_cut_bus", Some(&redis)).await;
    }
}

/// If `cut` is given, the pub/sub connections of this server are closed at random.
async fn run(namespace: &RedisNamespace, name: &str, cut: Option<&Redis>) {
    tier::counts_events();
    let (mut rng, mut fleet, mut started) = (Rng::for_test(name), Vec::new(), 0);
    let mut tally = BTreeMap::<&str, usize>::new();
    for round in 0..tier::size(3, 60) {
        while fleet.len() < 3 {
            started += 1;
            fleet.push(Member::start(namespace, started).await);
        }
        for _ in 0..rng.range(5..40) {
            if let Some(redis) = cut.filter(|_| rng.chance(1, 20)) {
                redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
                *tally.entry("cut").or_default() += 1;
            }
            let member = &mut fleet[rng.below(3) as usize];
            // The first streams are the ones that stay open.
            if member.streams.len() > ROOMS.len() && rng.chance(1, 2) {
                let index = rng.range(ROOMS.len() as u64..member.streams.len() as u64) as usize;
                drop(member.streams.swap_remove(index));
                *tally.entry("left").or_default() += 1;
            } else {
                let (room, person) = (*rng.pick(&ROOMS), *rng.pick(&PEOPLE));
                member.join(room, id(person)).await;
                *tally.entry("joined").or_default() += 1;
            }
        }
        // At least one instance is killed, whatever the seed.
        match if round == 0 { 1 } else { rng.below(4) } {
            0 => {
                // The guards are dropped after the instance stopped, so they have no effect.
                let Member { hub, streams } = fleet.remove(rng.below(3) as usize);
                hub.shut_down();
                drop(streams);
                *tally.entry("ended").or_default() += 1;
            }
            1 | 2 => {
                let Member { hub, streams } = fleet.remove(rng.below(3) as usize);
                hub.kill();
                drop(streams);
                *tally.entry("vanished").or_default() += 1;
            }
            _ => {}
        }
        check(&fleet).await;
    }
    let facts = serde_json::json!({ "seed": tier::seed(), "did": tally });
    proof::record("presence", &format!("fleet_on_{name}"), facts);
}

async fn check(fleet: &[Member]) {
    for room in ROOMS {
        let model = expected(fleet, room);
        for Member { hub, .. } in fleet {
            let online = async || hub.presence.occupants(&id(room), None, 100).await.unwrap().online;
            let same = wait::holds_within(WAIT_TIMEOUT, async || {
                online().await.into_iter().map(|online| online.user).collect::<BTreeSet<_>>() == model
            });
            assert!(same.await, "{room}: expected {model:?}, found {:?}", online().await);
            let same = wait::holds_within(WAIT_TIMEOUT, async || hub.sink.replay(room) == model);
            assert!(same.await, "{room}: expected {model:?}, received {:?}", hub.sink.texts(room));
        }
    }
}
