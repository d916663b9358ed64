//! Any sequence of requests, ends, kills and clock changes, beside a model of a few lines that does what is promised.

use std::collections::BTreeMap;

use bongsu_kernel::{Millis, StreamId};
use bongsu_live::{AppendError, Start};
use bongsu_testkit::tier;

use super::Adapter;
use super::support::{ALL, Event, NOW, Outcome, Stage};

const DAY: Millis = 24 * 60 * 60 * 1_000;
const ROOMS: [&str; 3] = ["a", "b", "A"];

/// What a subject would hold, and the answers kept for its keys: until when, for which content, which id.
#[derive(Default)]
struct Subject {
    events: Vec<(StreamId, String)>,
    keys: BTreeMap<String, (Millis, String, StreamId)>,
}

impl Subject {
    /// The outcome that is promised, as far as it can be known before: the id of a duplicate, none for a new event.
    fn expect(&self, key: Option<&str>, data: &str, now: Millis) -> Result<Option<StreamId>, AppendError> {
        match key.and_then(|key| self.keys.get(key)).filter(|(until, ..)| *until > now) {
            Some((_, first, id)) if first == data => Ok(Some(*id)),
            Some(_) => Err(AppendError::Conflict),
            None => Ok(None),
        }
    }

    fn take(&mut self, key: Option<&str>, data: &str, now: Millis, outcome: &Outcome) {
        match (self.expect(key, data, now), outcome) {
            (Ok(None), Ok(taken)) => {
                assert!(!taken.duplicate, "a new event was called a duplicate");
                assert!(
                    self.events.last().is_none_or(|(last, _)| *last < taken.id),
                    "{} came late",
                    taken.id
                );
                self.events.push((taken.id, data.to_owned()));
                key.map(|key| self.keys.insert(key.to_owned(), (now + DAY, data.to_owned(), taken.id)));
            }
            (Ok(Some(first)), Ok(taken)) => assert_eq!((taken.duplicate, taken.id), (true, first)),
            (Err(expected), Err(refused)) => assert_eq!(expected, *refused),
            (expected, outcome) => panic!("{expected:?} was promised, and {outcome:?} came"),
        }
    }
}

/// SplitMix64: the run is the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

pub(crate) async fn any_sequence_of_requests_restarts_and_clocks_is_answered_as_promised<A: Adapter>() {
    for seed in 0..tier::size(2, 40) as u64 {
        run::<A>(&mut Dice(seed)).await;
    }
}

async fn run<A: Adapter>(dice: &mut Dice) {
    let mut stage = Stage::<A>::mortal().await;
    let mut model: BTreeMap<&str, Subject> = ROOMS.map(|room| (room, Subject::default())).into();
    let mut now = NOW;
    for _ in 0..150 {
        match dice.below(20) {
            0 => stage.reopen().await,
            1 => stage.kill_and_reopen().await,
            2 => now += dice.below(2 * DAY),
            3 => now -= dice.below(DAY),
            4..8 => look(&stage, &model, dice).await,
            _ => append(&stage, &mut model, dice, now).await,
        }
        stage.clock.set(now);
    }
    for room in ROOMS {
        let read = stage.entries(room).await;
        let read: Vec<_> =
            read.iter().map(|entry| (entry.place.id, entry.data.as_str().to_owned())).collect();
        assert_eq!(read, model[room].events);
    }
}

async fn append<A: Adapter>(
    stage: &Stage<A>,
    model: &mut BTreeMap<&str, Subject>,
    dice: &mut Dice,
    now: Millis,
) {
    let batch: Vec<_> = (0..1 + dice.below(6))
        .map(|_| {
            let room = ROOMS[dice.below(3) as usize];
            let key = (dice.below(3) > 0).then(|| format!("key {}", dice.below(8)));
            (room, key, format!("{{\"n\":{}}}", dice.below(2)))
        })
        .collect();
    let events = batch.iter().map(|(room, key, data)| {
        let event = Event::of(room).data(data);
        key.as_ref().map_or(event.clone(), |key| event.key(key))
    });
    // The clock may have been moved since: appends happen at the time that it shows.
    stage.clock.set(now);
    let outcomes = stage.append(events.collect()).await;
    for ((room, key, data), outcome) in batch.iter().zip(&outcomes) {
        model.get_mut(room).unwrap().take(key.as_deref(), data, now, outcome);
    }
}

/// Reads on after an event that is there, or after one that never was.
async fn look<A: Adapter>(stage: &Stage<A>, model: &BTreeMap<&str, Subject>, dice: &mut Dice) {
    let room = ROOMS[dice.below(3) as usize];
    let events = &model[room].events;
    let newest = events.last().map_or(StreamId::START, |(id, _)| *id);
    assert_eq!(stage.head(room).await.id, newest);
    let at = dice.below(events.len() as u64 + 1) as usize;
    let Some((after, _)) = events.get(at) else {
        let page = stage.read(room, StreamId::new(newest.ms, newest.seq + 2), ALL).await;
        assert_eq!((page.start, page.entries.len()), (Start::Unknown, 0));
        return;
    };
    let page = stage.read(room, *after, ALL).await;
    assert_eq!((page.start, page.entries.len()), (Start::Known, events.len() - at - 1));
}
