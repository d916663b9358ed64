//! `cargo xtask prove`: runs the tests at full size, one per core because they load the machine.
//!
//! Tests that prove a guarantee write a JSON file each (`proof`). When all tests have passed, the files are joined to
//! docs/proof/<part>.json. With --resume a run skips the tests that earlier runs on the same commit have proven.

use std::ffi::OsString;

use crate::case::Case;
use crate::profiles::Profiles;
use crate::proof::Proofs;
use crate::steps::{StepError, Steps};
use crate::test::{self, Tier};

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), StepError> {
    let (mut resume, mut parts) = (false, Vec::new());
    for argument in arguments {
        match argument.as_str() {
            "--resume" => resume = true,
            flag if flag.starts_with('-') => return Err(steps.refuse(format!("prove has no option {flag}"))),
            name => parts.push(name),
        }
    }
    let proofs = steps.step("earlier results", |_| Proofs::open(resume))?;
    let (output, mut environment) = test::prepare(steps, Tier::Prove, false)?;
    environment.set("BONGSU_PROOF_DIR", OsString::from(proofs.folder()));
    let passed = steps.step("tests", |steps| {
        let mut cases = test::list(&output, Profiles::Prove)?;
        cases.retain(|case| parts.is_empty() || parts.iter().any(|part| belongs_to(case, part)));
        let proven = cases.extract_if(.., |case| proofs.has(&case.id()));
        proven.for_each(|case| println!("skipped, already proven: {}", case.id()));
        test::run_cases(steps, cases, Tier::Prove, &environment)
    });
    // A test can write its result before a later assertion fails; such a result proves nothing.
    proofs.remove(steps.tally.failures().map(|(id, _)| id));
    passed?;
    steps.step("write the proof", |_| proofs.publish(&parts))
}

/// Whether a test belongs to a part: it is in the part's crate, or its name contains the part's name. The crate
/// `live-model` belongs to the part `live`.
fn belongs_to(case: &Case, part: &str) -> bool {
    let executable = case.executable.name.as_str();
    let package = executable.split('/').next().unwrap_or(executable);
    package == part || package.strip_suffix("-model") == Some(part) || case.test.contains(part)
}
