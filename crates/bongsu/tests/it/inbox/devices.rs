//! Many devices of one person over the fleet, and clients that reconnect while many notifications are sent.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Instant;

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::sse::{Event, ResumingClient, Stream};
use bongsu_testkit::{Api, Hub, Rng, engine, proof, tier, wait};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use serde_json::json;

use super::{RECOUNT_TIMEOUT, WAIT_TIMEOUT, like_notification, notify, one_of_a_fleet, stream_request};
use crate::BONGSU;

/// Far fewer entries than are replayed to a client that reconnects.
const MAX_ENTRIES_BEHIND: i64 = 40;

fn hubs(hub: &Hub) -> Vec<&Hub> {
    std::iter::once(hub).chain(hub.twin()).collect()
}

/// Whether a stream is replaced; it is not if it receives a notification that was sent afterwards.
pub(super) async fn is_replaced(stream: &mut Stream) -> bool {
    let is_either = |event: &Event| ["replaced", "notification"].contains(&event.event.as_str());
    let event = stream.find_event("that it is replaced, or an entry", RECOUNT_TIMEOUT, is_either).await;
    if event.event == "notification" {
        return false;
    }
    let close = stream.expect_event("system.close", RECOUNT_TIMEOUT).await;
    assert_eq!(close.json()["code"], 3500);
    true
}

/// How many devices connected, were replaced, and stayed connected.
#[derive(Default)]
struct DeviceCounts {
    opened: usize,
    replaced: usize,
    stayed: usize,
}

impl DeviceCounts {
    /// Opens `count` streams of a user at the same time, spread over the hubs.
    async fn open(&mut self, hubs: &[&Hub], user: u64, count: usize) -> Vec<Stream> {
        let opening = (0..count).map(async |n: usize| {
            stream_request(hubs[n % hubs.len()], user).open().await.expect("every device is admitted")
        });
        let streams = join_all(opening).await;
        self.opened += streams.len();
        streams
    }

    /// Newer devices have connected, no entry was sent: checks that all these streams are replaced.
    async fn expect_replaced(&mut self, streams: &mut [&mut Stream]) {
        for is_replaced in join_all(streams.iter_mut().map(|stream| is_replaced(stream))).await {
            assert!(is_replaced, "a device stays although three newer ones are connected");
            self.replaced += 1;
        }
    }

    /// Checks that the three newest streams receive a notification that is sent now.
    async fn expect_kept(&mut self, api: &Api, user: u64, streams: &mut [Stream]) {
        let event = format!("newest{user}");
        notify(api, &like_notification(&event, &[user])).await.expect(202);
        for stream in streams {
            let told =
                stream.next_event(RECOUNT_TIMEOUT).await.expect("one of the three newest devices was closed");
            // A stream that was opened later first receives the unread entries.
            let told = if told.json()["eventId"] == json!("left") {
                stream.next_event(RECOUNT_TIMEOUT).await.unwrap()
            } else {
                told
            };
            assert_eq!((told.event.as_str(), &told.json()["eventId"]), ("notification", &json!(event)));
            self.stayed += 1;
        }
    }

    /// Opens ten devices one after the other: each device over the limit replaces the oldest one and no other.
    async fn open_one_by_one(&mut self, hubs: &[&Hub], api: &Api, user: u64) {
        let mut streams = Vec::new();
        for n in 0..10 {
            streams.extend(self.open(&hubs[n % hubs.len()..], user, 1).await);
            if let Some(oldest) = n.checked_sub(3) {
                self.expect_replaced(&mut [&mut streams[oldest]]).await;
            }
        }
        self.expect_kept(api, user, &mut streams[7..]).await;
    }

