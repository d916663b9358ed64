//! What became of all tests of a run: counts, failures, flaky tests, what was left out, and how long each took.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::case::{Attempt, Case, Outcome};

/// How many of the slowest tests are kept in timings.json.
const MAX_SLOWEST: usize = 60;

/// A test that was run, once or more often.
#[derive(Debug)]
pub(crate) struct Finished {
    id: String,
    outcome: Outcome,
    took: Duration,
    /// It failed beside other tests and passed alone; with the seed of the failed run, if it had one.
    flaky: Option<Option<String>>,
}

impl Finished {
    /// Ended for good with its first attempt.
    pub(crate) fn first(case: &Case, attempt: Attempt) -> Self {
        Self { id: case.id(), outcome: attempt.outcome, took: attempt.took, flaky: None }
    }

    /// Failed first, then passed alone.
    pub(crate) fn flaky(case: &Case, first: Attempt, seed: Option<String>) -> Self {
        Self { flaky: Some(seed), ..Self::first(case, first) }
    }
}

/// All tests of a run.
#[derive(Debug, Default)]
pub(crate) struct Tally(Vec<Finished>);

impl Tally {
    pub(crate) fn add(&mut self, finished: Finished) {
        self.0.push(finished);
    }

    /// The names of the tests that failed, each with the reason.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|test| match &test.outcome {
            Outcome::Failed(reason) if test.flaky.is_none() => Some((test.id.as_str(), reason.as_str())),
            _ => None,
        })
    }

    /// The last lines about tests that need a look: flaky ones, failures, and what was left out.
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

    /// How many tests could not be run.
    pub(crate) fn not_run(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::NotRun(_)))
    }

    /// How many tests were run to their end.
    pub(crate) fn ran(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Passed | Outcome::Failed(_)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// For timings.json: the slowest tests, and the flaky ones with their seeds.
    pub(crate) fn timings(&self) -> Value {
        let mut slowest: Vec<&Finished> = self.0.iter().collect();
        slowest.sort_by_key(|test| std::cmp::Reverse(test.took));
        slowest.truncate(MAX_SLOWEST);
        let slowest: Vec<Value> =
            slowest.iter().map(|test| json!({"test": test.id, "seconds": seconds(test.took)})).collect();
        let flaky = self.0.iter().filter_map(|test| Some((test, test.flaky.as_ref()?)));
        let flaky: Vec<Value> = flaky
            .map(|(test, seed)| json!({"test": test.id, "seed": seed, "reason": reason(test)}))
            .collect();
        let sum: f64 = self.0.iter().map(|test| test.took.as_secs_f64()).sum();
        json!({"tests": self.0.len(), "secondsOfTests": sum.round(), "slowest": slowest, "flaky": flaky})
    }

    /// Seconds of the tests that take at least `least`, by name.
    pub(crate) fn durations(&self, least: Duration) -> Value {
        let long = self.0.iter().filter(|test| test.took >= least);
        long.map(|test| (test.id.clone(), json!(seconds(test.took))))
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

fn reason(test: &Finished) -> &str {
    match &test.outcome {
        Outcome::Failed(reason) => reason,
        _ => "",
    }
}

fn seconds(took: Duration) -> f64 {
    (took.as_secs_f64() * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(id: &str, outcome: Outcome, flaky: Option<Option<String>>) -> Finished {
        Finished { id: id.to_owned(), outcome, took: Duration::from_millis(1_250), flaky }
    }

    #[test]
    fn a_flaky_test_passes_and_is_named_with_its_seed() {
        let mut tally = Tally::default();
        let failed = || Outcome::Failed("panicked".to_owned());
        tally.add(finished("a", Outcome::Passed, None));
        tally.add(finished("b", failed(), Some(Some("7".to_owned()))));
        tally.add(finished("c", failed(), None));
        tally.add(finished("d", Outcome::NotRun("no redis".to_owned()), None));
        tally.add(finished("e", Outcome::NotApplicable("embedded only".to_owned()), None));
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
