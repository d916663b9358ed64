//! `cargo xtask test`: checks the format and the dependencies, builds with clippy, compares the generated documents,
//! starts the engines, and runs every test on its profiles.
//!
//! Programs are installed and engines started while the build runs. Environment variables tell tests their size
//! (`BONGSU_TEST_TIER`: quick, full, prove), the paths of programs and the addresses of engines; tests do not search
//! for them. `prove` uses the same functions.

use std::ffi::OsString;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::build::{self, BuildOutput};
use crate::case::Case;
use crate::engines::Engines;
use crate::process::capture;
use crate::profiles::{self, Profiles};
use crate::runner::Runner;
use crate::services::{self, Services};
use crate::steps::{StepError, Steps};
use crate::{deny, docs, lint, paths, process};

/// A test that runs longer is killed. `prove` runs tests at full size, which takes longer.
const TEST_TIMEOUT: Duration = Duration::from_secs(180);
const PROVE_TIMEOUT: Duration = Duration::from_secs(3_600);
/// Concurrent test processes per core. Most tests mostly wait; at full size they load the machine.
const JOBS_PER_CORE: usize = 4;
const PROVE_JOBS_PER_CORE: usize = 1;
/// Shorter durations are not written to `xtask/durations.json`.
const MIN_RECORDED_DURATION: Duration = Duration::from_secs(2);

/// The size of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tier {
    Quick,
    Full,
    Prove,
}

impl Tier {
    fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
            Self::Prove => "prove",
        }
    }
}

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), StepError> {
    let (mut tier, mut with_lint, mut keep_durations, mut filter) = (Tier::Full, true, false, Vec::new());
    for argument in arguments {
        match argument.as_str() {
            "--quick" => tier = Tier::Quick,
            "--no-lint" => with_lint = false,
            "--keep-durations" => keep_durations = true,
            flag if flag.starts_with('-') => return Err(steps.refuse(format!("test has no option {flag}"))),
            name => filter.push(name.to_owned()),
        }
    }
    if with_lint {
        // The summary has the failures of these steps; later steps do not need their results.
        let _ = steps.step("format", |_| lint::format());
        let _ = steps.step("dependencies", deny::check);
    } else {
        steps.not_run.push("lints (--no-lint)".to_owned());
    }
    let (output, environment) = prepare(steps, tier, with_lint)?;
    let is_selected =
        |case: &Case| filter.is_empty() || filter.iter().any(|part| case.id().contains(part.as_str()));
    if !filter.is_empty() {
        steps.not_run.push(format!("tests not named by: {}", filter.join(" ")));
    }
    let profiles = if tier == Tier::Quick { Profiles::Embedded } else { Profiles::All };
    let passed = steps.step("tests", |steps| {
        let mut cases = list(&output, profiles)?;
        cases.retain(is_selected);
        environment.remove_unavailable(&mut cases, steps);
        run_cases(steps, cases, tier, &environment)
    });
    if keep_durations && filter.is_empty() && passed.is_ok() {
        steps.step("write durations", |steps| {
            let text = format!("{:#}\n", steps.tally.durations(MIN_RECORDED_DURATION));
            std::fs::write(paths::durations(), text).map_err(|error| error.to_string())
        })?;
    }
    passed
}

/// The installed programs, the running engines, and further environment variables of the tests.
#[derive(Default)]
pub(crate) struct TestEnvironment {
    services: Services,
    engines: Engines,
    extra_variables: Vec<(String, OsString)>,
}

impl TestEnvironment {
    /// Adds an environment variable for every test.
    pub(crate) fn set(&mut self, name: &str, value: OsString) {
        self.extra_variables.push((name.to_owned(), value));
    }

    /// Removes the cases of profiles with an engine that does not run, and adds these profiles to the summary. In CI
    /// [`services::ensure`] has already failed when an engine's program is missing.
    fn remove_unavailable(&self, cases: &mut Vec<Case>, steps: &mut Steps) {
        let is_missing =
            |profile: &str| profiles::engines(profile).iter().any(|name| !self.engines.has(name));
        let mut left_out: Vec<_> = cases.iter().filter_map(|case| case.profile).collect();
        left_out.sort_unstable();
        left_out.dedup();
        left_out.retain(|profile| is_missing(profile));
        cases.retain(|case| case.profile.is_none_or(|profile| !left_out.contains(&profile)));
        steps
            .not_run
            .extend(left_out.iter().map(|profile| format!("the profile {profile}: an engine does not run")));
    }

