//! What programs did to the table, by a clock that all of them share, and what a reader has to see of it.
//!
//! The checker is one function, so that what it finds wrong with naive readers is what it would find wrong with the hub.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bongsu_testkit::tier;

/// A row that was kept: for whom, when its insert began, and when its commit was known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) target: u64,
    pub(super) began: u64,
    pub(super) kept: u64,
}

#[derive(Default)]
pub(super) struct Ledger {
    clock: AtomicU64,
    next: AtomicU64,
    kept: Mutex<BTreeMap<u64, Span>>,
    /// Of these nobody was told whether they are kept.
    open: Mutex<BTreeMap<u64, Span>>,
    pub(super) commits: AtomicUsize,
    pub(super) undone: AtomicUsize,
    pub(super) in_flight: AtomicUsize,
    over: AtomicBool,
}

impl Ledger {
    pub(super) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Numbers for so many rows, each used once.
    pub(super) fn numbers(&self, count: u64) -> std::ops::Range<u64> {
        tier::counts_events();
        let first = self.next.fetch_add(count, Ordering::SeqCst);
        first..first + count
    }

    /// Rows whose commit was acknowledged just now: number, target, and when their insert began.
    pub(super) fn keep(&self, rows: &[(u64, u64, u64)]) {
        self.note(rows, &self.kept);
        self.commits.fetch_add(1, Ordering::SeqCst);
    }

    /// Rows whose commit was sent, and nobody knows more.
    pub(super) fn leave_open(&self, rows: &[(u64, u64, u64)]) {
        self.note(rows, &self.open);
    }

    fn note(&self, rows: &[(u64, u64, u64)], known: &Mutex<BTreeMap<u64, Span>>) {
        let kept = self.tick();
        let spans = rows
            .iter()
            .map(|(number, target, began)| (*number, Span { target: *target, began: *began, kept }));
        known.lock().unwrap().extend(spans);
    }

    /// What is in the table settles what was left open: it counts as kept, at the latest moment.
    pub(super) fn settle(&self, in_table: &BTreeSet<u64>) -> usize {
        let open = std::mem::take(&mut *self.open.lock().unwrap());
        let count = open.len();
        let found = open.into_iter().filter(|(number, _)| in_table.contains(number));
        self.kept
            .lock()
            .unwrap()
            .extend(found.map(|(number, span)| (number, Span { kept: u64::MAX, ..span })));
        count
    }

    pub(super) fn kept(&self) -> BTreeMap<u64, Span> {
        self.kept.lock().unwrap().clone()
    }

    pub(super) fn commits(&self) -> usize {
        self.commits.load(Ordering::SeqCst)
    }

    /// Nobody begins anything any more.
    pub(super) fn stop(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

/// What is wrong with what a reader saw.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) missing: Vec<u64>,
    pub(super) repeated: Vec<u64>,
    /// Never kept, or another's.
    pub(super) strange: Vec<u64>,
    /// Pairs in the order in which they were seen, the second of which was kept before the first was inserted.
    pub(super) disordered: Vec<(u64, u64)>,
}

impl Wrong {
    pub(super) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Compares what somebody saw of a target with what was kept.
    pub(super) fn with(seen: &[u64], target: u64, kept: &BTreeMap<u64, Span>) -> Self {
        let (mut wrong, mut known) = (Self::default(), BTreeSet::new());
        // The insert that began latest of those seen so far.
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
                _ => wrong.strange.push(*number),
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
    // Two at the same time: either may come first.
    let (both, began) = (ledger.numbers(2), ledger.tick());
    ledger.keep(&[(both.start, 1, began), (both.start + 1, 1, began)]);
    let kept = ledger.kept();
    let wrong = |seen: &[u64]| Wrong::with(seen, 1, &kept);
    assert!(wrong(&[0, 1, 2, 5, 4]).is_nothing());
    assert_eq!(wrong(&[0, 2, 4, 5]).missing, [1]);
    assert_eq!(wrong(&[0, 1, 1, 2, 4, 5]).repeated, [1]);
    assert_eq!(wrong(&[0, 1, 2, 3, 4, 5, 99]).strange, [3, 99]);
    assert_eq!(wrong(&[0, 2, 1, 4, 5]).disordered, [(2, 1)]);
}
