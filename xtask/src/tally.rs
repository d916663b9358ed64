//! Counts tests by reading what `cargo test` prints while it is passed on.
//!
//! A workspace has many test binaries, each with its own closing lines; the tally adds them up and
//! keeps the names of what failed and of what the tests say they could not do (`NOT RUN: ...`), so that
//! they stand together at the end of the run. A name from another profile than the embedded one begins with it.

use std::fmt;

use crate::profiles;

/// What all test binaries together reported.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
    failures: Vec<String>,
    not_run: Vec<String>,
    listing_failures: bool,
    profile: Option<&'static str>,
}

impl Tally {
    /// What comes from now on is of this profile; none is the embedded one.
    pub(crate) fn switch(&mut self, profile: Option<&'static str>) {
        self.profile = profile;
    }

    /// Takes in one line of output.
    pub(crate) fn look(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += number_before(counts, " passed");
            self.failed += number_before(counts, " failed");
            self.ignored += number_before(counts, " ignored");
        }
        if let Some(what) = line.strip_prefix("NOT RUN: ") {
            self.not_run.push(profiles::name_on(self.profile, what));
        }
        // The heading comes twice: above the captured output, followed by a blank line, and above the
        // names, which follow at once.
        match line.strip_prefix("    ") {
            Some(name) if self.listing_failures => self.failures.push(profiles::name_on(self.profile, name)),
            _ => self.listing_failures = line == "failures:",
        }
    }

    pub(crate) fn failures(&self) -> &[String] {
        &self.failures
    }

    /// What tests said they left out.
    pub(crate) fn not_run(&self) -> &[String] {
        &self.not_run
    }

    /// How many tests were run to their end.
    pub(crate) fn ran(&self) -> u64 {
        self.passed + self.failed
    }

    /// Whether anything was reported at all.
    pub(crate) fn any(&self) -> bool {
        self.ran() + self.ignored > 0
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "total: {} passed, {} failed, {} skipped", self.passed, self.failed, self.ignored)
    }
}

fn number_before(counts: &str, what: &str) -> u64 {
    let Some((before, _)) = counts.split_once(what) else { return 0 };
    before.rsplit([' ', '.']).next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_binaries_and_keeps_the_names_of_failures() {
        let mut tally = Tally::default();
        let output = "NOT RUN: d: needs chromium, and it is missing\n\
            running 2 tests\n\
            test a ... ok\n\
            test b::c ... FAILED\n\
            \n\
            failures:\n\
            \n\
            ---- b::c stdout ----\n    \
            left: 1\n\
            \n\
            failures:\n    \
            b::c\n\
            \n\
            test result: FAILED. 1 passed; 1 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.00s";
        output.lines().for_each(|line| tally.look(line));
        assert_eq!(tally.to_string(), "total: 13 passed, 1 failed, 3 skipped");
        assert_eq!(tally.failures(), ["b::c"]);
        assert_eq!(tally.not_run(), ["d: needs chromium, and it is missing"]);
        assert!(tally.any());
        assert_eq!(tally.ran(), 14);
        tally.switch(Some("redis"));
        output.lines().for_each(|line| tally.look(line));
        assert_eq!(tally.to_string(), "total: 26 passed, 2 failed, 6 skipped");
        assert_eq!(tally.failures(), ["b::c", "redis: b::c"]);
        assert_eq!(tally.not_run()[1], "redis: d: needs chromium, and it is missing");
    }
}