    /// The environment variables of every test, without the profile.
    fn variables(&self, tier: Tier) -> Vec<(String, OsString)> {
        let mut environment = vec![("BONGSU_TEST_TIER".to_owned(), tier.name().into())];
        environment.extend(self.services.environment());
        environment.extend(self.engines.environment());
        environment.extend(self.extra_variables.iter().cloned());
        environment
    }
}

/// Builds everything, while another thread installs programs and starts engines.
pub(crate) fn prepare(
    steps: &mut Steps,
    tier: Tier,
    with_clippy: bool,
) -> Result<(BuildOutput, TestEnvironment), StepError> {
    if tier == Tier::Quick {
        steps.not_run.push("everything that needs an engine or a browser (--quick)".to_owned());
    }
    let (output, setup_result) = thread::scope(|scope| {
        let setup = scope.spawn(move || {
            let started = Instant::now();
            let environment = if tier == Tier::Quick { Ok(TestEnvironment::default()) } else { set_up() };
            (started.elapsed(), environment)
        });
        let output = steps.step("build and clippy", |_| build::build(with_clippy));
        (output, setup.join())
    });
    let (duration, environment) =
        setup_result.unwrap_or_else(|_| (Duration::ZERO, Err("its thread panicked; see above".to_owned())));
    let environment = steps.close_step("engines and programs", duration, environment);
    if let Ok(environment) = &environment {
        steps.used.extend(environment.services.versions());
        steps.not_run.extend(environment.services.missing.iter().cloned());
    }
    let output = output?;
    if output.warnings > 0 {
        let _ = steps.step("clippy", |_| Err::<(), _>(format!("{} warnings, see above", output.warnings)));
    }
    let _ = steps.step("documents are current", |_| docs::check(&output.product));
    Ok((output, environment?))
}

fn set_up() -> Result<TestEnvironment, String> {
    let services = services::ensure()?;
    let engines = Engines::start()?;
    Ok(TestEnvironment { services, engines, extra_variables: Vec::new() })
}

/// Runs the cases. Fails when a test fails, or could not run in `prove` or in CI.
pub(crate) fn run_cases(
    steps: &mut Steps,
    cases: Vec<Case>,
    tier: Tier,
    environment: &TestEnvironment,
) -> Result<(), String> {
    if cases.is_empty() {
        return Err("no test was run: the filter matches no test".to_owned());
    }
    let is_proving = tier == Tier::Prove;
    let runner = Runner {
        environment: environment.variables(tier),
        jobs: jobs(if is_proving { PROVE_JOBS_PER_CORE } else { JOBS_PER_CORE }),
        timeout: if is_proving { PROVE_TIMEOUT } else { TEST_TIMEOUT },
        shows_output: is_proving,
    };
    runner.run(cases, &mut steps.tally)?;
    let (failed, not_run) = (steps.tally.failures().count(), steps.tally.not_run());
    let must_run_all = is_proving || (paths::in_ci() && tier != Tier::Quick);
    if failed > 0 {
        Err(format!("{failed} tests failed"))
    } else if not_run > 0 && must_run_all {
        Err(format!("{not_run} tests were not run, which is an error in CI and in prove"))
    } else {
        Ok(())
    }
}

/// Maximum number of concurrent test processes: `BONGSU_TEST_JOBS`, or a number per core.
fn jobs(per_core: usize) -> usize {
    let given = std::env::var("BONGSU_TEST_JOBS").ok().and_then(|jobs| jobs.parse().ok());
    given.unwrap_or_else(|| per_core * thread::available_parallelism().map_or(1, usize::from))
}

/// Lists all tests, once for each of their profiles.
pub(crate) fn list(output: &BuildOutput, profiles: Profiles) -> Result<Vec<Case>, String> {
    let mut tests = Vec::new();
    for executable in &output.executables {
        let mut command = process::command(&executable.path);
        let listed = capture(command.args(["--list", "--format", "terse"]).current_dir(&executable.folder))?;
        let executable = Arc::new(executable.clone());
        let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        tests.extend(names.map(|test| (executable.clone(), test.to_owned())));
    }
    let names: Vec<_> =
        tests.iter().map(|(executable, test)| (executable.name.as_str(), test.as_str())).collect();
    let unused = profiles::unused_prefixes(&names);
    if !unused.is_empty() {
        return Err(format!("xtask/src/profiles.rs names tests that do not exist: {}", unused.join(", ")));
    }
    let cases = tests.into_iter().flat_map(|(executable, test)| {
        let test_profiles = profiles::for_test(&executable.name, &test, profiles);
        test_profiles.into_iter().map(move |profile| Case {
            profile,
            executable: executable.clone(),
            test: test.clone(),
        })
    });
    Ok(cases.collect())
}
