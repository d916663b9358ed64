//! Many devices of one person over the fleet, and people who come and go while they are told of much.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::sse::{Event, Resuming, Stream};
use bongsu_testkit::{Api, Hub, Rng, engine, proof, tier, wait};
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::Instant;

use super::{LONG, SOON, like, listen, notify, one_of_a_fleet};
use crate::BONGSU;

/// Far fewer entries than are replayed to one who comes back.
const MOST_BEHIND: i64 = 40;

fn hubs(hub: &Hub) -> Vec<&Hub> {
    std::iter::once(hub).chain(hub.twin()).collect()
}

/// Whether a stream is told to stay away, or goes on until something that was sent afterwards.
pub(super) async fn is_replaced(stream: &mut Stream) -> bool {
    let is_either = |event: &Event| ["replaced", "notification"].contains(&event.event.as_str());
    let event = stream.find_event("that it is replaced, or an entry", LONG, is_either).await;
    if event.event == "notification" {
        return false;
    }
    let close = stream.expect_event("system.close", LONG).await;
    assert_eq!(close.json()["code"], 3500);
    true
}

#[tokio::test]
async fn of_ten_devices_at_once_the_three_newest_stay() {
    let name = "of_ten_devices_at_once_the_three_newest_stay";
    let hub = Hub::builder(BONGSU).records().start().await;
    let (hubs, api, rounds) = (hubs(&hub), Api::new(&hub), tier::size(20, 200));
    for round in 0..rounds {
        let user = 1_000 + round as u64;
        let opening = (0..10).map(async |n: usize| {
            listen(hubs[n % hubs.len()], user).open().await.expect("everybody is let in")
        });
        let mut streams = join_all(opening).await;
        notify(&api, &like(&format!("round{round}"), &[user])).await.expect(202);
        let replaced = join_all(streams.iter_mut().map(is_replaced)).await;
        // One that was replaced a moment later may have heard it before.
        let gone = replaced.iter().filter(|replaced| **replaced).count();
        assert!(gone <= 7, "{gone} of 10 were ended in round {round}");
        let mut left: Vec<&mut Stream> = streams
            .iter_mut()
            .zip(&replaced)
            .filter(|(_, replaced)| !**replaced)
            .map(|(left, _)| left)
            .collect();
        let until = Instant::now() + LONG;
        loop {
            // Once three are left, another look shows that they stay.
            let settled = left.len() <= 3;
            let ended = join_all(left.iter_mut().map(async |stream| {
                let next = stream.try_next_event(Duration::from_millis(300)).await;
                matches!(next, Ok(Some(event)) if event.event == "replaced")
            }));
            let mut ended = ended.await.into_iter();
            left.retain(|_| ended.next() != Some(true));
            if settled || Instant::now() > until {
                break;
            }
        }
        assert_eq!(left.len(), 3, "are left in round {round}");
    }
    let engine = engine().name();
    proof::record("inbox", name, json!({"engine": engine, "rounds": rounds, "devices": 10, "stayed": 3}));
}

