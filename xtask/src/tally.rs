//! The results of all tests of a run: counts, failures, flaky tests, tests that were left out, and durations.
//! They become the last lines of the summary, a part of timings.json, and durations.json.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::case::{Attempt, Case, Outcome};

/// Number of the slowest tests that timings.json lists.
const MAX_SLOWEST: usize = 60;

/// The result of a test after its last attempt.
#[derive(Debug)]
pub(crate) struct TestResult {
    id: String,
    outcome: Outcome,
    duration: Duration,
    /// Some when the test failed in parallel with others and passed alone, with the seed of the failed attempt if it
    /// printed one.
    flaky: Option<Option<String>>,
}

impl TestResult {
    /// The result of a test whose first attempt counts.
    pub(crate) fn new(case: &Case, attempt: Attempt) -> Self {
        Self { id: case.id(), outcome: attempt.outcome, duration: attempt.duration, flaky: None }
    }

    /// The result of a test that failed at first, and then passed alone.
    pub(crate) fn flaky(case: &Case, first: Attempt, seed: Option<String>) -> Self {
        Self { flaky: Some(seed), ..Self::new(case, first) }
    }
}

/// The results of all tests of a run.
#[derive(Debug, Default)]
pub(crate) struct Tally(Vec<TestResult>);

impl Tally {
    pub(crate) fn add(&mut self, result: TestResult) {
        self.0.push(result);
    }

    /// The names of the failed tests, each with its reason. Flaky tests are not included.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|test| match &test.outcome {
            Outcome::Failed(reason) if test.flaky.is_none() => Some((test.id.as_str(), reason.as_str())),
            _ => None,
        })
    }

    /// Lines of the summary about tests that did not simply pass: flaky ones, tests that were left out, and failures.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut left_out: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let mut remarks = Vec::new();
        for test in &self.0 {
            match (&test.outcome, &test.flaky) {
                (Outcome::Failed(reason), Some(seed)) => {
                    let seed = seed.as_deref().unwrap_or("none");
                    remarks.push(format!("FLAKY: {} (seed {seed}; first attempt: {reason})", test.id));
                }
                (Outcome::NotRun(reason), _) => *left_out.entry(("not run", reason)).or_default() += 1,
                (Outcome::NotApplicable(reason), _) => {
                    *left_out.entry(("not applicable", reason)).or_default() += 1;
                }
                _ => {}
            }
        }
        let left_out = left_out.into_iter();
        remarks.extend(left_out.map(|((word, reason), tests)| format!("{word}: {tests} tests: {reason}")));
        remarks.extend(self.failures().map(|(id, reason)| format!("failed: {id}: {reason}")));
        remarks
    }

    /// Number of tests that could not be run.
    pub(crate) fn not_run(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::NotRun(_)))
    }

    /// Number of tests that passed or failed.
    pub(crate) fn ran(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Passed | Outcome::Failed(_)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The slowest tests, and the flaky ones with their seeds, for timings.json.
    pub(crate) fn timings(&self) -> Value {
        let mut slowest: Vec<&TestResult> = self.0.iter().collect();
        slowest.sort_by_key(|test| std::cmp::Reverse(test.duration));
        slowest.truncate(MAX_SLOWEST);
        let slowest: Vec<Value> =
            slowest.iter().map(|test| json!({"test": test.id, "seconds": seconds(test.duration)})).collect();
        let flaky = self.0.iter().filter_map(|test| Some((test, test.flaky.as_ref()?)));
        let flaky: Vec<Value> = flaky
            .map(|(test, seed)| json!({"test": test.id, "seed": seed, "reason": reason(test)}))
            .collect();
        let sum: f64 = self.0.iter().map(|test| test.duration.as_secs_f64()).sum();
        json!({"tests": self.0.len(), "secondsOfTests": sum.round(), "slowest": slowest, "flaky": flaky})
    }

    /// Durations in seconds, by name, of the tests that took at least `min_duration`.
    pub(crate) fn durations(&self, min_duration: Duration) -> Value {
        let long = self.0.iter().filter(|test| test.duration >= min_duration);
        long.map(|test| (test.id.clone(), json!(seconds(test.duration))))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    fn count(&self, is_counted: impl Fn(&Outcome) -> bool) -> usize {
        self.0.iter().filter(|test| is_counted(&test.outcome)).count()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.failures().count();
        let left_out =
            self.count(|outcome| matches!(outcome, Outcome::NotApplicable(_) | Outcome::NotRun(_)));
        write!(f, "total: {} passed, {failed} failed, {left_out} skipped", self.ran() - failed)
    }
}

fn reason(test: &TestResult) -> &str {
    match &test.outcome {
        Outcome::Failed(reason) => reason,
        _ => "",
    }
}

fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(id: &str, outcome: Outcome, flaky: Option<Option<String>>) -> TestResult {
        TestResult { id: id.to_owned(), outcome, duration: Duration::from_millis(1_250), flaky }
    }

    #[test]
    fn a_flaky_test_passes_and_is_named_with_its_seed() {
        let mut tally = Tally::default();
        let failed = || Outcome::Failed("panicked".to_owned());
        tally.add(result("a", Outcome::Passed, None));
        tally.add(result("b", failed(), Some(Some("7".to_owned()))));
        tally.add(result("c", failed(), None));
        tally.add(result("d", Outcome::NotRun("no redis".to_owned()), None));
        tally.add(result("e", Outcome::NotApplicable("embedded only".to_owned()), None));
        assert_eq!(tally.to_string(), "total: 2 passed, 1 failed, 2 skipped");
        let remarks = [
            "FLAKY: b (seed 7; first attempt: panicked)",
            "not applicable: 1 tests: embedded only",
            "not run: 1 tests: no redis",
            "failed: c: panicked",
        ];
        assert_eq!(tally.remarks(), remarks);
        assert_eq!(tally.timings()["flaky"][0]["seed"], "7");
        assert_eq!(tally.durations(Duration::from_secs(1))["a"], 1.3);
        assert_eq!(tally.durations(Duration::from_secs(2)), json!({}));
    }
}
