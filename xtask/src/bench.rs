//! `cargo xtask bench`: a build as it is distributed, the engines that hubs are measured on, then the load generator.
//!
//! The generator and the hub are separate processes; the figures of a full run go to docs/bench.json, which the
//! documentation shows. Arguments are the generator's own.

use crate::process::{cargo, command, run as run_child};
use crate::steps::{Steps, Stopped};
use crate::{place, services};

/// As images are built.
const PROFILE: &str = "dist";

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), Stopped> {
    steps.step("build", |_| {
        // One after the other: built together, the hub would get features that only the generator asks for.
        run_child(&mut cargo(["build", "--profile", PROFILE, "-p", "bongsu"]))?;
        run_child(&mut cargo(["build", "--profile", PROFILE, "-p", "bongsu-bench"]))
    })?;
    let services = steps.step("engines and programs", |_| services::ensure())?;
    steps.step("measurement", |_| {
        let built = place::target().join(PROFILE);
        let mut generator = command(built.join("bongsu-bench"));
        generator.arg("run").arg("--hub").arg(built.join("bongsu"));
        generator.envs(services.environment());
        run_child(generator.args(arguments).current_dir(place::root()))
    })
}
