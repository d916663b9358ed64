//! `cargo xtask test`: format, one build with clippy, the rules for dependencies, documents, engines, and every test on
//! its profiles.
//!
//! Programs are installed and engines started beside the build. Tests learn from the environment how large they are to
//! be (`BONGSU_TEST_TIER`: quick, full, prove), where programs are and where the engines of the run are; they find
//! nothing by themselves. `prove` shares all of it.

use std::ffi::OsString;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::build::{self, Built};
use crate::case::Case;
use crate::engines::Engines;
use crate::process::capture;
use crate::profiles::{self, Profiles};
use crate::runner::Runner;
use crate::services::{self, Services};
use crate::steps::{Steps, Stopped};
use crate::{deny, docs, lint, place, process};

/// What one test may take; in a run that proves, tests are as large as they get.
const TEST_LIMIT: Duration = Duration::from_secs(180);
const PROVE_LIMIT: Duration = Duration::from_secs(3_600);
/// Most tests wait for something most of the time.
const JOBS_PER_CORE: usize = 4;
/// Tests that take less are not worth ordering.
const LONG_TEST: Duration = Duration::from_secs(2);

/// How large a run is.
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

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), Stopped> {
    let (mut tier, mut with_lint, mut keeps_durations, mut filter) = (Tier::Full, true, false, Vec::new());
    for argument in arguments {
        match argument.as_str() {
            "--quick" => tier = Tier::Quick,
            "--no-lint" => with_lint = false,
            "--keep-durations" => keeps_durations = true,
            flag if flag.starts_with('-') => return Err(steps.refuse(format!("test has no option {flag}"))),
            name => filter.push(name.to_owned()),
        }
    }
    if with_lint {
        // A failure is in the summary; nothing that follows needs it.
        let _ = steps.step("format", |_| lint::format());
        let _ = steps.step("dependencies", deny::check);
    } else {
        steps.not_run.push("lints (--no-lint)".to_owned());
    }
    let (built, ready) = prepare(steps, tier, with_lint)?;
    let wanted =
        |case: &Case| filter.is_empty() || filter.iter().any(|part| case.id().contains(part.as_str()));
    if !filter.is_empty() {
        steps.not_run.push(format!("tests not named by: {}", filter.join(" ")));
    }
    let profiles = if tier == Tier::Quick { Profiles::Embedded } else { Profiles::All };
    let passed = steps.step("tests", |steps| {
        let mut cases = list(&built, profiles)?;
        cases.retain(wanted);
        ready.leave_out_missing(&mut cases, steps);
        run_cases(steps, cases, tier, &ready)
    });
    if keeps_durations && filter.is_empty() && passed.is_ok() {
        steps.step("write durations", |steps| {
            let text = format!("{:#}\n", steps.tally.durations(LONG_TEST));
            std::fs::write(place::durations(), text).map_err(|error| error.to_string())
        })?;
    }
    passed
}

/// The programs that are there and the engines that run.
#[derive(Default)]
pub(crate) struct Ready {
    services: Services,
    engines: Engines,
    further: Vec<(String, OsString)>,
}

impl Ready {
    /// One more variable for every test.
    pub(crate) fn set(&mut self, name: &str, value: OsString) {
        self.further.push((name.to_owned(), value));
    }

    /// Leaves out the profiles whose engines cannot be had, and says so. In CI that was an error before.
    fn leave_out_missing(&self, cases: &mut Vec<Case>, steps: &mut Steps) {
        let is_missing =
            |profile: &str| profiles::engines(profile).iter().any(|name| !self.engines.have(name));
        let mut left_out: Vec<_> = cases.iter().filter_map(|case| case.profile).collect();
        left_out.sort_unstable();
        left_out.dedup();
        left_out.retain(|profile| is_missing(profile));
        cases.retain(|case| case.profile.is_none_or(|profile| !left_out.contains(&profile)));
        steps
            .not_run
            .extend(left_out.iter().map(|profile| format!("the profile {profile}: an engine is missing")));
    }