#[tokio::test]
async fn nobody_misses_anything_or_sees_it_twice_while_overlapping_sets_of_people_are_told() {
    let name = "nobody_misses_anything_or_sees_it_twice_while_overlapping_sets_of_people_are_told";
    let (people, notices, mut rng) = (12_u64, tier::size(300, 5_000), Rng::for_test(name));
    let hub = Hub::builder(BONGSU).records().start().await;
    let hubs = hubs(&hub);
    let apis: Vec<Api> = hubs.iter().map(|hub| Api::at(&hub.url(""))).collect();
    let sets: Vec<Vec<u64>> = (0..notices)
        .map(|_| {
            let always = 1 + rng.below(people);
            (1..=people).filter(|person| *person == always || rng.chance(1, 2)).collect()
        })
        .collect();
    // Whoever comes back too far behind is told to begin anew, and how far readers are behind depends on the machine: so
    // nobody is told of more while somebody has much to read.
    let behind: Vec<AtomicI64> = (0..=people).map(|_| AtomicI64::new(0)).collect();
    let most_behind = || behind.iter().map(|behind| behind.load(Ordering::SeqCst)).max().unwrap_or_default();
    let telling = async {
        let telling = (0..8).map(async |worker: usize| {
            for (n, targets) in sets.iter().enumerate().skip(worker).step_by(8) {
                wait::until(LONG, async || most_behind() < MOST_BEHIND).await;
                for person in targets {
                    behind[*person as usize].fetch_add(1, Ordering::SeqCst);
                }
                // In an order of their own, so that whoever does not sort them waits in circles.
                let targets: Vec<u64> =
                    if n % 2 == 0 { targets.clone() } else { targets.iter().rev().copied().collect() };
                notify(&apis[n % apis.len()], &like(&format!("n{n}"), &targets)).await.expect(202);
            }
        });
        join_all(telling).await;
        notify(&apis[0], &like("the-end", &(1..=people).collect::<Vec<_>>())).await.expect(202);
    };
    let reading = join_all((1..=people).map(|person| {
        let (hubs, mut rng, behind) = (hubs.clone(), Rng::new(person), &behind[person as usize]);
        async move {
            let mut seen = Vec::new();
            let mut position = "0".to_owned();
            loop {
                let hub = *rng.pick(&hubs);
                let request = listen(hub, person).last_event_id(&position);
                let mut stream = request.open().await.expect("a stream");
                // Drops after a few, and comes back, perhaps elsewhere.
                for _ in 0..rng.range(5..40) {
                    let event = stream.next_event(SOON).await.expect("a stream that goes on");
                    if event.event != "notification" {
                        assert_ne!(
                            event.event, "system.reset",
                            "{person} missed too much at once: {event:?}"
                        );
                        continue;
                    }
                    let (id, name) = (event.own_id.clone().unwrap(), event.json()["eventId"].clone());
                    if name == "the-end" {
                        return seen;
                    }
                    behind.fetch_sub(1, Ordering::SeqCst);
                    position.clone_from(&id);
                    seen.push((id.parse::<u64>().unwrap(), name.as_str().unwrap().to_owned()));
                }
            }
        }
    }));
    let ((), seen) = tokio::join!(telling, reading);
    for (person, seen) in (1..=people).zip(seen) {
        let expected = sets.iter().filter(|targets| targets.contains(&person)).count();
        let numbers: Vec<u64> = seen.iter().map(|(id, _)| *id).collect();
        let wrong = numbers.iter().zip(1..).find(|(number, expected)| *number != expected);
        assert_eq!(
            (wrong, numbers.len()),
            (None, expected),
            "number and place, and how many, of person {person}"
        );
        let mut names: Vec<&String> = seen.iter().map(|(_, name)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), expected, "of person {person}");
    }
    let engine = engine().name();
    let told: usize = sets.iter().map(Vec::len).sum();
    proof::record(
        "inbox",
        name,
        json!({"engine": engine, "notices": notices, "people": people, "told": told}),
    );
}

#[tokio::test]
async fn devices_of_a_killed_hub_push_out_nobody_and_without_redis_the_inbox_works_on() {
    if !tier::needs_engine("redis") || !tier::needs_engine("postgres") {
        return;
    }
    let (redis, database) = (Redis::start().await, Flavour::Postgres.database().await);
    let start = async || one_of_a_fleet(&redis.url(), &database).start().await;
    let (stays, killed) = (start().await, start().await);
    let mut living = listen(&stays, 7).open().await.unwrap();
    let _dead = [listen(&killed, 7).open().await.unwrap(), listen(&killed, 7).open().await.unwrap()];
    killed.kill9().await;
    // When its lease has ended, two more are let in beside the one that is left.
    let instances = async || redis.command(&["ZCARD", "{instances}:leases"]).await.integer();
    wait::until(SOON, async || instances().await == 1).await;
    // Others learn of that a moment later, and look whose streams these are when one more comes.
    let counted = async || redis.command(&["ZCARD", "sse:notification:{7}"]).await.integer();
    wait::until(SOON, async || {
        drop(listen(&stays, 7).open().await.unwrap());
        counted().await <= 2
    })
    .await;
    wait::until(SOON, async || counted().await == 1).await;
    let _more = [listen(&stays, 7).open().await.unwrap(), listen(&stays, 7).open().await.unwrap()];
    let api = Api::at(&stays.url(""));
    notify(&api, &like("e1", &[7])).await.expect(202);
    assert!(!is_replaced(&mut living).await, "the oldest that lives was pushed out");
    redis.kill9().await;
    let refused = listen(&stays, 8).open().await.expect("a stream that says that it passes");
    let mut refused = refused;
    assert_eq!(refused.expect_event("system.close", SOON).await.json()["reconnect"], true);
    notify(&api, &like("e2", &[7])).await.expect(202);
    let listed = super::list(&api, 7, "").await;
    assert_eq!(super::ids(&listed), [2, 1]);
    api.person(7).call("PATCH", "/api/notifications/1/read", "").await.expect(200);
    assert_eq!(super::unread(&api, 7).await, 1);
    redis.restart().await;
    let mut back = Resuming::new(listen(&stays, 7)).starting_after("1");
    let deadline = Instant::now() + SOON;
    let event = loop {
        let event = back.next_event(SOON).await.unwrap();
        if event.event == "notification" {
            break event;
        }
        assert!(Instant::now() < deadline, "no entry came although Redis is back");
    };
    assert_eq!(event.json()["eventId"], "e2");
}
