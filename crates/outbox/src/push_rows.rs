//! Pushes rows from the tail to the hub, each with the position of the previous row of the same target.
//!
//! A ring buffer takes a message only if the given previous position is the last one that it has. That position is
//! remembered for targets that have subscribers. Where it is unknown, the ring buffer becomes stale and is repaired
//! from the database.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bongsu_kernel::{Id, StreamId, lock};

use crate::{Outbox, OutboxRow, subject};

/// The head of each target that has subscribers: the last row that the tail has read, or the last row in the database
/// when the first subscription began.
#[derive(Default)]
pub(crate) struct TargetHeads(Mutex<HashMap<Id, StreamId>>);

impl TargetHeads {
    /// Sets the head of a target at which a subscription begins, unless a head is known already.
    pub(crate) fn insert_if_absent(&self, target: &Id, position: StreamId) {
        lock(&self.0).entry(target.clone()).or_insert(position);
    }

    /// Moves the head of a target to a row of the tail, and returns the previous position. None when the head is not
    /// before the row, because a subscription began at or after the row.
    fn advance(&self, target: &Id, position: StreamId) -> Option<StreamId> {
        let mut heads = lock(&self.0);
        match heads.get(target) {
            Some(head) if *head >= position => None,
            _ => {
                // The previous row is unknown. No row can stand between this position and the row, so a ring buffer
                // whose last message is older becomes stale and is repaired.
                let just_before = StreamId::new(position.ms.saturating_sub(1), u64::MAX);
                Some(heads.insert(target.clone(), position).unwrap_or(just_before))
            }
        }
    }

    fn remove(&self, target: &Id) {
        lock(&self.0).remove(target);
    }

    fn retain(&self, has_subscribers: impl Fn(&Id) -> bool) {
        lock(&self.0).retain(|target, _| has_subscribers(target));
    }

    fn take_all(&self) -> HashMap<Id, StreamId> {
        std::mem::take(&mut lock(&self.0))
    }
}

impl Outbox {
    /// How often the tail found the database restored from a copy. Progress made under an earlier count is invalid.
    pub(crate) fn db_generation(&self) -> u64 {
        self.0.db_generation.load(Ordering::Acquire)
    }

    pub(crate) fn target_heads(&self) -> &TargetHeads {
        &self.0.target_heads
    }

    /// Pushes rows to the streams of their targets.
    pub(crate) fn push_rows(&self, rows: &[OutboxRow]) {
        let (hub, accepted) = (&self.0.hub, Instant::now());
        for row in rows {
            // No stream can have a target that is not a valid id.
            let Ok(target) = Id::new(&row.target) else { continue };
            let subject = subject(&target);
            if !hub.has_subject(&subject) {
                self.target_heads().remove(&target);
                continue;
            }
            if let (Some(previous), Some(item)) =
                (self.target_heads().advance(&target, row.log_position().id), row.item())
            {
                hub.push(&subject, previous, || item, accepted);
            }
        }
    }

    /// Invalidates the positions of all streams after the database was restored from a copy: the same position may now
    /// belong to another row.
    pub(crate) fn invalidate_positions(&self) {
        self.0.db_generation.fetch_add(1, Ordering::AcqRel);
        for target in self.target_heads().take_all().into_keys() {
            self.0.hub.invalidate_subject(&subject(&target));
        }
    }

    /// Removes the heads of targets that have no subscribers any more.
    pub(crate) fn prune_target_heads(&self) {
        self.target_heads().retain(|target| self.0.hub.has_subject(&subject(target)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_follows_on_the_one_before_it() {
        let (heads, target) = (TargetHeads::default(), Id::new("42").unwrap());
        let at = StreamId::new;
        assert_eq!(
            heads.advance(&target, at(5, 50)),
            Some(at(4, u64::MAX)),
            "no head is known: no row can be between"
        );
        heads.insert_if_absent(&target, at(3, 30));
        assert_eq!(
            heads.advance(&target, at(9, 20)),
            Some(at(5, 50)),
            "the head of the tail is newer than that of the subscription"
        );
        assert_eq!(heads.advance(&target, at(9, 20)), None);
        heads.remove(&target);
        heads.insert_if_absent(&target, at(20, 1));
        assert_eq!(heads.advance(&target, at(12, 70)), None, "the row was there when the subscription began");
        assert_eq!(heads.advance(&target, at(21, 2)), Some(at(20, 1)));
    }
}
