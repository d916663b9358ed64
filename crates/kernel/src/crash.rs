//! Crash points: named places where a test ends the process as `kill -9` would.
//!
//! `BONGSU_CRASH_POINT=name` (or `name:3` for the third time) chooses one. A release build has none of it.

/// Ends the process here when the test at hand chose this point.
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {
        #[cfg(debug_assertions)]
        $crate::crash::reach($name);
    };
}

#[cfg(debug_assertions)]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Armed {
        name: String,
        left: AtomicU64,
    }

    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

    /// Not part of the API: `crash_point!` calls it.
    pub fn reach(name: &str) {
        let armed = ARMED.get_or_init(|| {
            let chosen = std::env::var("BONGSU_CRASH_POINT").ok()?;
            let (name, times) = chosen.split_once(':').unwrap_or((&chosen, "1"));
            Some(Armed { name: name.to_owned(), left: AtomicU64::new(times.parse().ok()?) })
        });
        if let Some(armed) = armed
            && armed.name == name
            && armed.left.fetch_sub(1, Ordering::SeqCst) == 1
        {
            // No destructor runs and nothing is flushed, as with a signal.
            std::process::abort();
        }
    }
}

#[cfg(debug_assertions)]
pub use armed::reach;
