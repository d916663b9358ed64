//! From the tail to the hub: each row follows on the one before it of the same target.
//!
//! The hub's rings take only what follows on what they have. Which row that is, is remembered for targets that are
//! followed. Where it is not known the ring says that something may be missing, and is filled from the records.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use bongsu_kernel::{Id, StreamId};

use crate::{Outbox, Row, subject};

/// The last row of each target that is followed, as far as the tail has come, or as far as the records had come when
/// somebody began to follow it.
#[derive(Default)]
pub(crate) struct Ends(Mutex<HashMap<Id, StreamId>>);

impl Ends {
    /// Somebody begins to follow a target that ends here.
    pub(crate) fn begin(&self, target: &Id, place: StreamId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(target.clone()).or_insert(place);
    }

    /// The tail comes by a row: the place before it, or nothing when whoever follows began behind it.
    fn pass(&self, target: &Id, place: StreamId) -> Option<StreamId> {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match ends.get(target) {
            Some(end) if *end >= place => None,
            _ => {
                // Unknown: nothing of this target is between the positions of two rows.
                let just_before = StreamId::new(place.ms.saturating_sub(1), u64::MAX);
                Some(ends.insert(target.clone(), place).unwrap_or(just_before))
            }
        }
    }

    fn forget(&self, target: &Id) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(target);
    }

    fn keep(&self, stays: impl Fn(&Id) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|target, _| stays(target));
    }

    fn take_all(&self) -> HashMap<Id, StreamId> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Outbox {
    /// Differs once the database turned out to be another one.
    pub(crate) fn era(&self) -> u64 {
        self.0.era.load(Ordering::Acquire)
    }

    pub(crate) fn ends(&self) -> &Ends {
        &self.0.ends
    }

    pub(crate) fn hand_over(&self, rows: &[Row]) {
        let (hub, accepted) = (&self.0.hub, Instant::now());
        for row in rows {
            // A target that is no id is nobody's: it cannot be asked for.
            let Ok(target) = Id::new(&row.target) else { continue };
            let subject = subject(&target);
            if !hub.knows(&subject) {
                self.ends().forget(&target);
                continue;
            }
            if let (Some(previous), Some(item)) = (self.ends().pass(&target, row.place().id), row.item()) {
                hub.push(&subject, previous, || item, accepted);
            }
        }
    }

    /// Nobody stays where they are: what a place was before a database was restored, it may not be now.
    pub(crate) fn lose_all(&self) {
        self.0.era.fetch_add(1, Ordering::AcqRel);
        for target in self.ends().take_all().into_keys() {
            self.0.hub.lose(&subject(&target));
        }
    }

    pub(crate) fn tidy(&self) {
        self.ends().keep(|target| self.0.hub.knows(&subject(target)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_follows_on_the_one_before_it() {
        let (ends, target) = (Ends::default(), Id::new("42").unwrap());
        let at = StreamId::new;
        assert_eq!(ends.pass(&target, at(5, 50)), Some(at(4, u64::MAX)), "unknown: nothing is between");
        ends.begin(&target, at(3, 30));
        assert_eq!(ends.pass(&target, at(9, 20)), Some(at(5, 50)), "what the tail knows is newer");
        assert_eq!(ends.pass(&target, at(9, 20)), None);
        ends.forget(&target);
        ends.begin(&target, at(20, 1));
        assert_eq!(ends.pass(&target, at(12, 70)), None, "it was there when somebody came");
        assert_eq!(ends.pass(&target, at(21, 2)), Some(at(20, 1)));
    }
}
