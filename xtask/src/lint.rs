//! `cargo xtask lint`: checks the format, clippy's lints and the rules for dependencies.
//!
//! Clippy's driver is the compiler of the same build that the tests use, see `build`.

use crate::process::{cargo, run as run_child};
use crate::steps::{StepError, Steps};
use crate::{build, deny};

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), StepError> {
    if let Some(argument) = arguments.first() {
        return Err(steps.refuse(format!("lint takes no arguments, got {argument}")));
    }
    let _ = steps.step("format", |_| format());
    let _ = steps.step("dependencies", deny::check);
    steps.step("build and clippy", |_| match build::build(true)?.warnings {
        0 => Ok(()),
        warnings => Err(format!("{warnings} warnings, see above")),
    })
}

pub(crate) fn format() -> Result<(), String> {
    run_child(&mut cargo(["fmt", "--all", "--check"]))
}
