//! Findings: the unsafe settings of an engine. The settings are read again after 30 seconds, and the findings
//! are logged when they change.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock;

/// Time after which the settings are read again, because an operator may change them while the hub runs.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);

/// The result of inspecting an engine once, without a running hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    pub warnings: Vec<&'static str>,
    /// By how many milliseconds, at least, the engine's clock is ahead of this machine's; negative when behind.
    pub clock_skew_ms: i64,
}

/// The latest findings about one engine.
#[derive(Default)]
pub struct Findings(Mutex<State>);

#[derive(Default)]
struct State {
    /// When the settings were read last. None: never, or `invalidate` was called since.
    updated_at: Option<Instant>,
    warnings: Vec<&'static str>,
}

impl Findings {
    pub fn warnings(&self) -> Vec<&'static str> {
        lock(&self.0).warnings.clone()
    }

    /// Makes the next check read the settings again, because another server may answer after an outage.
    pub fn invalidate(&self) {
        lock(&self.0).updated_at = None;
    }

    pub fn are_fresh(&self) -> bool {
        lock(&self.0).updated_at.is_some_and(|at| at.elapsed() < REFRESH_INTERVAL)
    }

    /// Replaces the findings. Logs the new ones when they differ from the previous ones.
    pub fn update(&self, warnings: Vec<&'static str>) {
        let mut state = lock(&self.0);
        if state.warnings != warnings {
            for warning in &warnings {
                tracing::warn!(
                    finding = warning,
                    "an engine has an unsafe setting; acknowledged changes may be lost"
                );
            }
        }
        *state = State { updated_at: Some(Instant::now()), warnings };
    }
}
