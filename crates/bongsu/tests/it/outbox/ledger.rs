//! Records the inserts and commits of writers on one logical clock, and checks the rows that a reader saw.
//!
//! The checker is one function, so that the faults it finds in naive readers are the faults it would find in the hub.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bongsu_testkit::tier;

/// A committed row: its target, when its insert began, and when its commit was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowSpan {
    pub(super) target: u64,
    pub(super) began: u64,
    pub(super) kept: u64,
}

#[derive(Default)]
pub(super) struct Ledger {
    clock: AtomicU64,
    next: AtomicU64,
    kept: Mutex<BTreeMap<u64, RowSpan>>,
    /// Rows whose commit got no answer.
    open: Mutex<BTreeMap<u64, RowSpan>>,
    pub(super) commits: AtomicUsize,
    pub(super) undone: AtomicUsize,
    pub(super) in_flight: AtomicUsize,
    over: AtomicBool,
}

impl Ledger {
    pub(super) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Reserves `count` numbers for rows.
    pub(super) fn numbers(&self, count: u64) -> std::ops::Range<u64> {
        tier::counts_events();
        let first = self.next.fetch_add(count, Ordering::SeqCst);
        first..first + count
    }

    /// Records rows whose commit was just acknowledged: number, target, and when their insert began.
    pub(super) fn keep(&self, rows: &[(u64, u64, u64)]) {
        self.note(rows, &self.kept);
        self.commits.fetch_add(1, Ordering::SeqCst);
    }

    /// Records rows whose commit was sent without an answer.
    pub(super) fn leave_open(&self, rows: &[(u64, u64, u64)]) {
        self.note(rows, &self.open);
    }

    fn note(&self, rows: &[(u64, u64, u64)], known: &Mutex<BTreeMap<u64, RowSpan>>) {
        let kept = self.tick();
        let spans = rows
            .iter()
            .map(|(number, target, began)| (*number, RowSpan { target: *target, began: *began, kept }));
        known.lock().unwrap().extend(spans);
    }

    /// Decides the unanswered rows by the content of the table: a row in the table counts as committed at the
    /// latest possible time. Returns how many rows were unanswered.
    pub(super) fn settle(&self, in_table: &BTreeSet<u64>) -> usize {
        let open = std::mem::take(&mut *self.open.lock().unwrap());
        let count = open.len();
        let found = open.into_iter().filter(|(number, _)| in_table.contains(number));
        self.kept
            .lock()
            .unwrap()
            .extend(found.map(|(number, span)| (number, RowSpan { kept: u64::MAX, ..span })));
        count
    }

    pub(super) fn kept(&self) -> BTreeMap<u64, RowSpan> {
        self.kept.lock().unwrap().clone()
    }

    pub(super) fn commits(&self) -> usize {
        self.commits.load(Ordering::SeqCst)
    }

    /// Tells the writers to begin no new transaction.
    pub(super) fn stop(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

/// The faults in the rows that a reader saw.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Violations {
    pub(super) missing: Vec<u64>,
    pub(super) repeated: Vec<u64>,
    /// Rows that were never committed, or that belong to another target.
    pub(super) unexpected: Vec<u64>,
    /// Pairs in the order seen, of which the second row was committed before the insert of the first one began.
    pub(super) disordered: Vec<(u64, u64)>,
}

impl Violations {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Compares the rows that a reader of a target saw with the committed rows.
    pub(super) fn find(seen: &[u64], target: u64, kept: &BTreeMap<u64, RowSpan>) -> Self {
        let (mut wrong, mut known) = (Self::default(), BTreeSet::new());
        // The latest beginning of an insert among the rows seen so far.
        let mut latest: Option<(u64, u64)> = None;
        for number in seen {
            match kept.get(number) {
                Some(span) if span.target == target => {
                    if let Some((began, before)) = latest
                        && span.kept < began
                    {
                        wrong.disordered.push((before, *number));
                    }
                    latest = latest.max(Some((span.began, *number)));
                }
                _ => wrong.unexpected.push(*number),
            }
            if !known.insert(*number) {
                wrong.repeated.push(*number);
            }
        }
        let of_target = kept.iter().filter(|(_, span)| span.target == target);
        wrong.missing =
            of_target.map(|(number, _)| *number).filter(|number| !known.contains(number)).collect();
        wrong
    }
}

#[test]
fn the_checker_finds_everything_that_can_be_wrong() {
    let ledger = Ledger::default();
    for target in [1, 1, 1, 2] {
        let (number, began) = (ledger.numbers(1).start, ledger.tick());
        ledger.keep(&[(number, target, began)]);
    }
    // Two concurrent rows: either may come first.
    let (both, began) = (ledger.numbers(2), ledger.tick());
    ledger.keep(&[(both.start, 1, began), (both.start + 1, 1, began)]);
    let kept = ledger.kept();
    let wrong = |seen: &[u64]| Violations::find(seen, 1, &kept);
    assert!(wrong(&[0, 1, 2, 5, 4]).is_empty());
    assert_eq!(wrong(&[0, 2, 4, 5]).missing, [1]);
    assert_eq!(wrong(&[0, 1, 1, 2, 4, 5]).repeated, [1]);
    assert_eq!(wrong(&[0, 1, 2, 3, 4, 5, 99]).unexpected, [3, 99]);
    assert_eq!(wrong(&[0, 2, 1, 4, 5]).disordered, [(2, 1)]);
}