    /// What every test finds in its environment.
    fn environment(&self, tier: Tier) -> Vec<(String, OsString)> {
        let mut environment = vec![("BONGSU_TEST_TIER".to_owned(), tier.name().into())];
        environment.extend(self.services.environment());
        environment.extend(self.engines.environment());
        environment.extend(self.further.iter().cloned());
        environment
    }
}

/// Builds everything while programs are installed and engines are started.
pub(crate) fn prepare(steps: &mut Steps, tier: Tier, linted: bool) -> Result<(Built, Ready), Stopped> {
    if tier == Tier::Quick {
        steps.not_run.push("everything that needs an engine or a browser (--quick)".to_owned());
    }
    let (built, got_ready) = thread::scope(|scope| {
        let readying = scope.spawn(move || {
            let started = Instant::now();
            let ready = if tier == Tier::Quick { Ok(Ready::default()) } else { make_ready() };
            (started.elapsed(), ready)
        });
        let built = steps.step("build and clippy", |_| build::build(linted));
        (built, readying.join())
    });
    let (took, ready) =
        got_ready.unwrap_or_else(|_| (Duration::ZERO, Err("it panicked; see above".to_owned())));
    let ready = steps.close_step("engines and programs", took, ready);
    if let Ok(ready) = &ready {
        steps.used.extend(ready.services.versions());
        steps.not_run.extend(ready.services.missing.iter().cloned());
    }
    let built = built?;
    if built.warnings > 0 {
        let _ = steps.step("clippy", |_| Err::<(), _>(format!("{} warnings, see above", built.warnings)));
    }
    let _ = steps.step("documents are current", |_| docs::check(&built.product));
    Ok((built, ready?))
}

fn make_ready() -> Result<Ready, String> {
    let services = services::ensure()?;
    let engines = Engines::start()?;
    Ok(Ready { services, engines, further: Vec::new() })
}

/// Runs the cases and fails when one does.
pub(crate) fn run_cases(
    steps: &mut Steps,
    cases: Vec<Case>,
    tier: Tier,
    ready: &Ready,
) -> Result<(), String> {
    if cases.is_empty() {
        return Err("no test was run: the filter matches none".to_owned());
    }
    let is_proving = tier == Tier::Prove;
    let runner = Runner {
        environment: ready.environment(tier),
        jobs: if is_proving { 1 } else { jobs() },
        limit: if is_proving { PROVE_LIMIT } else { TEST_LIMIT },
        shows_output: is_proving,
    };
    runner.run(cases, &mut steps.tally)?;
    let (failed, not_run) = (steps.tally.failures().count(), steps.tally.not_run());
    let must_run_all = is_proving || (place::in_ci() && tier != Tier::Quick);
    if failed > 0 {
        Err(format!("{failed} tests failed"))
    } else if not_run > 0 && must_run_all {
        Err(format!("{not_run} tests were not run, and nothing may be left out"))
    } else {
        Ok(())
    }
}

/// Test processes at the same time.
fn jobs() -> usize {
    let given = std::env::var("BONGSU_TEST_JOBS").ok().and_then(|jobs| jobs.parse().ok());
    given.unwrap_or_else(|| JOBS_PER_CORE * thread::available_parallelism().map_or(1, usize::from))
}

/// All tests on all of their profiles.
pub(crate) fn list(built: &Built, profiles: Profiles) -> Result<Vec<Case>, String> {
    let mut tests = Vec::new();
    for executable in &built.executables {
        let mut command = process::command(&executable.path);
        let listed = capture(command.args(["--list", "--format", "terse"]).current_dir(&executable.folder))?;
        let executable = Arc::new(executable.clone());
        let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        tests.extend(names.map(|test| (executable.clone(), test.to_owned())));
    }
    let names: Vec<_> = tests.iter().map(|(of, test)| (of.name.as_str(), test.as_str())).collect();
    let unused = profiles::unused(&names);
    if !unused.is_empty() {
        return Err(format!("no test is called {}, which xtask/src/profiles.rs names", unused.join(", ")));
    }
    let cases = tests.into_iter().flat_map(|(executable, test)| {
        let on = profiles::of(&executable.name, &test, profiles);
        on.into_iter().map(move |profile| Case {
            profile,
            executable: executable.clone(),
            test: test.clone(),
        })
    });
    Ok(cases.collect())
}
