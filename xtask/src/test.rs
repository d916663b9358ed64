//! `cargo xtask test`: lints, services, every test of the workspace, the model check, the tests of the
//! other profiles (`profiles`), the documents.
//!
//! Tests learn from the environment how large they are to be (`BONGSU_TEST_TIER`: quick, full, prove)
//! and where programs from outside are; they find nothing by themselves. `prove` shares all of it.

use std::ffi::OsString;

use crate::process::{capture, cargo, run_and_look};
use crate::services::{self, Services};
use crate::steps::{Failure, Steps};
use crate::{docs, lint, profiles};

/// What tests are told by their environment.
pub(crate) type Surroundings = Vec<(&'static str, OsString)>;

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), Failure> {
    let (mut quick, mut with_lint, mut filter) = (false, true, Vec::new());
    for argument in arguments {
        match argument.as_str() {
            "--quick" => quick = true,
            "--no-lint" => with_lint = false,
            flag if flag.starts_with('-') => return Err(steps.refuse(format!("test has no option {flag}"))),
            name => filter.push(name.to_owned()),
        }
    }
    if with_lint {
        lint::checks(steps)?;
    } else {
        steps.not_run.push("lints (--no-lint)".to_owned());
    }
    let services = if quick {
        steps.not_run.push("everything that needs an engine or a browser (--quick)".to_owned());
        Services::default()
    } else {
        steps.step("services", services::ensure)?
    };
    let surroundings = surroundings(if quick { "quick" } else { "full" }, &services);
    steps.used.push(format!("profile {}", profiles::EMBEDDED));
    steps.step("tests of the workspace", |steps| {
        cargo_test(steps, &surroundings, &["--workspace"], &filter)
    })?;
    model_check(steps, &surroundings, &filter)?;
    if services.have_redis() {
        let wanted = |test: &str| filter.is_empty() || filter.iter().any(|part| test.contains(part.as_str()));
        profiles::run(steps, &surroundings, &["--exact".to_owned()], wanted)?;
    }
    if filter.is_empty() {
        steps.step("documents are current", |_| docs::check())?;
    } else {
        steps.not_run.push(format!("tests not named by: {}", filter.join(" ")));
    }
    if steps.tally.ran() == 0 {
        return Err(steps.refuse("no test was run: the filter matches none".to_owned()));
    }
    Ok(())
}

/// The environment of every test: the tier, the engine, and the programs that are there.
pub(crate) fn surroundings(tier: &str, services: &Services) -> Surroundings {
    let mut surroundings: Surroundings =
        vec![("BONGSU_TEST_TIER", tier.into()), (profiles::VARIABLE, profiles::EMBEDDED.into())];
    surroundings.extend(services.found.iter().map(|found| (found.variable, found.path.clone().into())));
    surroundings
}

/// The ring's model check. It is a step of its own because the feature replaces the crate's atomics and
/// locks by the checker's, which no other test could run on.
pub(crate) fn model_check(
    steps: &mut Steps,
    surroundings: &Surroundings,
    filter: &[String],
) -> Result<(), Failure> {
    let selection = ["-p", "bongsu-live", "--features", "model", "--lib"];
    steps.step("model check of the ring", |steps| cargo_test(steps, surroundings, &selection, filter))
}

/// One `cargo test`, counted; `harness` is what stands behind the `--`.
pub(crate) fn cargo_test(
    steps: &mut Steps,
    surroundings: &Surroundings,
    selection: &[&str],
    harness: &[String],
) -> Result<(), String> {
    let mut command = cargo(["test", "--no-fail-fast"]);
    command.args(selection);
    if !harness.is_empty() {
        command.arg("--").args(harness);
    }
    // A path left over in the caller's environment must not stand in for a program that is not there.
    for variable in services::variables() {
        command.env_remove(variable);
    }
    command.envs(surroundings.iter().map(|(name, value)| (name, value)));
    run_and_look(&mut command, |line| steps.tally.look(line))
}

/// The full names of the selection's tests.
pub(crate) fn list(selection: &[&str]) -> Result<Vec<String>, String> {
    let mut command = cargo(["test", "--quiet"]);
    command.args(selection).args(["--", "--list"]);
    let listed = capture(&mut command)?;
    Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}
