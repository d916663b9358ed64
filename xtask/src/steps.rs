//! The steps of a command: headings, durations, and the summary at the end.
//!
//! A step's failure carries the step's name to the last line. What could not be run is collected here
//! and printed in the last lines whether the command succeeds or not: nothing is skipped silently.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::tally::Tally;

/// Why a command ended early: the step and what went wrong in it.
#[derive(Debug)]
pub(crate) struct Failure {
    step: String,
    reason: String,
}

/// The record of one command.
#[derive(Debug)]
pub(crate) struct Steps {
    command: String,
    started: Instant,
    done: Vec<(String, Duration)>,
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

    /// Runs one step between its heading and its closing line.
    pub(crate) fn step<T>(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, Failure> {
        println!("\n=== {name}");
        let started = Instant::now();
        let result = work(self);
        let took = started.elapsed();
        let outcome = if result.is_ok() { "ok" } else { "FAILED" };
        println!("=== {name}: {outcome} after {}", spoken(took));
        match result {
            Ok(value) => {
                self.done.push((name.to_owned(), took));
                Ok(value)
            }
            Err(reason) => Err(Failure { step: name.to_owned(), reason }),
        }
    }

    /// Arguments that make no sense end a command before its first step.
    pub(crate) fn refuse(&self, reason: String) -> Failure {
        Failure { step: format!("{} (its arguments)", self.command), reason }
    }

    /// Prints the summary and says how the command ended.
    pub(crate) fn close(&self, result: &Result<(), Failure>) -> ExitCode {
        println!("\n=== summary of {}", self.command);
        let width = self.done.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, took) in &self.done {
            println!("{name:width$}  {}", spoken(*took));
        }
        for line in &self.used {
            println!("used: {line}");
        }
        for name in self.tally.failures() {
            println!("failed: {name}");
        }
        for line in self.not_run.iter().chain(self.tally.not_run()) {
            println!("not run: {line}");
        }
        if self.tally.any() {
            println!("{}", self.tally);
        }
        let took = spoken(self.started.elapsed());
        match result {
            Ok(()) => {
                println!("xtask {}: ok after {took}", self.command);
                ExitCode::SUCCESS
            }
            Err(Failure { step, reason }) => {
                println!("xtask {}: FAILED after {took} in step `{step}`: {reason}", self.command);
                ExitCode::FAILURE
            }
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
}
