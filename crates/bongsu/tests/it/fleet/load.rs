//! Publishers that continue through faults, clients that stay connected through them, and the comparison of
//! their records with the log.

mod follower;
mod socket;

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bongsu_testkit::{Api, Rng, proof, tier, wait};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use follower::EventKey;
pub(super) use follower::{RoomTrace, read_resuming, read_staying, read_wandering};

use super::{Fleet, PUBLISH_TIMEOUT, WAIT_TIMEOUT};

pub(super) const ROOMS: [&str; 3] = ["one", "two", "three"];
const COUNTED_TYPE: &str = "fleet.counted";
const END_TYPE: &str = "fleet.end";
/// Enough that some requests are always in flight, and few enough that readers on the same two cores keep up.
const PUBLISHERS: usize = 12;
const MAX_PUBLISH_PAUSE: Duration = Duration::from_millis(10);
/// Longer than any fault and its consequences: an event that is not acknowledged by then never will be.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(300);

/// An event that was acknowledged.
#[derive(Clone, Debug)]
struct AcknowledgedEvent {
    n: u64,
    publisher: usize,
    room: &'static str,
    id: String,
}

/// The state that the publishers share.
pub(super) struct Load {
    apis: Vec<Api>,
    publishers: usize,
    /// The longest pause of a publisher after each event.
    pace: Duration,
    next: AtomicU64,
    acknowledged: AtomicU64,
    in_flight: AtomicU64,
    /// Faults so far: a request that began before a fault and ended after it was in flight.
    faults: AtomicU64,
    crossed: AtomicU64,
    cut: AtomicU64,
    /// Requests that were answered with an error or not at all.
    refused: AtomicU64,
    /// Requests that were repeated with the same key and turned out to be stored already.
    found_stored: AtomicU64,
    late: AtomicU64,
    stopped: AtomicBool,
    told: Mutex<Vec<AcknowledgedEvent>>,
}

impl Load {
    pub(super) fn new(apis: impl Into<Vec<Api>>) -> Self {
        tier::counts_events();
        Self {
            apis: apis.into(),
            publishers: PUBLISHERS,
            pace: MAX_PUBLISH_PAUSE,
            next: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            crossed: AtomicU64::new(0),
            cut: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            found_stored: AtomicU64::new(0),
            late: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            told: Mutex::default(),
        }
    }

