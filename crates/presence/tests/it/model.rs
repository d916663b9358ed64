//! Random comings, goings, ends and vanishings over hubs, beside a model of a few lines. Whenever it is quiet, who is
//! there and what every hub's streams were told equal the model.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bongsu_kernel::Id;
use bongsu_presence::{Joined, Options};
use bongsu_testkit::{Engine, Redis, Rng, proof, tier, wait};

use crate::support::{Hub, PATIENCE, Place, id};

const ROOMS: [&str; 2] = ["a", "b"];
const PEOPLE: [&str; 5] = ["1", "2", "3", "4", "5"];
const OPTIONS: Options = Options { user_ttl: Duration::from_secs(4), hash_ttl: Duration::from_secs(30) };

/// A hub with its open streams. One stream in every room is there for its whole life, so that it hears everything.
struct Member {
    hub: Hub,
    tabs: Vec<(&'static str, Id, Joined)>,
}

impl Member {
    async fn start(place: &Place, number: usize) -> Self {
        let mut member = Self { hub: Hub::on(place, OPTIONS), tabs: Vec::new() };
        for room in ROOMS {
            member.join(room, id(&format!("anchor:{number}"))).await;
        }
        member
    }

    async fn join(&mut self, room: &'static str, person: Id) {
        let joined = self.hub.presence.joined(&id(room), &person).await;
        self.tabs.push((room, person, joined));
    }
}

/// Who should be in a room.
fn expected(fleet: &[Member], room: &str) -> BTreeSet<Id> {
    let tabs = fleet.iter().flat_map(|member| &member.tabs);
    tabs.filter(|(of, ..)| *of == room).map(|(_, person, _)| person.clone()).collect()
}

#[tokio::test]
async fn any_comings_goings_and_vanishings_come_out_right_on_redis() {
    if let Some(place) = Place::shared(Engine::Redis).await {
        run(&place, "redis", None).await;
    }
}

#[tokio::test]
async fn any_comings_goings_and_vanishings_come_out_right_on_a_cluster() {
    if let Some(place) = Place::shared(Engine::Cluster).await {
        run(&place, "cluster", None).await;
    }
}

#[tokio::test]
async fn they_come_out_right_while_the_bus_is_cut_again_and_again() {
    if tier::needs_engine("redis-server") {
        let redis = Redis::start().await;
        run(&Place::at(redis.url()), "a_cut_bus", Some(&redis)).await;
    }
}

/// With a server, its bus is cut now and then.
async fn run(place: &Place, name: &str, cut: Option<&Redis>) {
    tier::counts_events();
    let (mut rng, mut fleet, mut started) = (Rng::for_test(name), Vec::new(), 0);
    let mut tally = BTreeMap::<&str, usize>::new();
    for round in 0..tier::size(3, 60) {
        while fleet.len() < 3 {
            started += 1;
            fleet.push(Member::start(place, started).await);
        }
        for _ in 0..rng.range(5..40) {
            if let Some(redis) = cut.filter(|_| rng.chance(1, 20)) {
                redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
                *tally.entry("cut").or_default() += 1;
            }
            let member = &mut fleet[rng.below(3) as usize];
            // Its first tabs are its anchors.
            if member.tabs.len() > ROOMS.len() && rng.chance(1, 2) {
                let at = rng.range(ROOMS.len() as u64..member.tabs.len() as u64) as usize;
                drop(member.tabs.swap_remove(at));
                *tally.entry("left").or_default() += 1;
            } else {
                let (room, person) = (*rng.pick(&ROOMS), *rng.pick(&PEOPLE));
                member.join(room, id(person)).await;
                *tally.entry("joined").or_default() += 1;
            }
        }
        // At least one of them vanishes, whatever the seed.
        match if round == 0 { 1 } else { rng.below(4) } {
            0 => {
                // Its guards outlive it, as if the process were gone.
                let Member { hub, tabs } = fleet.remove(rng.below(3) as usize);
                hub.end();
                drop(tabs);
                *tally.entry("ended").or_default() += 1;
            }
            1 | 2 => {
                let Member { hub, tabs } = fleet.remove(rng.below(3) as usize);
                hub.vanish();
                drop(tabs);
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
            let online = async || hub.presence.who(&id(room), None, 100).await.unwrap().online;
            let same = wait::holds_within(PATIENCE, async || {
                online().await.into_iter().map(|online| online.user).collect::<BTreeSet<_>>() == model
            });
            assert!(same.await, "{model:?} should be in {room}, and these are: {:?}", online().await);
            let same = wait::holds_within(PATIENCE, async || hub.streams.folded(room) == model);
            assert!(same.await, "{model:?} should be told in {room}: {:?}", hub.streams.texts(room));
        }
    }
}
