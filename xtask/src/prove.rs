//! `cargo xtask prove`: the tests at full size, one after the other because they load the machine.
//!
//! Tests that prove something leave a JSON file each (`proof`); when all have passed, these become
//! docs/proof/<part>.json. With --resume a run goes on where one on the same commit was stopped.

use crate::proof::Proofs;
use crate::steps::{Failure, Steps};
use crate::test::{self, Surroundings, list};
use crate::{place, profiles, services};

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), Failure> {
    let (mut resume, mut part) = (false, None);
    for argument in arguments {
        match argument.as_str() {
            "--resume" => resume = true,
            flag if flag.starts_with('-') => return Err(steps.refuse(format!("prove has no option {flag}"))),
            name if part.is_none() => part = Some(name.to_owned()),
            name => return Err(steps.refuse(format!("prove takes one part, got {name} as well"))),
        }
    }
    let part = part.as_deref();
    let services = steps.step("services", services::ensure)?;
    let proofs = steps.step("what is proven already", |_| Proofs::open(resume))?;
    let mut surroundings = test::surroundings("prove", &services);
    surroundings.push(("BONGSU_PROOF_DIR", proofs.folder().into()));
    steps.used.push(format!("profile {}", profiles::EMBEDDED));

    let mut passed = tests(steps, &surroundings, part, &proofs);
    if passed.is_ok() && services.have_redis() {
        // As full names, with the profile, for which each has a result of its own.
        let wanted = |test: &str| part.is_none_or(|part| test.contains(part)) && !proofs.has(test);
        passed = profiles::run(steps, &surroundings, &one_at_a_time(), wanted);
    }
    // A test may have left its result before its last assertion failed: that is no proof.
    proofs.forget(steps.tally.failures());
    passed?;
    steps.step("write the proof", |_| proofs.publish(part))
}

fn tests(
    steps: &mut Steps,
    surroundings: &Surroundings,
    part: Option<&str>,
    proofs: &Proofs,
) -> Result<(), Failure> {
    match part {
        Some(part) => {
            let own = format!("bongsu-{part}");
            if ["crates", "apps"].iter().any(|parent| place::root().join(parent).join(part).is_dir()) {
                let selection = ["-p", &own];
                steps.step("tests of the part", |steps| all(steps, surroundings, &selection, proofs))?;
            }
            let selection = ["--workspace", "--exclude", &own];
            steps.step("tests elsewhere that carry its name", |steps| {
                named(steps, surroundings, &selection, part, proofs)
            })?;
        }
        None => {
            steps
                .step("tests of the workspace", |steps| all(steps, surroundings, &["--workspace"], proofs))?;
        }
    }
    // The ring belongs to no part: it is proven with everything, or by its own name.
    if part.is_none_or(|part| part == "live") {
        test::model_check(steps, surroundings, &[])?;
    }
    Ok(())
}

/// All tests of the selection but the proven ones.
fn all(
    steps: &mut Steps,
    surroundings: &Surroundings,
    selection: &[&str],
    proofs: &Proofs,
) -> Result<(), String> {
    let mut harness = one_at_a_time();
    if !proofs.is_empty() {
        for test in list(selection)?.into_iter().filter(|test| proofs.has(test)) {
            println!("proven already: {test}");
            harness.extend(["--skip".to_owned(), test]);
        }
    }
    test::cargo_test(steps, surroundings, selection, &harness)
}

/// The tests of the selection whose name contains the part's, but the proven ones.
fn named(
    steps: &mut Steps,
    surroundings: &Surroundings,
    selection: &[&str],
    part: &str,
    proofs: &Proofs,
) -> Result<(), String> {
    let (proven, open): (Vec<_>, Vec<_>) =
        list(selection)?.into_iter().filter(|test| test.contains(part)).partition(|test| proofs.has(test));
    proven.iter().for_each(|test| println!("proven already: {test}"));
    if open.is_empty() {
        println!("none to run");
        return Ok(());
    }
    let mut harness = one_at_a_time();
    harness.extend(open);
    test::cargo_test(steps, surroundings, selection, &harness)
}

/// Names are exact: a proven `seam` must not take `seam_after_restart` with it.
fn one_at_a_time() -> Vec<String> {
    ["--exact", "--test-threads=1", "--nocapture"].map(str::to_owned).to_vec()
}
