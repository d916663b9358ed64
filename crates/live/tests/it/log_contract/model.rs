//! Random sequences of requests, restarts, kills and clock changes, compared with a small model of the contract.

use std::collections::BTreeMap;

use bongsu_kernel::{Millis, StreamId};
use bongsu_live::{AppendError, StartPosition};
use bongsu_testkit::tier;

use super::Adapter;
use super::support::{ALL, Event, LogFixture, NOW, Outcome};

const DAY: Millis = 24 * 60 * 60 * 1_000;
const ROOMS: [&str; 3] = ["a", "b", "A"];

/// The expected events of a subject, and the answers stored under its keys: expiry, content and id.
#[derive(Default)]
struct Subject {
    events: Vec<(StreamId, String)>,
    keys: BTreeMap<String, (Millis, String, StreamId)>,
}

impl Subject {
    /// The expected outcome: the id of a duplicate, or None for a new event, whose id is not known in advance.
    fn expect(&self, key: Option<&str>, data: &str, now: Millis) -> Result<Option<StreamId>, AppendError> {
        match key.and_then(|key| self.keys.get(key)).filter(|(expiry, ..)| *expiry > now) {
            Some((_, first, id)) if first == data => Ok(Some(*id)),
            Some(_) => Err(AppendError::Conflict),
            None => Ok(None),
        }
    }

    /// Checks an outcome against the model, and applies it.
    fn apply(&mut self, key: Option<&str>, data: &str, now: Millis, outcome: &Outcome) {
        match (self.expect(key, data, now), outcome) {
            (Ok(None), Ok(appended)) => {
                assert!(!appended.duplicate, "a new event was reported as a duplicate");
                assert!(
                    self.events.last().is_none_or(|(last, _)| *last < appended.id),
                    "{} is not larger than the last id",
                    appended.id
                );
                self.events.push((appended.id, data.to_owned()));
                key.map(|key| self.keys.insert(key.to_owned(), (now + DAY, data.to_owned(), appended.id)));
            }
            (Ok(Some(first)), Ok(appended)) => {
                assert_eq!((appended.duplicate, appended.id), (true, first));
            }
            (Err(expected), Err(refused)) => assert_eq!(expected, *refused),
            (expected, outcome) => panic!("expected {expected:?}, got {outcome:?}"),
        }
    }
}

/// SplitMix64, so that a run is the same for the same seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

pub(crate) async fn random_requests_restarts_and_clock_changes_match_the_model<A: Adapter>() {
    for seed in 0..tier::size(2, 40) as u64 {
        run::<A>(&mut Rng(seed)).await;
    }
}

async fn run<A: Adapter>(rng: &mut Rng) {
    let mut fixture = LogFixture::<A>::killable().await;
    let mut model: BTreeMap<&str, Subject> = ROOMS.map(|room| (room, Subject::default())).into();
    let mut now = NOW;
    for _ in 0..150 {
        match rng.below(20) {
            0 => fixture.reopen().await,
            1 => fixture.kill_and_reopen().await,
            2 => now += rng.below(2 * DAY),
            3 => now -= rng.below(DAY),
            4..8 => check_read(&fixture, &model, rng).await,
            _ => append(&fixture, &mut model, rng, now).await,
        }
        fixture.clock.set(now);
    }
    for room in ROOMS {
        let read = fixture.entries(room).await;
        let read: Vec<_> =
            read.iter().map(|entry| (entry.position.id, entry.data.as_str().to_owned())).collect();
        assert_eq!(read, model[room].events);
    }
}

async fn append<A: Adapter>(
    fixture: &LogFixture<A>,
    model: &mut BTreeMap<&str, Subject>,
    rng: &mut Rng,
    now: Millis,
) {
    let batch: Vec<_> = (0..1 + rng.below(6))
        .map(|_| {
            let room = ROOMS[rng.below(3) as usize];
            let key = (rng.below(3) > 0).then(|| format!("key {}", rng.below(8)));
            (room, key, format!("{{\"n\":{}}}", rng.below(2)))
        })
        .collect();
    let events = batch.iter().map(|(room, key, data)| {
        let event = Event::of(room).data(data);
        key.as_ref().map_or(event.clone(), |key| event.key(key))
    });
    // Sets the clock to the time that the model uses.
    fixture.clock.set(now);
    let outcomes = fixture.append(events.collect()).await;
    for ((room, key, data), outcome) in batch.iter().zip(&outcomes) {
        model.get_mut(room).unwrap().apply(key.as_deref(), data, now, outcome);
    }
}

/// Reads after an existing event, or after a position that never existed.
async fn check_read<A: Adapter>(fixture: &LogFixture<A>, model: &BTreeMap<&str, Subject>, rng: &mut Rng) {
    let room = ROOMS[rng.below(3) as usize];
    let events = &model[room].events;
    let newest = events.last().map_or(StreamId::START, |(id, _)| *id);
    assert_eq!(fixture.head(room).await.id, newest);
    let at = rng.below(events.len() as u64 + 1) as usize;
    let Some((after, _)) = events.get(at) else {
        let page = fixture.read(room, StreamId::new(newest.ms, newest.seq + 2), ALL).await;
        assert_eq!((page.start, page.entries.len()), (StartPosition::Unknown, 0));
        return;
    };
    let page = fixture.read(room, *after, ALL).await;
    assert_eq!((page.start, page.entries.len()), (StartPosition::Known, events.len() - at - 1));
}
