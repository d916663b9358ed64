//! Runs a load: sends requests at a given rate for a given time, then waits until every subscriber has received all of
//! its events, or until a timeout.

use super::Generator;
use crate::Result;
use crate::stats::{Histogram, Latency, rounded};
use serde::Serialize;
use std::time::Duration;

/// Reading continues for this time after the last expected delivery, to detect repeated deliveries.
const LINGER_TIME: Duration = Duration::from_millis(200);

/// When callers send requests.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    /// At this rate, over all callers.
    PerSecond(u32),
    /// Each caller sends its next request as soon as the previous one is answered.
    ClosedLoop,
}

#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) pace: Pace,
    /// How long requests are sent.
    pub(crate) window: Duration,
    /// Requests are about the subjects 0 to `subjects` - 1 in turn.
    pub(crate) subjects: u32,
    /// How long the last deliveries may take after the end of the window.
    pub(crate) drain: Duration,
}

/// The rows that writers committed: their number per subject, and the latency of the transactions.
pub(crate) struct CommittedRows {
    pub(crate) rows: Vec<u32>,
    pub(crate) latency: Histogram,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outcome {
    pub(crate) published: u64,
    pub(crate) published_per_second: f64,
    /// Answers with another status than that of success.
    pub(crate) refused: u64,
    pub(crate) publish_latency: Latency,
    pub(crate) delivered: u64,
    /// Over the time from the start of the load to the last delivery.
    pub(crate) delivered_per_second: f64,
    pub(crate) delivery_latency: Latency,
    pub(crate) missing: u64,
    pub(crate) repeated: u64,
    pub(crate) system_frames: u64,
    pub(crate) closed_streams: usize,
    pub(crate) frame_bytes: usize,
}

impl Outcome {
    /// Missing and repeated events, refused requests, `system.` frames and closed streams.
    pub(crate) fn faults(&self) -> u64 {
        self.missing + self.repeated + self.refused + self.system_frames + self.closed_streams as u64
    }
}

impl Generator {
    /// Sends the requests of a load and counts their deliveries.
    pub(crate) fn run(&mut self, load: &Load) -> Result<Outcome> {
        let started_ns = self.restart_counting(load.subjects);
        let window = nanos(load.window);
        let mut sent = 0u64;
        let mut accepted_in_window = None;
        loop {
            let elapsed = self.clock.now_ns() - started_ns;
            let timeout = if elapsed < window {
                let due = self.send_due(load, sent, elapsed)?;
                sent += due;
                time_until_next(load.pace, sent, elapsed, window)
            } else {
                let accepted = *accepted_in_window.get_or_insert(self.tally.accepted_total);
                let answered = self.idle.len() == self.callers.len();
                if answered && self.tally.delivered >= self.tally.expected {
                    self.read_for(LINGER_TIME)?;
                    return Ok(self.outcome(load, started_ns, accepted));
                }
                if elapsed > window + nanos(load.drain) {
                    if !answered {
                        return Err("requests were not answered in time".into());
                    }
                    return Ok(self.outcome(load, started_ns, accepted));
                }
                Duration::from_millis(10)
            };
            self.poll(timeout)?;
        }
    }

    /// Reads while writers commit rows, and then until every subscriber has received the committed rows, or until the
    /// drain timeout. `take_committed` returns the rows once all writers have ended.
    pub(crate) fn receive_rows(
        &mut self,
        load: &Load,
        mut take_committed: impl FnMut() -> Option<Result<CommittedRows>>,
    ) -> Result<Outcome> {
        let started_ns = self.restart_counting(load.subjects);
        let committed = loop {
            if let Some(committed) = take_committed() {
                break committed?;
            }
            self.poll(Duration::from_millis(10))?;
        };
        for (subject, rows) in committed.rows.iter().enumerate() {
            self.tally.accepted[subject] = *rows;
            self.tally.accepted_total += u64::from(*rows);
            self.tally.expected += u64::from(*rows) * u64::from(self.tally.audience[subject]);
        }
        let deadline = self.deadline(load.drain);
        while self.tally.delivered < self.tally.expected && self.clock.now_ns() < deadline {
            self.poll(Duration::from_millis(10))?;
        }
        self.read_for(LINGER_TIME)?;
        let outcome = self.outcome(load, started_ns, self.tally.accepted_total);
        Ok(Outcome { publish_latency: committed.latency.summary(), ..outcome })
    }

    fn restart_counting(&mut self, subjects: u32) -> u64 {
        let mut audience = vec![0; subjects as usize];
        for stream in &mut self.streams {
            stream.cursor.received = 0;
            if let Some(count) = audience.get_mut(stream.cursor.subject as usize) {
                *count += 1;
            }
        }
        let now = self.clock.now_ns();
        self.tally.restart(audience, now);
        now
    }

    /// Sends the requests that are due, as far as there are idle callers. Without an idle caller a request is sent
    /// later, which shows as a lower rate. Returns the number of sent requests.
    fn send_due(&mut self, load: &Load, sent: u64, elapsed: u64) -> Result<u64> {
        let due = match load.pace {
            Pace::PerSecond(rate) => (elapsed.saturating_mul(u64::from(rate)) / 1_000_000_000 + 1) - sent,
            Pace::ClosedLoop => u64::MAX,
        };
        let mut sent_now = 0;
        while sent_now < due {
            let Some(number) = self.idle.pop() else { break };
            let subject = ((sent + sent_now) % u64::from(load.subjects)) as u32;
            self.callers[number].send(subject, self.clock.now_ns())?;
            sent_now += 1;
        }
        Ok(sent_now)
    }

    fn outcome(&self, load: &Load, started_ns: u64, accepted_in_window: u64) -> Outcome {
        let tally = &self.tally;
        let missing_on = |stream: &super::Stream| {
            let accepted = tally.accepted.get(stream.cursor.subject as usize).copied().unwrap_or(0);
            u64::from(accepted.saturating_sub(stream.cursor.received))
        };
        let seconds = (tally.last_delivery_ns - started_ns).max(1) as f64 / 1e9;
        Outcome {
            published: tally.accepted_total,
            published_per_second: rounded(accepted_in_window as f64 / load.window.as_secs_f64(), 1),
            refused: tally.refused,
            publish_latency: tally.answer_latency.summary(),
            delivered: tally.delivered,
            delivered_per_second: rounded(tally.delivered as f64 / seconds, 0),
            delivery_latency: tally.delivery_latency.summary(),
            missing: self.streams.iter().map(missing_on).sum(),
            repeated: tally.repeated,
            system_frames: tally.system_frames,
            closed_streams: self.streams_closed_by_server(),
            frame_bytes: (tally.delivered_bytes / tally.delivered.max(1)) as usize,
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2)
}

fn time_until_next(pace: Pace, sent: u64, elapsed: u64, window: u64) -> Duration {
    let next = match pace {
        Pace::PerSecond(rate) => sent.saturating_mul(1_000_000_000) / u64::from(rate),
        Pace::ClosedLoop => window,
    };
    // At least 100 µs, so that the loop does not spin while all callers are busy.
    Duration::from_nanos(next.min(window).saturating_sub(elapsed).max(100_000))
}
