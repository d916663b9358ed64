//! `cargo xtask bench`: a release build, then the load generator against the hub.
//!
//! The generator and the hub are separate processes; the figures of a full run go to docs/bench.json, which the
//! documentation shows. Arguments are the generator's own.

use crate::place;
use crate::process::{cargo, command, run as run_child};
use crate::steps::{Failure, Steps};

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), Failure> {
    steps.step("release build", |_| {
        run_child(&mut cargo(["build", "--release", "-p", "bongsu", "-p", "bongsu-bench"]))
    })?;
    steps.step("measurement", |_| {
        let release = place::target().join("release");
        let mut generator = command(release.join("bongsu-bench"));
        generator.arg("run").arg("--hub").arg(release.join("bongsu"));
        run_child(generator.args(arguments).current_dir(place::root()))
    })
}
