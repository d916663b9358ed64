//! `cargo xtask prove`: the tests at full size, one after the other because they load the machine.
//!
//! Tests that prove something leave a JSON file each (`proof`); when all have passed, these become
//! docs/proof/<part>.json. With --resume a run goes on where one on the same commit was stopped.

use std::ffi::OsString;

use crate::case::Case;
use crate::profiles::Profiles;
use crate::proof::Proofs;
use crate::steps::{Steps, Stopped};
use crate::test::{self, Tier};

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), Stopped> {
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
    let proofs = steps.step("what is proven already", |_| Proofs::open(resume))?;
    let (built, mut ready) = test::prepare(steps, Tier::Prove, false)?;
    ready.set("BONGSU_PROOF_DIR", OsString::from(proofs.folder()));
    let passed = steps.step("tests", |steps| {
        let mut cases = test::list(&built, Profiles::Prove)?;
        cases.retain(|case| part.is_none_or(|part| is_of(case, part)));
        let proven = cases.extract_if(.., |case| proofs.has(&case.id()));
        proven.for_each(|case| println!("proven already: {}", case.id()));
        test::run_cases(steps, cases, Tier::Prove, &ready)
    });
    // A test may have left its result before its last assertion failed: that is no proof.
    proofs.forget(steps.tally.failures().map(|(id, _)| id));
    passed?;
    steps.step("write the proof", |_| proofs.publish(part))
}

/// Whether a test belongs to a part: it is in its crate, or carries its name. The model check belongs to live delivery.
fn is_of(case: &Case, part: &str) -> bool {
    let executable = case.executable.name.as_str();
    let package = executable.split('/').next().unwrap_or(executable);
    package == part || package.strip_suffix("-model") == Some(part) || case.test.contains(part)
}
