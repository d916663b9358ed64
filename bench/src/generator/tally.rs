//! The counters of a load: answers to callers, deliveries to streams, and faults.

use super::stream::{Cursor, EventId};
use crate::clock::StampReader;
use crate::stats::Histogram;
use crate::wire::frames::Frame;

pub(crate) struct Tally {
    stamps: StampReader,
    /// Time from a request to its answer.
    pub(super) answer_latency: Histogram,
    pub(super) delivery_latency: Histogram,
    /// Successful requests per subject.
    pub(super) accepted: Vec<u32>,
    pub(super) accepted_total: u64,
    pub(super) refused: u64,
    /// Deliveries that the accepted requests must cause.
    pub(super) expected: u64,
    /// Subscribers per subject.
    pub(super) audience: Vec<u32>,
    pub(super) delivered: u64,
    /// Deliveries that were not newer than all previous ones on the same stream.
    pub(super) repeated: u64,
    pub(super) delivered_bytes: u64,
    pub(super) last_delivery_ns: u64,
    /// `system.` frames, such as resets and closes; a correct run has none.
    pub(super) system_frames: u64,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            stamps: StampReader::default(),
            answer_latency: Histogram::new(),
            delivery_latency: Histogram::new(),
            accepted: Vec::new(),
            accepted_total: 0,
            refused: 0,
            expected: 0,
            audience: Vec::new(),
            delivered: 0,
            repeated: 0,
            delivered_bytes: 0,
            last_delivery_ns: 0,
            system_frames: 0,
        }
    }

    /// Resets all counters. `audience` is the number of subscribers of each subject of the next load.
    pub(super) fn restart(&mut self, audience: Vec<u32>, now_ns: u64) {
        self.answer_latency.clear();
        self.delivery_latency.clear();
        self.accepted.clear();
        self.accepted.resize(audience.len(), 0);
        self.audience = audience;
        self.last_delivery_ns = now_ns;
        for counter in [
            &mut self.accepted_total,
            &mut self.refused,
            &mut self.expected,
            &mut self.delivered,
            &mut self.repeated,
            &mut self.delivered_bytes,
            &mut self.system_frames,
        ] {
            *counter = 0;
        }
    }

    pub(super) fn record_answer(&mut self, subject: u32, nanos: u64) {
        self.answer_latency.record(nanos);
        self.accepted[subject as usize] += 1;
        self.accepted_total += 1;
        self.expected += u64::from(self.audience[subject as usize]);
    }

    /// Counts a frame. Frames without an id or without a stamp (presence, comments) are ignored.
    pub(super) fn record_frame(&mut self, frame: &Frame<'_>, now_ns: u64, cursor: &mut Cursor) {
        if frame.event.starts_with(b"system.") {
            self.system_frames += 1;
            return;
        }
        let Some(id) = EventId::parse(frame.id) else { return };
        let Some(sent_ns) = self.stamps.read(frame.data) else { return };
        if cursor.advance(id) {
            self.delivered += 1;
            self.delivered_bytes += frame.bytes as u64;
            self.last_delivery_ns = now_ns;
            self.delivery_latency.record(now_ns.saturating_sub(sent_ns));
        } else {
            self.repeated += 1;
        }
    }
}