    /// Opens ten devices at the same time, of which any three may be the newest; then three more at the same time,
    /// which are newer than all of them.
    async fn open_at_once(&mut self, hubs: &[&Hub], api: &Api, user: u64) {
        let mut ten = self.open(hubs, user, 10).await;
        let reading = ten.iter_mut().map(async |stream| (is_replaced(stream).await, stream));
        let mut reading: FuturesUnordered<_> = reading.collect();
        for gone in 0..7 {
            let told = reading.next().await;
            assert!(matches!(told, Some((true, _))), "only {gone} of ten devices were replaced");
            self.replaced += 1;
        }
        notify(api, &like_notification("left", &[user])).await.expect(202);
        let mut left = Vec::new();
        while let Some((is_replaced, stream)) = reading.next().await {
            assert!(!is_replaced, "more than seven of ten were replaced");
            left.push(stream);
        }
        let mut newest = self.open(hubs, user, 3).await;
        self.expect_replaced(&mut left).await;
        self.expect_kept(api, user, &mut newest).await;
    }
}

#[tokio::test]
async fn three_of_ten_concurrent_devices_stay_connected() {
    let name = "three_of_ten_concurrent_devices_stay_connected";
    let hub = Hub::builder(BONGSU).records().start().await;
    let (hubs, api, mut devices) = (hubs(&hub), Api::new(&hub), DeviceCounts::default());
    let mut rounds = 0;
    for user in (1_000..).take(tier::size(20, 200)) {
        if rounds % 2 == 0 {
            devices.open_at_once(&hubs, &api, user).await;
        } else {
            devices.open_one_by_one(&hubs, &api, user).await;
        }
        rounds += 1;
    }
    let DeviceCounts { opened, replaced, stayed } = devices;
    assert_eq!((opened - replaced, stayed), (3 * rounds, 3 * rounds), "devices that stay in {rounds} rounds");
    let facts = json!({"engine": engine().name(), "rounds": rounds, "opened": opened, "replaced": replaced,
        "stayed": stayed});
    proof::record("inbox", name, facts);
}

