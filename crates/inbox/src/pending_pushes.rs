//! Messages about entries that were read or deleted, which wait until the unread count can be read together with the
//! buffered marks.
//!
//! Waiting messages are only in the memory of the process. A device that misses one receives the right count with the
//! next change, and after the bus has lost messages: then its person gets a message without entries.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Id, lock};

use crate::Inbox;

/// Time between two attempts to send the messages.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Persons with waiting messages; the messages of further persons are dropped.
const MAX_PERSONS: usize = 10_000;
/// Waiting entries of one person; further entries are dropped.
const MAX_ENTRIES_PER_PERSON: usize = 1_000;

/// The sequence numbers of the entries, by person. Cheap to clone.
#[derive(Clone, Default)]
pub struct PendingPushes(Arc<Mutex<BTreeMap<Id, Vec<u64>>>>);

impl PendingPushes {
    /// Adds entries that were marked or deleted, up to the limits.
    pub(crate) fn put(&self, person: &Id, seqs: &[u64]) {
        let mut pending = lock(&self.0);
        if pending.len() < MAX_PERSONS || pending.contains_key(person) {
            let waiting = pending.entry(person.clone()).or_default();
            let room = MAX_ENTRIES_PER_PERSON.saturating_sub(waiting.len());
            waiting.extend(seqs.iter().take(room));
        }
    }

    /// Removes one person, and returns the person with the entries.
    pub(crate) fn take(&self) -> Option<(Id, Vec<u64>)> {
        lock(&self.0).pop_first()
    }

    /// Puts entries back that could not be sent, in front of those that were added meanwhile.
    pub(crate) fn put_back(&self, person: Id, mut seqs: Vec<u64>) {
        let mut pending = lock(&self.0);
        let added = pending.entry(person).or_default();
        seqs.append(added);
        *added = seqs;
    }
}

impl Inbox {
    pub(crate) fn start_pending_pushes(&self, supervisor: &Supervisor) {
        supervisor.every("inbox-pending-pushes", RETRY_INTERVAL, self, |inbox| async move {
            inbox.send_pending_pushes().await;
        });
    }
}
