//! A load: requests at a pace for a while, then a wait until every subscriber has everything, or long enough.

use super::Generator;
use crate::Result;
use crate::stats::{Histogram, Latency, rounded};
use serde::Serialize;
use std::time::Duration;

/// After the last expected delivery: a repeated one may still be on its way.
const LINGER: Duration = Duration::from_millis(200);

#[derive(Clone, Copy)]
pub(crate) enum Pace {
    PerSecond(u32),
    /// Each caller sends its next as soon as the last was answered.
    AsAnswered,
}

#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) pace: Pace,
    /// How long to send.
    pub(crate) window: Duration,
    /// Requests are about these many subjects in turn.
    pub(crate) subjects: u32,
    /// How long the last deliveries may take after the window.
    pub(crate) drain: Duration,
}

/// What others wrote: rows about each subject, and how long their transactions took.
pub(crate) struct Written {
    pub(crate) rows: Vec<u32>,
    pub(crate) latency: Histogram,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outcome {
    pub(crate) published: u64,
    pub(crate) published_per_second: f64,
    /// Answers other than that of success.
    pub(crate) refused: u64,
    pub(crate) publish_latency: Latency,
    pub(crate) delivered: u64,
    /// From the first publish to the last delivery.
    pub(crate) delivered_per_second: f64,
    pub(crate) delivery_latency: Latency,
    pub(crate) missing: u64,
    pub(crate) repeated: u64,
    pub(crate) system_frames: u64,
    pub(crate) closed_streams: usize,
    pub(crate) frame_bytes: usize,
}

impl Outcome {
    /// Deliveries that broke the promise of once each, in order, and streams that did not last.
    pub(crate) fn faults(&self) -> u64 {
        self.missing + self.repeated + self.refused + self.system_frames + self.closed_streams as u64
    }
}

impl Generator {
    pub(crate) fn run(&mut self, load: &Load) -> Result<Outcome> {
        let began = self.restart_counting(load.subjects);
        let window = nanos(load.window);
        let mut sent = 0u64;
        let mut accepted_in_window = None;
        loop {
            let elapsed = self.clock.now_ns() - began;
            let timeout = if elapsed < window {
                let due = self.send_due(load, sent, elapsed)?;
                sent += due;
                until_next(load.pace, sent, elapsed, window)
            } else {
                let accepted = *accepted_in_window.get_or_insert(self.tally.accepted_total);
                let answered = self.idle.len() == self.callers.len();
                if answered && self.tally.delivered >= self.tally.expected {
                    self.stay_idle(LINGER)?;
                    return Ok(self.outcome(load, began, accepted));
                }
                if elapsed > window + nanos(load.drain) {
                    if !answered {
                        return Err("requests were not answered in time".into());
                    }
                    return Ok(self.outcome(load, began, accepted));
                }
                Duration::from_millis(10)
            };
            self.pump(timeout)?;
        }
    }

    /// Reads while others write, and then until every subscriber has all that they say they wrote, or long enough.
    pub(crate) fn listen(
        &mut self,
        load: &Load,
        mut written: impl FnMut() -> Option<Result<Written>>,
    ) -> Result<Outcome> {
        let began = self.restart_counting(load.subjects);
        let written = loop {
            if let Some(written) = written() {
                break written?;
            }
            self.pump(Duration::from_millis(10))?;
        };
        for (subject, rows) in written.rows.iter().enumerate() {
            self.tally.accepted[subject] = *rows;
            self.tally.accepted_total += u64::from(*rows);
            self.tally.expected += u64::from(*rows) * u64::from(self.tally.audience[subject]);
        }
        let deadline = self.deadline(load.drain);
        while self.tally.delivered < self.tally.expected && self.clock.now_ns() < deadline {
            self.pump(Duration::from_millis(10))?;
        }
        self.stay_idle(LINGER)?;
        let outcome = self.outcome(load, began, self.tally.accepted_total);
        Ok(Outcome { publish_latency: written.latency.summary(), ..outcome })
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

    /// Sends what is due on the callers that are free; what finds none waits, and shows as a lower rate.
    fn send_due(&mut self, load: &Load, sent: u64, elapsed: u64) -> Result<u64> {
        let due = match load.pace {
            Pace::PerSecond(rate) => (elapsed.saturating_mul(u64::from(rate)) / 1_000_000_000 + 1) - sent,
            Pace::AsAnswered => u64::MAX,
        };
        let mut done = 0;
        while done < due {
            let Some(number) = self.idle.pop() else { break };
            let subject = ((sent + done) % u64::from(load.subjects)) as u32;
            self.callers[number].send(subject, self.clock.now_ns())?;
            done += 1;
        }
        Ok(done)
    }

    fn outcome(&self, load: &Load, began: u64, accepted_in_window: u64) -> Outcome {
        let tally = &self.tally;
        let missing_on = |stream: &super::Stream| {
            let accepted = tally.accepted.get(stream.cursor.subject as usize).copied().unwrap_or(0);
            u64::from(accepted.saturating_sub(stream.cursor.received))
        };
        let delivering = (tally.last_delivery_ns - began).max(1) as f64 / 1e9;
        Outcome {
            published: tally.accepted_total,
            published_per_second: rounded(accepted_in_window as f64 / load.window.as_secs_f64(), 1),
            refused: tally.refused,
            publish_latency: tally.answer_latency.summary(),
            delivered: tally.delivered,
            delivered_per_second: rounded(tally.delivered as f64 / delivering, 0),
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

fn until_next(pace: Pace, sent: u64, elapsed: u64, window: u64) -> Duration {
    let next = match pace {
        Pace::PerSecond(rate) => sent.saturating_mul(1_000_000_000) / u64::from(rate),
        Pace::AsAnswered => window,
    };
    // At least a little: a pool of callers that is exhausted must not make this loop spin.
    Duration::from_nanos(next.min(window).saturating_sub(elapsed).max(100_000))
}
