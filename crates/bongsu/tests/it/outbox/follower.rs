//! A reader of an event's SSE stream that loses the connection at random and resumes with its last id.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bongsu_testkit::sse::{Event, Stream};
use bongsu_testkit::{Hub, Rng};
use tokio::time::{Instant, sleep};

use super::fleet::FLEET_TIMEOUT;
use super::stream_request;

/// The number of the row that ends a test: every other row was committed before it was written.
pub(super) const LAST_NUMBER: u64 = 1 << 50;

/// The rows and resets that a reader received.
#[derive(Default)]
pub(super) struct ReaderTrace {
    pub(super) ids: Vec<i64>,
    /// The numbers of the rows, without the last one.
    pub(super) numbers: Vec<u64>,
    pub(super) drops: usize,
    /// Streams that the reader opened.
    pub(super) streams: usize,
    /// How often the reader got `system.reset` and started its trace again.
    pub(super) resets: usize,
}

pub(super) struct StreamReader<'a> {
    /// The reader may connect to any of these hubs.
    pub(super) hubs: Vec<&'a Hub>,
    pub(super) event: u64,
    pub(super) person: u64,
    /// Disconnects on average once in this many events; 0 means never.
    pub(super) one_drop_in: u64,
    /// Counts the events that all readers received.
    pub(super) told: &'a AtomicUsize,
}

impl ReaderTrace {
    fn begin_anew(&mut self) {
        self.ids.clear();
        self.numbers.clear();
        self.resets += 1;
    }
}

impl StreamReader<'_> {
    /// Reads from the beginning to the last row, or until no event arrives within the timeout.
    pub(super) async fn read(self, mut rng: Rng) -> ReaderTrace {
        let (mut followed, mut last, mut until) =
            (ReaderTrace::default(), "0".to_owned(), Instant::now() + FLEET_TIMEOUT);
        while Instant::now() < until {
            let hub = *rng.pick(&self.hubs);
            let request = stream_request(hub, &self.event.to_string(), self.person).last_event_id(&last);
            // The reader tries again when a hub is down or was killed before it answered.
            let Ok(opened) = request.try_open().await else {
                // A client's pause before it reconnects.
                sleep(Duration::from_millis(20)).await;
                continue;
            };
            let mut stream = opened.unwrap_or_else(|answer| panic!("{} {}", answer.status, answer.text()));
            followed.streams += 1;
            while let Some(event) = self.next(&mut stream, &mut rng, until).await {
                until = Instant::now() + FLEET_TIMEOUT;
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
                let (id, number) = row_of(&event);
                followed.ids.push(id);
                if number == LAST_NUMBER {
                    return followed;
                }
                followed.numbers.push(number);
                self.told.fetch_add(1, Ordering::SeqCst);
                if self.one_drop_in > 0 && rng.chance(1, self.one_drop_in) {
                    followed.drops += 1;
                    break;
                }
            }
        }
        followed
    }

    /// The next event; None when the stream has ended or the time is over, or when a reader that drops connections
    /// drops a silent one.
    async fn next(&self, stream: &mut Stream, rng: &mut Rng, until: Instant) -> Option<Event> {
        loop {
            let patience = Duration::from_millis(rng.range(20..500)).min(until - Instant::now());
            if let Ok(event) = stream.try_next_event(patience).await {
                return event;
            }
            if Instant::now() >= until || (self.one_drop_in > 0 && rng.chance(1, 4)) {
                return None;
            }
        }
    }
}

/// The id and the number of a row that was sent.
pub(super) fn row_of(event: &Event) -> (i64, u64) {
    let data = event.json();
    assert_eq!(event.event, "message", "the event is not a row: {event:?}");
    assert_eq!(event.own_id, Some(data["id"].to_string()), "{event:?}");
    (data["id"].as_i64().expect("an id"), data["payload"]["proposal_id"].as_u64().expect("a number"))
}
