//! The time of day. All code reads it from a [`Clock`], so that tests can set it.
//!
//! Also formats and parses timestamps, and computes the skew between the clocks of two machines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Milliseconds since 1970 in UTC.
pub type Millis = u64;

/// A source of the time of day. Cheap to clone.
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

    /// A clock whose time changes only by [`set`](Self::set). Its clones share the same time.
    pub fn manual(now: Millis) -> Self {
        Self(Source::Manual(Arc::new(AtomicU64::new(now))))
    }

    pub fn now(&self) -> Millis {
        match &self.0 {
            Source::System => system_now(),
            Source::Manual(now) => now.load(Ordering::Relaxed),
        }
    }

    /// Converts a time of day to an [`Instant`]. The time may come from another machine's clock, so the result is an
    /// approximation. It is never in the future.
    pub fn instant_of(&self, at: Millis) -> Instant {
        let age = Duration::from_millis(self.now().saturating_sub(at));
        let now = Instant::now();
        now.checked_sub(age).unwrap_or(now)
    }

    /// Sets a manual clock; has no effect on a system clock.
    pub fn set(&self, to: Millis) {
        if let Source::Manual(now) = &self.0 {
            now.store(to, Ordering::Relaxed);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the only caller of the system clock")]
fn system_now() -> Millis {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from((since + test_offset()).as_millis()).unwrap_or(u64::MAX)
}

/// How far a test has moved the time of this process forward. The offset is added to the time of day and to
/// the age of streams. Always zero in a release build.
#[cfg(not(debug_assertions))]
pub fn test_offset() -> Duration {
    Duration::ZERO
}

#[cfg(debug_assertions)]
pub use offset_file::test_offset;

/// The environment variable `BONGSU_CLOCK_FILE` names a file. Whenever that file exists, a thread adds the
/// number of milliseconds in the file to the time and removes the file.
#[cfg(debug_assertions)]
mod offset_file {
    use std::path::PathBuf;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    const POLL_INTERVAL: Duration = Duration::from_millis(10);

    static OFFSET_MS: AtomicU64 = AtomicU64::new(0);
    static POLLING: OnceLock<()> = OnceLock::new();

    pub fn test_offset() -> Duration {
        POLLING.get_or_init(|| {
            if let Some(file) = std::env::var_os("BONGSU_CLOCK_FILE").map(PathBuf::from) {
                // A file that exists before the first call is applied before that call returns.
                apply_file(&file);
                std::thread::spawn(move || poll(&file));
            }
        });
        Duration::from_millis(OFFSET_MS.load(Ordering::Relaxed))
    }

    fn poll(file: &std::path::Path) {
        loop {
            apply_file(file);
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn apply_file(file: &std::path::Path) {
        let step_ms = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
        if let Some(step_ms) = step_ms {
            OFFSET_MS.fetch_add(step_ms, Ordering::Relaxed);
            let _ = std::fs::remove_file(file);
        }
    }
}

/// The smallest number of milliseconds by which another machine's clock is ahead of this machine's; negative when it is
/// behind. The request for the `remote` time was sent at `before` and answered at `after`, so a time between the two
/// proves no skew.
pub fn skew_ms(before: Millis, remote: Millis, after: Millis) -> i64 {
    let difference = |later: Millis, earlier: Millis| i64::try_from(later - earlier).unwrap_or(i64::MAX);
    if remote < before {
        -difference(before, remote)
    } else if remote > after {
        difference(remote, after)
    } else {
        0
    }
}

/// Formats a time as RFC 3339 in UTC, with milliseconds.
pub fn rfc3339(at: Millis) -> String {
    timestamp(at).map(|timestamp| format!("{timestamp:.3}")).unwrap_or_default()
}

/// Parses RFC 3339 with any offset. None for times before 1970.
pub fn parse_rfc3339(text: &str) -> Option<Millis> {
    let at: jiff::Timestamp = text.parse().ok()?;
    Millis::try_from(at.as_millisecond()).ok()
}

/// Formats a time as HTTP headers have it, such as `Mon, 16 Feb 2026 10:30:00 GMT`.
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
        assert_eq!([95, 100, 105, 110, 117].map(|remote| skew_ms(100, remote, 110)), [-5, 0, 0, 0, 7]);
    }

    #[test]
    fn a_manual_clock_moves_only_by_hand() {
        let clock = Clock::manual(5);
        let clone = clock.clone();
        clock.set(9);
        assert_eq!(clone.now(), 9);
    }

    #[test]
    fn a_time_is_a_moment_that_is_not_to_come() {
        let (clock, before) = (Clock::manual(60_000), Instant::now());
        let age = |at| clock.instant_of(at).elapsed().as_millis();
        assert!((2_000..60_000).contains(&age(58_000)));
        assert!(age(99_000) <= before.elapsed().as_millis(), "another machine's clock is ahead");
    }
}
