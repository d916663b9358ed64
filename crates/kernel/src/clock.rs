//! Time, from one place, so that tests can hold it in their hands; how it is written and read, and how far another machine's
//! clock differs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Milliseconds since 1970 in UTC.
pub type Millis = u64;

/// Where the time of day comes from. Cheap to clone.
#[derive(Clone, Default)]
pub struct Clock(Source);

#[derive(Clone, Default)]
enum Source {
    #[default]
    System,
    Manual(Arc<AtomicU64>),
}

impl Clock {
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that stands still until it is set. Its clones show the same time.
    pub fn manual(now: Millis) -> Self {
        Self(Source::Manual(Arc::new(AtomicU64::new(now))))
    }

    pub fn now(&self) -> Millis {
        match &self.0 {
            Source::System => system_now(),
            Source::Manual(now) => now.load(Ordering::Relaxed),
        }
    }

    /// When that was by the clock that measures. The time may be another machine's, so this is about right, and never in
    /// the future.
    pub fn moment(&self, at: Millis) -> Instant {
        let age = Duration::from_millis(self.now().saturating_sub(at));
        let now = Instant::now();
        now.checked_sub(age).unwrap_or(now)
    }

    /// Sets a manual clock; a system clock goes on as it does.
    pub fn set(&self, to: Millis) {
        if let Source::Manual(now) = &self.0 {
            now.store(to, Ordering::Relaxed);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that asks the system")]
fn system_now() -> Millis {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from((since + moved()).as_millis()).unwrap_or(u64::MAX)
}

/// How far a test has moved the time of this process forward, for the time of day and for the deadlines of streams.
/// Always zero in a release build.
#[cfg(not(debug_assertions))]
pub fn moved() -> Duration {
    Duration::ZERO
}

#[cfg(debug_assertions)]
pub use movable::moved;

/// `BONGSU_CLOCK_FILE` names a file. Whenever it exists, the milliseconds in it are added to the time and it is removed.
#[cfg(debug_assertions)]
mod movable {
    use std::path::PathBuf;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    const POLL_INTERVAL: Duration = Duration::from_millis(10);

    static MOVED_MS: AtomicU64 = AtomicU64::new(0);
    static FOLLOWED: OnceLock<()> = OnceLock::new();

    pub fn moved() -> Duration {
        FOLLOWED.get_or_init(|| {
            if let Some(file) = std::env::var_os("BONGSU_CLOCK_FILE").map(PathBuf::from) {
                // What is there before the first question counts for it.
                take_step(&file);
                std::thread::spawn(move || follow(&file));
            }
        });
        Duration::from_millis(MOVED_MS.load(Ordering::Relaxed))
    }

    fn follow(file: &std::path::Path) {
        loop {
            take_step(file);
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn take_step(file: &std::path::Path) {
        let step = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
        if let Some(step) = step {
            MOVED_MS.fetch_add(step, Ordering::Relaxed);
            let _ = std::fs::remove_file(file);
        }
    }
}

/// How many milliseconds another machine's clock is ahead of this one's (negative: behind), at least: it was asked after
/// `before` and had answered by `after`, so a time between the two shows no difference.
pub fn skew_ms(before: Millis, theirs: Millis, after: Millis) -> i64 {
    let difference = |one: Millis, other: Millis| i64::try_from(one - other).unwrap_or(i64::MAX);
    if theirs < before {
        -difference(before, theirs)
    } else if theirs > after {
        difference(theirs, after)
    } else {
        0
    }
}

/// RFC 3339 in UTC, with milliseconds.
pub fn rfc3339(at: Millis) -> String {
    timestamp(at).map(|timestamp| format!("{timestamp:.3}")).unwrap_or_default()
}

/// Reads RFC 3339 with any offset. None for times before 1970.
pub fn parse_rfc3339(text: &str) -> Option<Millis> {
    let at: jiff::Timestamp = text.parse().ok()?;
    Millis::try_from(at.as_millisecond()).ok()
}

/// As HTTP writes it in its headers.
pub fn http_date(at: Millis) -> String {
    let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
    timestamp(at).and_then(|at| printer.timestamp_to_rfc9110_string(&at).ok()).unwrap_or_default()
}

fn timestamp(at: Millis) -> Option<jiff::Timestamp> {
    i64::try_from(at).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_with_milliseconds() {
        assert_eq!(rfc3339(1_771_237_800_000), "2026-02-16T10:30:00.000Z");
        assert_eq!(rfc3339(1_771_237_800_042), "2026-02-16T10:30:00.042Z");
        assert_eq!(http_date(1_771_237_800_042), "Mon, 16 Feb 2026 10:30:00 GMT");
    }

    #[test]
    fn rfc_3339_is_read_with_any_offset() {
        assert_eq!(parse_rfc3339("2026-02-16T10:30:00Z"), Some(1_771_237_800_000));
        assert_eq!(parse_rfc3339("2026-02-16T19:30:00.042+09:00"), Some(1_771_237_800_042));
        for bad in ["", "2026-02-16", "2026-02-16T10:30:00", "1771237800000", "1969-12-31T23:59:59Z", "soon"]
        {
            assert_eq!(parse_rfc3339(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_clock_differs_by_what_the_way_of_the_answer_cannot_explain() {
        assert_eq!([95, 100, 105, 110, 117].map(|theirs| skew_ms(100, theirs, 110)), [-5, 0, 0, 0, 7]);
    }

    #[test]
    fn a_manual_clock_moves_only_by_hand() {
        let clock = Clock::manual(5);
        let same = clock.clone();
        clock.set(9);
        assert_eq!(same.now(), 9);
    }

    #[test]
    fn a_time_is_a_moment_that_is_not_to_come() {
        let (clock, before) = (Clock::manual(60_000), Instant::now());
        let age = |at| clock.moment(at).elapsed().as_millis();
        assert!((2_000..60_000).contains(&age(58_000)));
        assert!(age(99_000) <= before.elapsed().as_millis(), "another machine's clock is ahead");
    }
}
