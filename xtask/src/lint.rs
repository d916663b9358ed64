//! `cargo xtask lint`: format, clippy and the rules for dependencies.
//!
//! Clippy runs as the compiler of the one build that the tests use too, see `build`.

use crate::process::{cargo, run as run_child};
use crate::steps::{Steps, Stopped};
use crate::{build, deny};

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), Stopped> {
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
