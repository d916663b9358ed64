//! `cargo xtask bench`: a release build, the engines that hubs are measured on, then the load generator.
//!
//! The generator and the hub are separate processes; the figures of a full run go to docs/bench.json, which the
//! documentation shows. Arguments are the generator's own.

use crate::process::{cargo, command, run as run_child};
use crate::steps::{Failure, Steps};
use crate::{place, services};

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), Failure> {
    steps.step("release build", |_| {
        // One after the other: built together, the hub would get features that only the generator asks for.
        run_child(&mut cargo(["build", "--release", "-p", "bongsu"]))?;
        run_child(&mut cargo(["build", "--release", "-p", "bongsu-bench"]))
    })?;
    let services = steps.step("services", services::ensure)?;
    steps.step("measurement", |_| {
        let release = place::target().join("release");
        let mut generator = command(release.join("bongsu-bench"));
        generator.arg("run").arg("--hub").arg(release.join("bongsu"));
        generator.envs(services.found.iter().map(|found| (found.variable, &found.path)));
        run_child(generator.args(arguments).current_dir(place::root()))
    })
}
