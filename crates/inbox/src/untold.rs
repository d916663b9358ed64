//! What devices were not told of yet: entries that were marked while the records were away.
//!
//! Only in the memory of the process: devices that are not told of it hear the count with the next change.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bongsu_kernel::Id;
use bongsu_kernel::task::Supervisor;

use crate::Inbox;

/// It is tried so often.
const TURN: Duration = Duration::from_secs(1);
/// So many people, and entries of each.
const MOST_PEOPLE: usize = 10_000;
const MOST_ENTRIES: usize = 1_000;

#[derive(Default)]
pub(crate) struct Untold(Mutex<BTreeMap<Id, Vec<u64>>>);

impl Untold {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Id, Vec<u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, person: &Id, seq: u64) {
        let mut all = self.all();
        if all.len() < MOST_PEOPLE || all.contains_key(person) {
            let own = all.entry(person.clone()).or_default();
            if own.len() < MOST_ENTRIES {
                own.push(seq);
            }
        }
    }

    pub(crate) fn take(&self) -> Option<(Id, Vec<u64>)> {
        self.all().pop_first()
    }

    pub(crate) fn put_back(&self, person: Id, mut seqs: Vec<u64>) {
        let mut all = self.all();
        let own = all.entry(person).or_default();
        seqs.append(own);
        *own = seqs;
    }
}

impl Inbox {
    pub(crate) fn start_telling(&self, supervisor: &Supervisor) {
        supervisor.every("inbox-untold", TURN, self, |inbox| async move { inbox.tell_untold().await });
    }
}
