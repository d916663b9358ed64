//! The model check of the delivery path: shuttle runs it with many interleavings of its threads.
//!
//! A publisher pushes entries and queues their subject on the shard, the shard wakes the subscribers, and readers take
//! the entries. Each reader must get every entry once and in order. A lost wake-up is a deadlock, which shuttle
//! reports.

#![expect(clippy::expect_used, reason = "helpers of tests; clippy excepts only the tests themselves")]

use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use bongsu_kernel::text::Language;
use bongsu_kernel::{Id, StreamId};
use shuttle::{check_pct, check_random, future, thread};

use crate::budget::Budget;
use crate::connection_state::{ConnectionState, Deadlines};
use crate::encode::{Encoder, Frames};
use crate::log::LogPosition;
use crate::message::{Data, Item, Message};
use crate::ring::{Cursor, Ring, RingEntry, TakeOutcome};
use crate::shard::WakeQueue;
use crate::subject::Subject;
use crate::sync::Arc;

fn position(number: u64) -> LogPosition {
    LogPosition { id: StreamId::new(number, 0), number: Some(number) }
}

fn push(subject: &Arc<Subject>, number: u64, wake_queues: &[WakeQueue]) {
    let message = Message::built_in("n", None, Data::Json(number.to_string().into()));
    let entry = RingEntry::new(Item::new(position(number), message), Instant::now());
    subject.push(StreamId::new(number - 1, 0), entry, wake_queues);
}

fn numbers(frames: &Frames) -> Vec<u8> {
    let Frames::Joined(bytes) = frames else { return Vec::new() };
    let text = String::from_utf8_lossy(bytes);
    text.lines().filter_map(|line| line.strip_prefix("data: ")?.parse().ok()).collect()
}

/// Reads until the entry `last`. A reader that is behind reads the log, which contains every number.
async fn read_all(
    subject: Arc<Subject>,
    state: Arc<ConnectionState>,
    mut cursor: Cursor,
    last: u64,
) -> Vec<u8> {
    let mut seen = Vec::new();
    let person = Id::new("1").expect("an id");
    let encoder = Encoder::sse(Language::Korean);
    poll_fn(|cx| {
        loop {
            state.register_waker(cx.waker());
            match subject.take(&mut cursor, &person, StreamId::START, &encoder) {
                TakeOutcome::Frames { frames, .. } => seen.extend(numbers(&frames)),
                TakeOutcome::Behind => {
                    let next = position(cursor.position.id.ms + 1);
                    seen.push(next.id.ms as u8);
                    let advanced = Cursor { position: next, ..cursor };
                    cursor = subject.resume(advanced).unwrap_or(advanced);
                }
                TakeOutcome::UpToDate if seen.last() == Some(&(last as u8)) => return Poll::Ready(()),
                TakeOutcome::UpToDate | TakeOutcome::Removed => return Poll::Pending,
            }
        }
    })
    .await;
    seen
}

/// One thread pushes `frames` entries to a ring buffer of `capacity` entries; `readers` readers on one shard read them.
fn run_delivery(frames: u64, readers: usize, capacity: usize) {
    let subject = Arc::new(Subject::new(Ring::new(capacity, Arc::new(Budget::new(1_000))), 1));
    subject.initialize_at(LogPosition::START);
    let wake_queues: Arc<Vec<WakeQueue>> = Arc::new(vec![WakeQueue::default()]);
    let publisher = {
        let (subject, wake_queues) = (subject.clone(), wake_queues.clone());
        thread::spawn(move || (1..=frames).for_each(|number| push(&subject, number, &wake_queues)))
    };
    let dispatcher = {
        let wake_queues = wake_queues.clone();
        future::spawn(async move {
            loop {
                for subject in poll_fn(|cx| wake_queues[0].poll_take(cx)).await {
                    subject.wake(0);
                }
            }
        })
    };
    let reading: Vec<_> = (0..readers)
        .map(|_| {
            let deadlines = Deadlines {
                keepalive_interval: 1,
                stall_timeout: 1,
                lifetime_ends_at: None,
                issued_at: 0,
                expires_at: 1,
            };
            let state = Arc::new(ConnectionState::new(deadlines, None, 0));
            // Subscribes before it looks for its position, as `Reader` does.
            subject.add_subscriber(0, state.clone());
            let from = subject.find(StreamId::START).unwrap_or(Cursor {
                next: 0,
                position: LogPosition::START,
                ephemeral_from: 0,
            });
            future::spawn(read_all(subject.clone(), state, from, frames))
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
    check_random(|| run_delivery(4, 2, 8), 5_000);
}

#[test]
fn readers_that_fall_behind_go_through_the_log() {
    check_random(|| run_delivery(5, 2, 1), 5_000);
}

/// PCT scheduling: a few well-placed thread switches find races that random scheduling seldom finds.
#[test]
fn no_wake_up_is_lost() {
    for switches in 2..=4 {
        check_pct(|| run_delivery(3, 1, 4), 10_000, switches);
    }
}
