//! The steps of a command: headings, durations, budgets, and the summary at the end.
//!
//! A failed step is named in the last lines and does not keep later ones from running, unless they need what it would
//! have made. What could not be run is named there, too: nothing is skipped silently. `target/timings.json` keeps the
//! durations.

use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::place;
use crate::tally::Tally;

/// What one step may take in a run from nothing on two cores, in seconds. A step that takes longer is named.
const BUDGETS: [(&str, u64); 4] =
    [("format", 10), ("build and clippy", 480), ("engines and programs", 120), ("tests", 660)];

/// A command that cannot go on, because a step failed whose result it needs. The step has its line already.
#[derive(Debug)]
pub(crate) struct Stopped;

/// A finished step.
#[derive(Debug)]
struct Step {
    name: String,
    took: Duration,
    problem: Option<String>,
}

/// The record of one command.
#[derive(Debug)]
pub(crate) struct Steps {
    command: String,
    started: Instant,
    done: Vec<Step>,
    /// What the tests ran on, one line each.
    pub(crate) used: Vec<String>,
    /// What was left out, and why, one line each.
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

    /// Runs one step between its heading and its closing line. A failure is kept for the end.
    pub(crate) fn step<T>(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, Stopped> {
        println!("\n=== {name}");
        let started = Instant::now();
        let result = work(self);
        self.close_step(name, started.elapsed(), result)
    }

    /// A step that ran beside others.
    pub(crate) fn close_step<T>(
        &mut self,
        name: &str,
        took: Duration,
        result: Result<T, String>,
    ) -> Result<T, Stopped> {
        let outcome = if result.is_ok() { "ok" } else { "FAILED" };
        println!("=== {name}: {outcome} after {}", spoken(took));
        let (value, problem) = match result {
            Ok(value) => (Ok(value), None),
            Err(problem) => (Err(Stopped), Some(problem)),
        };
        self.done.push(Step { name: name.to_owned(), took, problem });
        value
    }

    /// Arguments that make no sense end a command before its first step.
    pub(crate) fn refuse(&mut self, problem: String) -> Stopped {
        let name = format!("{} (its arguments)", self.command);
        self.done.push(Step { name, took: Duration::ZERO, problem: Some(problem) });
        Stopped
    }

    /// Prints the summary and says how the command ended.
    pub(crate) fn close(&self) -> ExitCode {
        println!("\n=== summary of {}", self.command);
        let width = self.done.iter().map(|step| step.name.len()).max().unwrap_or(0);
        for step in &self.done {
            println!("{:width$}  {}", step.name, spoken(step.took));
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
        let took = spoken(self.started.elapsed());
        let failed: Vec<String> = self
            .done
            .iter()
            .filter_map(|step| Some(format!("`{}`: {}", step.name, step.problem.as_ref()?)))
            .collect();
        if failed.is_empty() {
            println!("xtask {}: ok after {took}", self.command);
            ExitCode::SUCCESS
        } else {
            println!("xtask {}: FAILED after {took} in {}", self.command, failed.join("; "));
            ExitCode::FAILURE
        }
    }

    fn over_budget(&self) -> impl Iterator<Item = String> {
        self.done.iter().filter_map(|step| {
            let (_, budget) = BUDGETS.iter().find(|(name, _)| *name == step.name)?;
            let is_over = step.took > Duration::from_secs(*budget);
            is_over.then(|| format!("{} took {}, allowed are {budget} s", step.name, spoken(step.took)))
        })
    }

    fn write_timings(&self) {
        let steps: Vec<_> = self
            .done
            .iter()
            .map(|step| json!({"step": step.name, "seconds": step.took.as_secs(), "ok": step.problem.is_none()}))
            .collect();
        let timings = json!({
            "command": self.command,
            "seconds": self.started.elapsed().as_secs(),
            "steps": steps,
            "overBudget": self.over_budget().collect::<Vec<_>>(),
            "tests": self.tally.timings(),
        });
        let file = place::target().join("timings.json");
        if let Err(error) = fs::write(&file, format!("{timings:#}\n")) {
            println!("cannot write {}: {error}", file.display());
        }
    }
}

fn spoken(took: Duration) -> String {
    let seconds = took.as_secs();
    if seconds < 60 {
        format!("{:.1} s", took.as_secs_f64())
    } else {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_said_as_people_say_them() {
        assert_eq!(spoken(Duration::from_millis(1_240)), "1.2 s");
        assert_eq!(spoken(Duration::from_secs(65)), "1 min 05 s");
    }

    #[test]
    fn a_step_over_its_budget_is_named() {
        let mut steps = Steps::new("test");
        let _ = steps.close_step("format", Duration::from_secs(5), Ok(()));
        assert_eq!(steps.over_budget().count(), 0);
        let _ = steps.close_step("format", Duration::from_secs(70), Ok(()));
        let named: Vec<_> = steps.over_budget().collect();
        assert_eq!(named, ["format took 1 min 10 s, allowed are 10 s"]);
    }
}
