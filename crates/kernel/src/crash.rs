//! Crash points: named places in the code where a test ends the process as `kill -9` would.
//!
//! The environment variable `BONGSU_CRASH_POINT=name` selects one; `name:3` ends the process when the point is reached
//! for the third time. Release builds contain no crash points.

/// Ends the process here when `BONGSU_CRASH_POINT` names this point.
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {
        #[cfg(debug_assertions)]
        $crate::crash::reach($name);
    };
}

#[cfg(debug_assertions)]
mod selected {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct CrashPoint {
        name: String,
        /// How often the point has still to be reached before the process ends.
        remaining: AtomicU64,
    }

    static SELECTED: OnceLock<Option<CrashPoint>> = OnceLock::new();

    /// Not part of the API: called by `crash_point!`.
    pub fn reach(name: &str) {
        let selected = SELECTED.get_or_init(|| {
            let value = std::env::var("BONGSU_CRASH_POINT").ok()?;
            let (name, times) = value.split_once(':').unwrap_or((&value, "1"));
            Some(CrashPoint { name: name.to_owned(), remaining: AtomicU64::new(times.parse().ok()?) })
        });
        if let Some(selected) = selected
            && selected.name == name
            && selected.remaining.fetch_sub(1, Ordering::SeqCst) == 1
        {
            // Abort runs no destructor and flushes no buffer, like SIGKILL.
            std::process::abort();
        }
    }
}

#[cfg(debug_assertions)]
pub use selected::reach;
