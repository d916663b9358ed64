//! Runs the steps of a command: headings, durations, time budgets, and the summary at the end.
//!
//! The last line names failed steps. Later steps run nevertheless, unless they need the result of a failed one. The
//! summary also names what was not run, so that no test is skipped silently. `target/timings.json` gets the durations.

use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::paths;
use crate::tally::Tally;

/// Seconds that a step may take in a run on two cores without an earlier build. The summary names a step that takes
/// longer.
const BUDGETS: [(&str, u64); 4] =
    [("format", 10), ("build and clippy", 480), ("engines and programs", 120), ("tests", 660)];

/// A command cannot continue, because a step failed whose result it needs. The step keeps its error for the summary.
#[derive(Debug)]
pub(crate) struct StepError;

/// A step that has ended, with its error if it failed.
#[derive(Debug)]
struct Step {
    name: String,
    duration: Duration,
    problem: Option<String>,
}

/// The steps of one command, and the lines of its summary.
#[derive(Debug)]
pub(crate) struct Steps {
    command: String,
    started: Instant,
    done: Vec<Step>,
    /// One line for each engine or program that the tests used.
    pub(crate) used: Vec<String>,
    /// One line for each check or group of tests that was left out, with the reason.
    pub(crate) not_run: Vec<String>,
    pub(crate) tally: Tally,
}

impl Steps {
    pub(crate) fn new(command: &str) -> Self {
        Self {
            command: command.to_owned(),
            started: Instant::now(),
            done: Vec::new(),
            used: Vec::new(),
            not_run: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Prints a heading, runs a step, and prints how it ended. The summary repeats its error.
    pub(crate) fn step<T>(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, StepError> {
        println!("\n=== {name}");
        let started = Instant::now();
        let result = work(self);
        self.close_step(name, started.elapsed(), result)
    }

    /// Adds a step that has ended, and prints how it ended. For steps that ran in parallel with others.
    pub(crate) fn close_step<T>(
        &mut self,
        name: &str,
        duration: Duration,
        result: Result<T, String>,
    ) -> Result<T, StepError> {
        let outcome = if result.is_ok() { "ok" } else { "FAILED" };
        println!("=== {name}: {outcome} after {}", format_duration(duration));
        let (value, problem) = match result {
            Ok(value) => (Ok(value), None),
            Err(problem) => (Err(StepError), Some(problem)),
        };
        self.done.push(Step { name: name.to_owned(), duration, problem });
        value
    }

    /// Records that the command's arguments are invalid. The command returns the error without running a step.
    pub(crate) fn refuse(&mut self, problem: String) -> StepError {
        let name = format!("{} (arguments)", self.command);
        self.done.push(Step { name, duration: Duration::ZERO, problem: Some(problem) });
        StepError
    }

    /// Prints the summary, writes the timings, and returns the exit code.
    pub(crate) fn close(&self) -> ExitCode {
        println!("\n=== summary of {}", self.command);
        let width = self.done.iter().map(|step| step.name.len()).max().unwrap_or(0);
        for step in &self.done {
            println!("{:width$}  {}", step.name, format_duration(step.duration));
        }
        for line in &self.used {
            println!("used: {line}");
        }
        for line in &self.not_run {
            println!("not run: {line}");
        }
        self.tally.remarks().iter().for_each(|line| println!("{line}"));
        self.over_budget().for_each(|line| println!("over budget: {line}"));
        self.write_timings();
        if !self.tally.is_empty() {
            println!("{}", self.tally);
        }
        let duration = format_duration(self.started.elapsed());
        let failed: Vec<String> = self
            .done
            .iter()
            .filter_map(|step| Some(format!("`{}`: {}", step.name, step.problem.as_ref()?)))
            .collect();
        if failed.is_empty() {
            println!("xtask {}: ok after {duration}", self.command);
            ExitCode::SUCCESS
        } else {
            println!("xtask {}: FAILED after {duration} in {}", self.command, failed.join("; "));
            ExitCode::FAILURE
        }
    }

    fn over_budget(&self) -> impl Iterator<Item = String> {
        self.done.iter().filter_map(|step| {
            let (_, budget) = BUDGETS.iter().find(|(name, _)| *name == step.name)?;
            let is_over = step.duration > Duration::from_secs(*budget);
            is_over
                .then(|| format!("{} took {}, limit {budget} s", step.name, format_duration(step.duration)))
        })
    }

    fn write_timings(&self) {
        let steps: Vec<_> = self
            .done
            .iter()
            .map(|step| json!({"step": step.name, "seconds": step.duration.as_secs(), "ok": step.problem.is_none()}))
            .collect();
        let timings = json!({
            "command": self.command,
            "seconds": self.started.elapsed().as_secs(),
            "steps": steps,
            "overBudget": self.over_budget().collect::<Vec<_>>(),
            "tests": self.tally.timings(),
        });
        let file = paths::target().join("timings.json");
        if let Err(error) = fs::write(&file, format!("{timings:#}\n")) {
            println!("cannot write {}: {error}", file.display());
        }
    }
}

fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 {
        format!("{:.1} s", duration.as_secs_f64())
    } else {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_printed_in_seconds_or_minutes() {
        assert_eq!(format_duration(Duration::from_millis(1_240)), "1.2 s");
        assert_eq!(format_duration(Duration::from_secs(65)), "1 min 05 s");
    }

    #[test]
    fn a_step_over_its_budget_is_named() {
        let mut steps = Steps::new("test");
        let _ = steps.close_step("format", Duration::from_secs(5), Ok(()));
        assert_eq!(steps.over_budget().count(), 0);
        let _ = steps.close_step("format", Duration::from_secs(70), Ok(()));
        let named: Vec<_> = steps.over_budget().collect();
        assert_eq!(named, ["format took 1 min 10 s, limit 10 s"]);
    }
}
