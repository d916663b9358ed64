//! `cargo xtask bench`: builds the hub as it is distributed, installs the engines, and runs the load generator.
//!
//! The generator and the hub are separate processes. A full run writes its figures to docs/bench.json, which the
//! documentation shows. All arguments are passed to the generator.

use crate::process::{cargo, command, run as run_child};
use crate::steps::{StepError, Steps};
use crate::{paths, services};

/// The cargo profile that images are built with.
const PROFILE: &str = "dist";

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), StepError> {
    steps.step("build", |_| {
        // Two builds, because one build of both would enable features in the hub that only the generator asks for.
        run_child(&mut cargo(["build", "--profile", PROFILE, "-p", "bongsu"]))?;
        run_child(&mut cargo(["build", "--profile", PROFILE, "-p", "bongsu-bench"]))
    })?;
    let services = steps.step("engines and programs", |_| services::ensure())?;
    steps.step("measurement", |_| {
        let built = paths::target().join(PROFILE);
        let mut generator = command(built.join("bongsu-bench"));
        generator.arg("run").arg("--hub").arg(built.join("bongsu"));
        generator.envs(services.environment());
        run_child(generator.args(arguments).current_dir(paths::root()))
    })
}
