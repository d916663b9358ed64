//! Runs tests in parallel, longest first, and then runs failed tests again, one at a time.
//!
//! Long tests mostly wait (for a lease, a timeout, a restarted engine), short ones mostly compute. So every fourth
//! worker takes the shortest test instead, which uses the processor while the long tests wait. Only a test that fails
//! in parallel with others and then passes alone is flaky: it is reported with its seed, and the run passes. Tests that
//! docs/guarantees.md names or that count events are not retried, because a retry could hide a lost event.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{fs, thread};

use crate::case::{self, Attempt, Case, Outcome};
use crate::paths;
use crate::tally::{Tally, TestResult};

/// Attempts after the first; no other test runs at the same time.
const MAX_RETRIES: usize = 2;

/// Cases with their numbers, the longest case first.
type Queue = VecDeque<(usize, Case)>;

/// Runs test processes with these options.
pub(crate) struct Runner {
    /// Environment variables of every test, in addition to the profile.
    pub(crate) environment: Vec<(String, OsString)>,
    /// Maximum number of concurrent test processes.
    pub(crate) jobs: usize,
    /// A test that runs longer is killed.
    pub(crate) timeout: Duration,
    /// Whether the `proof` lines of tests that did not fail are printed.
    pub(crate) shows_output: bool,
}

impl Runner {
    /// Runs all cases and adds their results to the tally.
    pub(crate) fn run(&self, mut cases: Vec<Case>, tally: &mut Tally) -> Result<(), String> {
        let durations = expected_durations();
        let expected = |case: &Case| durations.get(&case.id()).copied().unwrap_or_default();
        cases.sort_by(|one, other| expected(other).total_cmp(&expected(one)));
        let total = cases.len();
        let logs = log_folder()?;
        let guarantee_tests = GuaranteeTests::read()?;
        let queue = Mutex::new(cases.into_iter().enumerate().collect::<Queue>());
        let mut failed = Vec::new();
        let (sender, attempts) = channel();
        thread::scope(|scope| {
            for worker in 1..=self.jobs {
                let (queue, logs, sender) = (&queue, logs.as_path(), sender.clone());
                let take = if worker % 4 == 0 { VecDeque::pop_back } else { VecDeque::pop_front };
                scope.spawn(move || self.run_queue(queue, take, logs, &sender));
            }
            drop(sender);
            for (done, (case, attempt)) in attempts.iter().enumerate() {
                self.print(done + 1, total, &case, &attempt);
                if matches!(attempt.outcome, Outcome::Failed(_)) {
                    failed.push((case, attempt));
                } else {
                    tally.add(TestResult::new(&case, attempt));
                }
            }
        });
        for (case, attempt) in failed {
            tally.add(self.retry(&case, attempt, &guarantee_tests, &logs));
        }
        Ok(())
    }

    fn run_queue(
        &self,
        queue: &Mutex<Queue>,
        take: fn(&mut Queue) -> Option<(usize, Case)>,
        logs: &Path,
        sender: &Sender<(Case, Attempt)>,
    ) {
        loop {
            let next = take(&mut queue.lock().unwrap_or_else(PoisonError::into_inner));
            let Some((number, case)) = next else { return };
            let log = logs.join(format!("{number}.log"));
            let attempt = case.run(&self.environment, self.timeout, &log);
            if !matches!(attempt.outcome, Outcome::Failed(_)) {
                // Only failed tests keep their log; a log that cannot be removed does no harm.
                let _ = fs::remove_file(&log);
            }
            if sender.send((case, attempt)).is_err() {
                return;
            }
        }
    }

    /// Runs a failed test again with its seed, unless another attempt could hide a lost event.
    fn retry(
        &self,
        case: &Case,
        first: Attempt,
        guarantee_tests: &GuaranteeTests,
        logs: &Path,
    ) -> TestResult {
        if case::counts_events(&first.output) || guarantee_tests.contains(case.function()) {
            return TestResult::new(case, first);
        }
        let mut environment = self.environment.clone();
        let seed = case::seed(&first.output).map(str::to_owned);
        environment.extend(seed.as_ref().map(|seed| ("BONGSU_SEED".to_owned(), seed.into())));
        for attempt in 1..=MAX_RETRIES {
            println!("RETRY {attempt} of {MAX_RETRIES}, alone: {}", case.id());
            let again = case.run(&environment, self.timeout, &logs.join("retry.log"));
            self.print(attempt, MAX_RETRIES, case, &again);
            if again.outcome == Outcome::Passed {
                return TestResult::flaky(case, first, seed);
            }
        }
        TestResult::new(case, first)
    }

    fn print(&self, done: usize, total: usize, case: &Case, attempt: &Attempt) {
        let (id, seconds) = (case.id(), attempt.duration.as_secs_f64());
        let label = match &attempt.outcome {
            Outcome::Passed => "PASS",
            Outcome::Failed(_) => "FAIL",
            Outcome::NotApplicable(_) => "N/A",
            Outcome::NotRun(_) => "NOT RUN",
        };
        println!("{label:7} [{done:4}/{total}] {seconds:7.2} s  {id}");
        if let Outcome::Failed(reason) = &attempt.outcome {
            println!("--- output of {id}\n{}\n--- {id}: {reason}", attempt.output_tail());
        } else if self.shows_output {
            let facts = attempt.output.lines().filter(|line| line.starts_with("proof "));
            facts.for_each(|fact| println!("        {fact}"));
        }
    }
}

/// Durations of long tests in earlier runs, in seconds, by [`Case::id`].
fn expected_durations() -> BTreeMap<String, f64> {
    let file = paths::durations();
    let text = fs::read_to_string(&file).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn log_folder() -> Result<PathBuf, String> {
    let folder = paths::target().join("test-logs");
    let failed = |error| format!("cannot prepare {}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(failed)?;
    }
    fs::create_dir_all(&folder).map_err(failed)?;
    Ok(folder)
}

/// The functions of tests that docs/guarantees.md names.
struct GuaranteeTests(Vec<String>);

impl GuaranteeTests {
    fn read() -> Result<Self, String> {
        let file = paths::root().join("docs").join("guarantees.md");
        let page =
            fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let quoted = page.split('`').skip(1).step_by(2);
        Ok(Self(quoted.filter(|text| text.contains('_')).map(str::to_owned).collect()))
    }

    /// Whether the page names this function. `...` in a name on the page matches any text.
    fn contains(&self, function: &str) -> bool {
        self.0.iter().any(|pattern| matches(pattern, function))
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once("...") {
        Some((start, end)) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_exactly_or_by_pattern() {
        assert!(matches("a_b", "a_b"));
        assert!(!matches("a_b", "a_b_c"));
        assert!(matches("a_on_...", "a_on_postgres"));
        assert!(matches("a_..._b", "a_on_postgres_b"));
        assert!(!matches("a_..._b", "a_on_postgres_c"));
    }
}