#[tokio::test]
async fn overlapping_notifications_reach_each_person_exactly_once() {
    let name = "overlapping_notifications_reach_each_person_exactly_once";
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
    let acknowledged = AtomicUsize::new(0);
    // A reader that resumes too far behind gets `system.reset`, and on a slow machine readers fall far behind. So the
    // publishers pause while a reader has many entries left to read.
    let behind: Vec<AtomicI64> = (0..=people).map(|_| AtomicI64::new(0)).collect();
    let most_behind = || behind.iter().map(|behind| behind.load(Ordering::SeqCst)).max().unwrap_or_default();
    let telling = async {
        let telling = (0..8).map(async |worker: usize| {
            for (n, targets) in sets.iter().enumerate().skip(worker).step_by(8) {
                wait::until(RECOUNT_TIMEOUT, async || most_behind() < MAX_ENTRIES_BEHIND).await;
                for person in targets {
                    behind[*person as usize].fetch_add(1, Ordering::SeqCst);
                }
                // Half of the requests name their targets in reverse order, so that a hub that locks rows in the
                // given order would deadlock.
                let targets: Vec<u64> =
                    if n % 2 == 0 { targets.clone() } else { targets.iter().rev().copied().collect() };
                notify(&apis[n % apis.len()], &like_notification(&format!("n{n}"), &targets))
                    .await
                    .expect(202);
                acknowledged.fetch_add(1, Ordering::SeqCst);
            }
        });
        join_all(telling).await;
        notify(&apis[0], &like_notification("the-end", &(1..=people).collect::<Vec<_>>())).await.expect(202);
    };
    let reading = join_all((1..=people).map(|person| {
        let (hubs, mut rng, behind) = (hubs.clone(), Rng::new(person), &behind[person as usize]);
        async move {
            let mut seen = Vec::new();
            let mut position = "0".to_owned();
            loop {
                let hub = *rng.pick(&hubs);
                let request = stream_request(hub, person).last_event_id(&position);
                let mut stream = request.open().await.expect("a stream");
                // Disconnects after a few events and reconnects, possibly to another hub.
                for _ in 0..rng.range(5..40) {
                    let event = stream.next_event(WAIT_TIMEOUT).await.expect("an open stream");
                    if event.event != "notification" {
                        assert_ne!(event.event, "system.reset", "{person} was too far behind: {event:?}");
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
    let (delivered, readers) = (seen.iter().map(Vec::len).sum::<usize>(), seen.len());
    for (person, seen) in (1..=people).zip(seen) {
        let expected = sets.iter().filter(|targets| targets.contains(&person)).count();
        let numbers: Vec<u64> = seen.iter().map(|(id, _)| *id).collect();
        let wrong = numbers.iter().zip(1..).find(|(number, expected)| *number != expected);
        assert_eq!(
            (wrong, numbers.len()),
            (None, expected),
            "first wrong sequence, and entries, of person {person}"
        );
        let mut names: Vec<&String> = seen.iter().map(|(_, name)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), expected, "event ids of person {person}");
    }
    let engine = engine().name();
    let acknowledged = acknowledged.into_inner();
    proof::record(
        "inbox",
        name,
        json!({"engine": engine, "acknowledged": acknowledged, "people": readers, "delivered": delivered}),
    );
}

#[tokio::test]
async fn devices_of_a_killed_hub_replace_nobody_and_the_inbox_works_without_redis() {
    if !tier::needs_engine("redis") || !tier::needs_engine("postgres") {
        return;
    }
    let (redis, database) = (Redis::start().await, Flavour::Postgres.database().await);
    let start = async || one_of_a_fleet(&redis.url(), &database).start().await;
    let (stays, killed) = (start().await, start().await);
    let mut living = stream_request(&stays, 7).open().await.unwrap();
    let _dead =
        [stream_request(&killed, 7).open().await.unwrap(), stream_request(&killed, 7).open().await.unwrap()];
    let instances = async || redis.command(&["ZCARD", "{instances}:leases"]).await.integer();
    let before = instances().await;
    killed.kill9().await;
    // When the lease of the killed hub has ended, two more devices are admitted beside the remaining one.
    wait::until(WAIT_TIMEOUT, async || instances().await == before / 2).await;
    // Other hubs learn of the ended lease a moment later, and check the owners of the counted streams when another
    // device connects.
    let counted = async || redis.command(&["ZCARD", "sse:notification:{7}"]).await.integer();
    wait::until(WAIT_TIMEOUT, async || {
        drop(stream_request(&stays, 7).open().await.unwrap());
        counted().await <= 2
    })
    .await;
    wait::until(WAIT_TIMEOUT, async || counted().await == 1).await;
    let _more =
        [stream_request(&stays, 7).open().await.unwrap(), stream_request(&stays, 7).open().await.unwrap()];
    let api = Api::at(&stays.url(""));
    notify(&api, &like_notification("e1", &[7])).await.expect(202);
    assert!(!is_replaced(&mut living).await, "the device of the running hub was replaced");
    redis.kill9().await;
    let refused = stream_request(&stays, 8).open().await.expect("a stream that asks to reconnect");
    let mut refused = refused;
    assert_eq!(refused.expect_event("system.close", WAIT_TIMEOUT).await.json()["reconnect"], true);
    notify(&api, &like_notification("e2", &[7])).await.expect(202);
    let listed = super::list(&api, 7, "").await;
    assert_eq!(super::ids(&listed), [2, 1]);
    api.person(7).call("PATCH", "/api/notifications/1/read", "").await.expect(200);
    assert_eq!(super::unread(&api, 7).await, 1);
    redis.restart().await;
    let mut back = ResumingClient::new(stream_request(&stays, 7)).starting_after("1");
    let deadline = Instant::now() + WAIT_TIMEOUT;
    let event = loop {
        let event = back.next_event(WAIT_TIMEOUT).await.unwrap();
        if event.event == "notification" {
            break event;
        }
        assert!(Instant::now() < deadline, "no entry came although Redis is back");
    };
    assert_eq!(event.json()["eventId"], "e2");
}
