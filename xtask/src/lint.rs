//! `cargo xtask lint`: format, clippy and the rules for dependencies.
//!
//! The cheapest check comes first, so that the usual slip is reported within a second.

use crate::deny;
use crate::process::{cargo, run as run_child};
use crate::steps::{Failure, Steps};

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), Failure> {
    if let Some(argument) = arguments.first() {
        return Err(steps.refuse(format!("lint takes no arguments, got {argument}")));
    }
    checks(steps)
}

/// The steps of the command, which `test` starts with.
pub(crate) fn checks(steps: &mut Steps) -> Result<(), Failure> {
    steps.step("format", |_| run_child(&mut cargo(["fmt", "--all", "--check"])))?;
    steps.step("clippy", |_| clippy(&["--workspace"]))?;
    // The model check compiles other code than the rest of the workspace sees.
    steps.step("clippy of the model check", |_| clippy(&["-p", "bongsu-live", "--features", "model"]))?;
    steps.step("dependencies", deny::check)
}

fn clippy(selection: &[&str]) -> Result<(), String> {
    let mut command = cargo(["clippy"]);
    command.args(selection).args(["--all-targets", "--", "-D", "warnings"]);
    run_child(&mut command)
}
