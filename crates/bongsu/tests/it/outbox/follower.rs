//! Somebody who follows an event over SSE, loses the connection at random, and comes back with their last id.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bongsu_testkit::sse::{Event, Stream};
use bongsu_testkit::{Hub, Rng};
use tokio::time::{Instant, sleep};

use super::fleet::LONG;
use super::follow;

/// The number of the row that ends a test: everything else was committed before it was written.
pub(super) const LAST: u64 = 1 << 50;

/// What somebody was told.
#[derive(Default)]
pub(super) struct Followed {
    pub(super) ids: Vec<i64>,
    /// Without the one at the end.
    pub(super) numbers: Vec<u64>,
    pub(super) drops: usize,
    /// Streams that were opened.
    pub(super) streams: usize,
    /// How often it was told that what it had may not be what there is, and began anew.
    pub(super) resets: usize,
}

pub(super) struct Follower<'a> {
    /// Comes back to any of these.
    pub(super) hubs: Vec<&'a Hub>,
    pub(super) event: u64,
    pub(super) person: u64,
    /// Drops about once in so many events; never when it is zero.
    pub(super) drops_one_in: u64,
    /// Counts what everybody is told.
    pub(super) told: &'a AtomicUsize,
}

impl Followed {
    fn begin_anew(&mut self) {
        self.ids.clear();
        self.numbers.clear();
        self.resets += 1;
    }
}

impl Follower<'_> {
    /// Everything from the beginning to the last row, or to where nothing more comes.
    pub(super) async fn follow(self, mut rng: Rng) -> Followed {
        let (mut followed, mut last, mut until) =
            (Followed::default(), "0".to_owned(), Instant::now() + LONG);
        while Instant::now() < until {
            let hub = *rng.pick(&self.hubs);
            let request = follow(hub, &self.event.to_string(), self.person).last_event_id(&last);
            // A hub that is down, or was killed before it answered, is asked again.
            let Ok(opened) = request.try_open().await else {
                // A client's pause before it comes back.
                sleep(Duration::from_millis(20)).await;
                continue;
            };
            let mut stream = opened.unwrap_or_else(|answer| panic!("{} {}", answer.status, answer.text()));
            followed.streams += 1;
            while let Some(event) = self.next(&mut stream, &mut rng, until).await {
                until = Instant::now() + LONG;
                if event.event == "system.close" {
                    assert_eq!(event.json()["reconnect"], true, "{event:?}");
                    break;
                }
                if let Some(id) = &event.own_id {
                    last.clone_from(id);
                }
                if event.event == "system.reset" {
                    followed.begin_anew();
                    continue;
                }
                let (id, number) = read(&event);
                followed.ids.push(id);
                if number == LAST {
                    return followed;
                }
                followed.numbers.push(number);
                self.told.fetch_add(1, Ordering::SeqCst);
                if self.drops_one_in > 0 && rng.chance(1, self.drops_one_in) {
                    followed.drops += 1;
                    break;
                }
            }
        }
        followed
    }

    /// None when the stream has ended or the time is over; one who drops also drops in silence.
    async fn next(&self, stream: &mut Stream, rng: &mut Rng, until: Instant) -> Option<Event> {
        loop {
            let patience = Duration::from_millis(rng.range(20..500)).min(until - Instant::now());
            if let Ok(event) = stream.try_next_event(patience).await {
                return event;
            }
            if Instant::now() >= until || (self.drops_one_in > 0 && rng.chance(1, 4)) {
                return None;
            }
        }
    }
}

/// The id and the number of a row that was told.
pub(super) fn read(event: &Event) -> (i64, u64) {
    let data = event.json();
    assert_eq!(event.event, "message", "something else was told: {event:?}");
    assert_eq!(event.own_id, Some(data["id"].to_string()), "{event:?}");
    (data["id"].as_i64().expect("an id"), data["payload"]["proposal_id"].as_u64().expect("a number"))
}