    /// A variant with fewer events, for tests with many readers.
    pub(super) fn steady(self) -> Self {
        Self { publishers: 4, pace: Duration::from_millis(200), ..self }
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::SeqCst)
    }

    /// Requests that were in flight during a fault and failed.
    pub(super) fn cut(&self) -> u64 {
        self.cut.load(Ordering::SeqCst)
    }

    /// Requests that were in flight during a fault, whatever their outcome.
    pub(super) fn crossed(&self) -> u64 {
        self.crossed.load(Ordering::SeqCst)
    }

    /// Waits for a random moment at which enough requests are in flight, so that the next fault hits them.
    pub(super) async fn wait_for_fault_moment(&self, rng: &mut Rng) {
        for _ in 0..rng.below(100) {
            yield_now().await;
        }
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while self.in_flight.load(Ordering::SeqCst) < self.publishers.div_ceil(6) as u64 {
            assert!(Instant::now() < deadline, "there are never enough requests in flight for a fault");
            yield_now().await;
        }
        self.faults.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits until this many more events were acknowledged.
    pub(super) async fn wait_acknowledged(&self, more: u64) {
        let enough = self.acknowledged() + more;
        wait::until(WAIT_TIMEOUT * 2, async || self.acknowledged() >= enough).await;
    }

    async fn publish(&self, publisher: usize, mut rng: Rng) {
        while !self.stopped.load(Ordering::SeqCst) {
            let n = self.next.fetch_add(1, Ordering::SeqCst);
            let room = *rng.pick(&ROOMS);
            let event = json!({"roomId": room, "eventType": COUNTED_TYPE, "data": {"n": n, "text": "봉수\n"},
                "publisherId": publisher, "idempotencyKey": format!("event {n}")});
            let id = self.publish_until_acknowledged(&event, &mut rng).await;
            self.told.lock().unwrap().push(AcknowledgedEvent { n, publisher, room, id });
            self.acknowledged.fetch_add(1, Ordering::SeqCst);
            // The publisher's own pace.
            sleep(Duration::from_millis(rng.below(self.pace.as_millis() as u64))).await;
        }
    }

    /// Sends an event to any hub, repeatedly with the same key, until it is acknowledged; returns its id.
    async fn publish_until_acknowledged(&self, event: &Value, rng: &mut Rng) -> String {
        let (mut tries, deadline) = (0, Instant::now() + ACKNOWLEDGE_TIMEOUT);
        loop {
            assert!(Instant::now() < deadline, "{event} was not acknowledged within {ACKNOWLEDGE_TIMEOUT:?}");
            tries += 1;
            let (api, faults) = (rng.pick(&self.apis), self.faults.load(Ordering::SeqCst));
            self.in_flight.fetch_add(1, Ordering::SeqCst);
            let answer = timeout(PUBLISH_TIMEOUT, api.try_publish(event)).await;
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
            let crossed = u64::from(self.faults.load(Ordering::SeqCst) > faults);
            self.crossed.fetch_add(crossed, Ordering::SeqCst);
            match answer {
                Ok(Ok(answer)) if answer.status == 200 => {
                    let again = answer.result()["duplicate"] == true;
                    assert!(!again || tries > 1, "one request was answered as a duplicate");
                    self.found_stored.fetch_add(u64::from(again), Ordering::SeqCst);
                    return answer.result()["streamId"].as_str().expect("an id").to_owned();
                }
                // From a proxy whose hub disappeared during the request.
                Ok(Ok(answer)) if answer.status == 502 => {}
                Ok(Ok(answer)) => drop(answer.expect_error(503, "REDIS5001")),
                Ok(Err(_)) => {}
                Err(_) => drop(self.late.fetch_add(1, Ordering::SeqCst)),
            }
            self.refused.fetch_add(1, Ordering::SeqCst);
            self.cut.fetch_add(crossed, Ordering::SeqCst);
            // A client's pause before it tries again.
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Publishes the last event of every room.
    async fn publish_end(&self, rng: &mut Rng) {
        for room in ROOMS {
            let event = json!({"roomId": room, "eventType": END_TYPE, "data": {},
                "idempotencyKey": "the end"});
            self.publish_until_acknowledged(&event, rng).await;
        }
    }
}

/// Runs publishers and readers while `faults` injects faults, then compares their records with the log.
/// `faults` returns how many rounds hit requests in flight.
pub(super) async fn run_scenario(
    name: &str,
    fleet: &Fleet,
    load: &Load,
    reading: impl Future<Output = Vec<RoomTrace>>,
    faults: impl Future<Output = usize>,
) -> usize {
    let mut rng = Rng::for_test(&format!("{name} load"));
    let publishing = (0..load.publishers).map(|publisher| load.publish(publisher, Rng::new(rng.next_u64())));
    let publishing = join_all(publishing.collect::<Vec<_>>());
    let working = async {
        let faults = async {
            let landed = faults.await;
            load.stopped.store(true, Ordering::SeqCst);
            landed
        };
        let (landed, _) = tokio::join!(faults, publishing);
        load.publish_end(&mut rng).await;
        landed
    };
    let (landed, seen) = tokio::join!(working, reading);
    compare(name, fleet, load, &seen, landed).await;
    landed
}

async fn compare(name: &str, fleet: &Fleet, load: &Load, seen: &[RoomTrace], landed: usize) {
    let mut told = load.told.lock().unwrap().clone();
    told.sort_by_key(|told| told.n);
    let (mut missing, mut repeated, mut unexpected) = (0, 0, Vec::new());
    let ids: HashMap<u64, &String> = told.iter().map(|told| (told.n, &told.id)).collect();
    let nobody_knows = String::from("of an event that was not acknowledged");
    for room in ROOMS {
        let mut stored = fleet.apis()[0].stored_ids(room).await;
        stored.pop().expect("the last event");
        let own: Vec<&AcknowledgedEvent> = told.iter().filter(|told| told.room == room).collect();
        let kept: HashSet<&String> = stored.iter().collect();
        missing += own.iter().filter(|told| !kept.contains(&told.id)).count();
        // Every event was repeated until it was acknowledged, so a stored event that was never acknowledged is a
        // duplicate.
        repeated += stored.len() - own.len().min(stored.len());
        for publisher in 0..load.publishers {
            let ids: Vec<_> =
                own.iter().filter(|told| told.publisher == publisher).map(|told| number(&told.id)).collect();
            assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "events of a publisher are out of order");
        }
        for seen in seen.iter().filter(|seen| seen.room == room) {
            let events = seen.events.iter().map(|mark| match mark {
                EventKey::Id(id) => id,
                EventKey::Number(n) => ids.get(n).copied().unwrap_or(&nobody_knows),
            });
            let events: Vec<&String> = events.collect();
            let had: HashSet<&String> = events.iter().copied().collect();
            missing += stored.iter().filter(|id| !had.contains(id)).count();
            repeated += events.len() - had.len();
            unexpected.extend(seen.unexpected.iter().map(|what| format!("{}: {what}", seen.reader)));
            if events.iter().copied().ne(&stored) && had.len() == stored.len() {
                unexpected.push(format!("{}: another order than the log's", seen.reader));
            }
        }
    }
    let late = load.late.load(Ordering::SeqCst);
    proof::record(
        "fleet",
        name,
        json!({
            "seed": tier::seed(), "faults": load.faults.load(Ordering::SeqCst), "landedInFlight": landed,
            "inFlight": load.crossed(), "requestsCut": load.cut(), "refused": load.refused(), "answeredLate": late,
            "acknowledged": told.len(), "repeatedUnderTheirKey": load.found_stored.load(Ordering::SeqCst),
            "clients": seen.len(), "comebacks": seen.iter().map(|seen| seen.reconnects).sum::<u64>(),
            "delivered": seen.iter().map(|seen| seen.events.len()).sum::<usize>(),
            "missing": missing, "repeated": repeated,
        }),
    );
    assert!(unexpected.is_empty(), "clients received unexpected messages: {unexpected:#?}");
    assert_eq!((missing, repeated), (0, 0), "missing and repeated events");
    assert_eq!(late, 0, "requests that were not answered within {PUBLISH_TIMEOUT:?}");
}

/// Parses a stream id into its two numbers.
pub(super) fn number(id: &str) -> (u64, u64) {
    let (ms, sequence) = id.split_once('-').expect("an id");
    (ms.parse().expect("milliseconds"), sequence.parse().expect("a number"))
}
