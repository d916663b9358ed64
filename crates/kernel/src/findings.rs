//! What an engine's settings give reason to warn of: looked at now and then, told when it changes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The settings are read again after so long: an operator may change them on the way.
const AGE: Duration = Duration::from_secs(30);

/// What an engine shows somebody who looks at it once, from outside a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    pub warnings: Vec<&'static str>,
    /// How many milliseconds its clock is ahead of this machine's, at least; negative when it is behind.
    pub clock_skew_ms: i64,
}

#[derive(Default)]
pub struct Findings(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    at: Option<Instant>,
    warnings: Vec<&'static str>,
}

impl Findings {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn warnings(&self) -> Vec<&'static str> {
        self.seen().warnings.clone()
    }

    /// Another server may answer from now on.
    pub fn forget(&self) {
        self.seen().at = None;
    }

    pub fn are_fresh(&self) -> bool {
        self.seen().at.is_some_and(|at| at.elapsed() < AGE)
    }

    /// What was found now. It is logged when it is not what was found before.
    pub fn found(&self, warnings: Vec<&'static str>) {
        let mut seen = self.seen();
        if seen.warnings != warnings {
            for warning in &warnings {
                tracing::warn!("{warning}");
            }
        }
        *seen = Seen { at: Some(Instant::now()), warnings };
    }
}
