//! The model check of the delivery path: shuttle runs every interleaving it can think of.
//!
//! A publisher pushes frames and leaves word, a shard passes the word on, readers take frames. Each reader must see
//! every frame once, in order, and nobody may sleep for ever: a lost wake-up is a deadlock, which shuttle reports.

#![expect(clippy::expect_used, reason = "a test in all but its helpers' attributes")]

use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use bongsu_kernel::text::Language;
use bongsu_kernel::{Id, StreamId};
use shuttle::{check_pct, check_random, future, thread};

use crate::budget::Budget;
use crate::encode::{Encoder, Frames};
use crate::log::Place;
use crate::message::{Data, Item, Message};
use crate::ring::{Cursor, Ring, RingEntry, Taken};
use crate::seat::{Seat, Terms};
use crate::shard::Inbox;
use crate::subject::Subject;
use crate::sync::Arc;

fn place(number: u64) -> Place {
    Place { id: StreamId::new(number, 0), number: Some(number) }
}

fn push(subject: &Arc<Subject>, number: u64, inboxes: &[Inbox]) {
    let message = Message::own("n", None, Data::Json(number.to_string().into()));
    let entry = RingEntry::new(Item::new(place(number), message), Instant::now());
    subject.push(StreamId::new(number - 1, 0), entry, inboxes);
}

fn numbers(frames: &Frames) -> Vec<u8> {
    let Frames::Joined(bytes) = frames else { return Vec::new() };
    let text = String::from_utf8_lossy(bytes);
    text.lines().filter_map(|line| line.strip_prefix("data: ")?.parse().ok()).collect()
}

/// Reads until `last` was seen. One that is behind reads the log, which here is simply all numbers.
async fn read_all(subject: Arc<Subject>, seat: Arc<Seat>, mut cursor: Cursor, last: u64) -> Vec<u8> {
    let mut seen = Vec::new();
    let nobody = Id::new("nobody").expect("an id");
    let encoder = Encoder::sse(Language::Korean);
    poll_fn(|cx| {
        loop {
            seat.listen(cx.waker());
            match subject.take(&mut cursor, &nobody, StreamId::START, &encoder) {
                Taken::Frames { frames, .. } => seen.extend(numbers(&frames)),
                Taken::Behind => {
                    let next = place(cursor.place.id.ms + 1);
                    seen.push(next.id.ms as u8);
                    let there = Cursor { place: next, ..cursor };
                    cursor = subject.resume(there).unwrap_or(there);
                }
                Taken::Level if seen.last() == Some(&(last as u8)) => return Poll::Ready(()),
                Taken::Level | Taken::Removed => return Poll::Pending,
            }
        }
    })
    .await;
    seen
}

/// `frames` pushes by one thread, `readers` readers on one shard, a ring of `capacity`.
fn scene(frames: u64, readers: usize, capacity: usize) {
    let subject = Arc::new(Subject::new(Ring::new(capacity, Arc::new(Budget::new(1_000))), 1));
    subject.begin_at(Place::START);
    let inboxes: Arc<Vec<Inbox>> = Arc::new(vec![Inbox::default()]);
    let publisher = {
        let (subject, inboxes) = (subject.clone(), inboxes.clone());
        thread::spawn(move || (1..=frames).for_each(|number| push(&subject, number, &inboxes)))
    };
    let dispatcher = {
        let inboxes = inboxes.clone();
        future::spawn(async move {
            loop {
                for subject in poll_fn(|cx| inboxes[0].poll_take(cx)).await {
                    subject.wake(0);
                }
            }
        })
    };
    let reading: Vec<_> = (0..readers)
        .map(|_| {
            let terms = Terms { keepalive: 1, stall: 1, lifetime: None, issued_at: 0, expires_at: 1 };
            let seat = Arc::new(Seat::new(terms, None, 0));
            // Listening comes first, then looking where to begin.
            subject.sit_down(0, seat.clone());
            let from = subject.find(StreamId::START).unwrap_or(Cursor {
                next: 0,
                place: Place::START,
                here_since: 0,
            });
            future::spawn(read_all(subject.clone(), seat, from, frames))
        })
        .collect();
    for reader in reading {
        let seen = future::block_on(reader).expect("a reader ends");
        assert_eq!(seen, (1..=frames as u8).collect::<Vec<_>>());
    }
    publisher.join().expect("the publisher ends");
    dispatcher.abort();
}

#[test]
fn every_reader_sees_every_frame_once_in_order() {
    check_random(|| scene(4, 2, 8), 5_000);
}

#[test]
fn readers_that_fall_behind_go_through_the_log() {
    check_random(|| scene(5, 2, 1), 5_000);
}

/// Few, well-placed switches between threads find what random ones seldom do.
#[test]
fn no_wake_up_is_lost() {
    for switches in 2..=4 {
        check_pct(|| scene(3, 1, 4), 10_000, switches);
    }
}
