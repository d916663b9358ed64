//! Records whose entries the database refuses: left out so that others have their turn, and tried again now and then.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use bongsu_live::log::Pending;
use bongsu_sql::Error;

/// When more are refused it is not for what they are.
const MOST: usize = 256;
/// After so long all of them are tried again: somebody may have mended what was wrong.
const LATER: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Refused {
    put_off: Vec<Pending>,
    /// When the first of them was put off.
    since: Option<Instant>,
    /// Those that were told of, by subject and event.
    told: HashSet<(String, String)>,
}

impl Refused {
    /// Those that are left out for now.
    pub(super) fn put_off(&mut self) -> &[Pending] {
        if self.since.is_some_and(|since| since.elapsed() >= LATER) {
            self.put_off.clear();
            self.since = None;
        }
        &self.put_off
    }

    pub(super) fn is_full(&self) -> bool {
        self.put_off.len() >= MOST
    }

    pub(super) fn add(&mut self, pending: Pending, error: &Error) {
        metrics::counter!("inbox_follow_ups_refused_total").increment(1);
        let (subject, event) =
            pending.read().map(|record| (record.subject, record.stream_id)).unwrap_or_default();
        if self.told.len() >= MOST * 4 {
            self.told.clear();
        }
        if self.told.insert((subject.clone(), event.clone())) {
            tracing::error!(subject, event, %error, "what a room wrote down for people is refused, and is tried again later");
        }
        self.since.get_or_insert_with(Instant::now);
        self.put_off.push(pending);
    }
}
