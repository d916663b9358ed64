//! Runs tests side by side, longest first, and those that failed once more, alone.
//!
//! Long tests mostly wait (for a lease, a timeout, an engine that comes back), short ones mostly compute. So one worker in
//! four takes the shortest test instead: the processor has work while the long ones wait, and both ends meet.
//!
//! A test that fails beside others and passes alone is reported as flaky with its seed, and the run passes. Tests that
//! stand for a promise (docs/guarantees.md) or count events get no second attempt: one lost event is one too many.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{fs, thread};

use crate::case::{self, Attempt, Case, Outcome};
use crate::place;
use crate::tally::{Finished, Tally};

/// Attempts after the first, one test at a time.
const MAX_RETRIES: usize = 2;

/// Cases with their numbers, the longest first.
type Queue = VecDeque<(usize, Case)>;

/// How tests are run.
pub(crate) struct Runner {
    /// What every test finds in its environment, beside the profile.
    pub(crate) environment: Vec<(String, OsString)>,
    /// Test processes at the same time.
    pub(crate) jobs: usize,
    /// The time that one test may take.
    pub(crate) limit: Duration,
    /// Whether the output of tests that passed is shown, too.
    pub(crate) shows_output: bool,
}

impl Runner {
    /// Runs all cases and adds what became of them to the tally.
    pub(crate) fn run(&self, mut cases: Vec<Case>, tally: &mut Tally) -> Result<(), String> {
        let durations = expected_durations();
        let expected = |case: &Case| durations.get(&case.id()).copied().unwrap_or_default();
        cases.sort_by(|one, other| expected(other).total_cmp(&expected(one)));
        let total = cases.len();
        let logs = log_folder()?;
        let promises = Promises::read()?;
        let queue = Mutex::new(cases.into_iter().enumerate().collect::<Queue>());
        let mut failed = Vec::new();
        let (sender, finished) = channel();
        thread::scope(|scope| {
            for worker in 1..=self.jobs {
                let (queue, logs, sender) = (&queue, logs.as_path(), sender.clone());
                let take = if worker % 4 == 0 { VecDeque::pop_back } else { VecDeque::pop_front };
                scope.spawn(move || self.work(queue, take, logs, &sender));
            }
            drop(sender);
            for (done, (case, attempt)) in finished.iter().enumerate() {
                self.print(done + 1, total, &case, &attempt);
                if matches!(attempt.outcome, Outcome::Failed(_)) {
                    failed.push((case, attempt));
                } else {
                    tally.add(Finished::first(&case, attempt));
                }
            }
        });
        for (case, attempt) in failed {
            tally.add(self.retry(&case, attempt, &promises, &logs));
        }
        Ok(())
    }

    fn work(
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
            let attempt = case.run(&self.environment, self.limit, &log);
            if !matches!(attempt.outcome, Outcome::Failed(_)) {
                // Kept for failures only; a log that cannot be removed does no harm.
                let _ = fs::remove_file(&log);
            }
            if sender.send((case, attempt)).is_err() {
                return;
            }
        }
    }

    /// Runs a failed test again with its seed, unless a second attempt could hide a loss.
    fn retry(&self, case: &Case, first: Attempt, promises: &Promises, logs: &Path) -> Finished {
        if case::counts_events(&first.output) || promises.include(case.function()) {
            return Finished::first(case, first);
        }
        let mut environment = self.environment.clone();
        let seed = case::seed(&first.output).map(str::to_owned);
        environment.extend(seed.as_ref().map(|seed| ("BONGSU_SEED".to_owned(), seed.into())));
        for attempt in 1..=MAX_RETRIES {
            println!("RETRY {attempt} of {MAX_RETRIES}, alone: {}", case.id());
            let again = case.run(&environment, self.limit, &logs.join("retry.log"));
            self.print(attempt, MAX_RETRIES, case, &again);
            if again.outcome == Outcome::Passed {
                return Finished::flaky(case, first, seed);
            }
        }
        Finished::first(case, first)
    }

    fn print(&self, done: usize, total: usize, case: &Case, attempt: &Attempt) {
        let (id, seconds) = (case.id(), attempt.took.as_secs_f64());
        let word = match &attempt.outcome {
            Outcome::Passed => "PASS",
            Outcome::Failed(_) => "FAIL",
            Outcome::NotApplicable(_) => "N/A",
            Outcome::NotRun(_) => "NOT RUN",
        };
        println!("{word:7} [{done:4}/{total}] {seconds:7.2} s  {id}");
        if let Outcome::Failed(reason) = &attempt.outcome {
            println!("--- output of {id}\n{}\n--- {id}: {reason}", attempt.output_tail());
        } else if self.shows_output {
            let facts = attempt.output.lines().filter(|line| line.starts_with("proof "));
            facts.for_each(|fact| println!("        {fact}"));
        }
    }
}

/// Seconds that long tests took before, by [`Case::id`].
fn expected_durations() -> BTreeMap<String, f64> {
    let file = place::durations();
    let text = fs::read_to_string(&file).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn log_folder() -> Result<PathBuf, String> {
    let folder = place::target().join("test-logs");
    let failed = |error| format!("cannot prepare {}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(failed)?;
    }
    fs::create_dir_all(&folder).map_err(failed)?;
    Ok(folder)
}

/// The tests that docs/guarantees.md names.
struct Promises(Vec<String>);

impl Promises {
    fn read() -> Result<Self, String> {
        let file = place::root().join("docs").join("guarantees.md");
        let page =
            fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let quoted = page.split('`').skip(1).step_by(2);
        Ok(Self(quoted.filter(|text| text.contains('_')).map(str::to_owned).collect()))
    }

    /// Whether the page names this function; `...` in a name there stands for anything.
    fn include(&self, function: &str) -> bool {
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
    fn promises_are_found_by_name_and_by_pattern() {
        assert!(matches("a_b", "a_b"));
        assert!(!matches("a_b", "a_b_c"));
        assert!(matches("a_on_...", "a_on_postgres"));
        assert!(matches("a_..._b", "a_on_postgres_b"));
        assert!(!matches("a_..._b", "a_on_postgres_c"));
    }
}
