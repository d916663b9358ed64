//! One test on one profile: its name, how it runs, and how its outcome is read from its output.
//!
//! Every test runs in a process of its own. A test that hangs can be killed, its output does not mix with that of other
//! tests, and state that it leaves in the process cannot affect another test.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bongsu_engines::process::kill_tree;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::build::Executable;
use crate::profiles;

const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Bytes of a failed test's output that are printed; the complete output is in `target/test-logs`.
const MAX_SHOWN_OUTPUT: usize = 64 * 1024;

/// A test on a profile; None is the embedded profile.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) profile: Option<&'static str>,
    pub(crate) executable: Arc<Executable>,
    pub(crate) test: String,
}

/// How one run of a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// The reason in one line; the output has the details.
    Failed(String),
    /// The test printed that it does not apply to this engine or adapter, with the reason.
    NotApplicable(String),
    /// The test printed that it could not run, with what is missing.
    NotRun(String),
}

/// One run of a test.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) outcome: Outcome,
    pub(crate) duration: Duration,
    pub(crate) output: String,
}

impl Case {
    /// The full name: profile, executable and test, such as `redis: bongsu/it rooms_seam::...`.
    pub(crate) fn id(&self) -> String {
        profiles::name_on(self.profile, &format!("{} {}", self.executable.name, self.test))
    }

    /// The name of the test's function, without its modules.
    pub(crate) fn function(&self) -> &str {
        self.test.rsplit("::").next().unwrap_or(&self.test)
    }

    /// Runs the test, and kills it after `timeout`. Its output goes to `log`.
    pub(crate) fn run(
        &self,
        environment: &[(String, std::ffi::OsString)],
        timeout: Duration,
        log: &Path,
    ) -> Attempt {
        let started = Instant::now();
        let ended = self.spawn_and_wait(environment, timeout, log);
        let output = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
        let outcome = match ended {
            Ok(status) => parse_outcome(status, &output),
            Err(reason) => Outcome::Failed(reason),
        };
        Attempt { outcome, duration: started.elapsed(), output }
    }

    fn spawn_and_wait(
        &self,
        environment: &[(String, std::ffi::OsString)],
        timeout: Duration,
        log: &Path,
    ) -> Result<ExitStatus, String> {
        let failed = |error| format!("cannot run {}: {error}", self.executable.path.display());
        // The test's temporary files, removed also when the test is killed. Every user may enter the folder, because
        // PostgreSQL runs as a user of its own.
        let scratch = tempfile::Builder::new()
            .prefix("bongsu-test-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir();
        let scratch = scratch.map_err(failed)?;
        let output = File::create(log).map_err(failed)?;
        // The kernel kills the test when this process ends. Two threads, because libtest with one thread prints the
        // test's name in front of the test's first line.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(&self.executable.path);
        command.args([&self.test, "--exact", "--nocapture", "--test-threads=2"]);
        command.current_dir(&self.executable.folder);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.env(profiles::VARIABLE, self.profile.unwrap_or(profiles::EMBEDDED));
        command.env("TMPDIR", scratch.path());
        command.stdin(Stdio::null()).stdout(output.try_clone().map_err(failed)?).stderr(output);
        let mut child = command.process_group(0).spawn().map_err(failed)?;
        let deadline = Instant::now() + timeout;
        let status = loop {
            match child.try_wait().map_err(failed)? {
                Some(status) => break Ok(status),
                None if Instant::now() > deadline => {
                    kill_tree(&mut child);
                    break Err(format!("HUNG: still running after {} s; killed", timeout.as_secs()));
                }
                None => std::thread::sleep(POLL_INTERVAL),
            }
        };
        // The hubs of a test that was killed or has aborted still run, in the test's process group.
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        status
    }
}

impl Attempt {
    /// The end of the output, up to [`MAX_SHOWN_OUTPUT`] bytes.
    pub(crate) fn output_tail(&self) -> &str {
        let end = self.output.trim_end();
        let mut start = end.len().saturating_sub(MAX_SHOWN_OUTPUT);
        while !end.is_char_boundary(start) {
            start += 1;
        }
        &end[start..]
    }
}

/// The seed that a test printed.
pub(crate) fn seed(output: &str) -> Option<&str> {
    output.lines().find_map(|line| line.strip_prefix("seed: BONGSU_SEED="))
}

/// Whether the test printed that it counts events. A second attempt of such a test could hide a lost event.
pub(crate) fn counts_events(output: &str) -> bool {
    output.lines().any(|line| line == "COUNTS EVENTS" || line.starts_with("proof "))
}

fn parse_outcome(status: ExitStatus, output: &str) -> Outcome {
    let reason_after =
        |prefix: &str| output.lines().find_map(|line| line.strip_prefix(prefix)).map(str::to_owned);
    if !status.success() {
        let panic = output.lines().find(|line| line.contains("panicked at"));
        return Outcome::Failed(panic.map_or_else(|| status.to_string(), str::to_owned));
    }
    if let Some(reason) = reason_after("NOT RUN: ") {
        return Outcome::NotRun(reason);
    }
    if let Some(reason) = reason_after("NOT APPLICABLE: ") {
        return Outcome::NotApplicable(reason);
    }
    if output.contains("test result: ok. 1 passed;") {
        Outcome::Passed
    } else {
        Outcome::Failed("the executable has no test of this name".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> (tempfile::TempDir, Case) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tests");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let executable = Executable { name: "a/it".to_owned(), path, folder: folder.path().to_owned() };
        let case = Case { profile: Some("redis"), executable: Arc::new(executable), test: "b::c".to_owned() };
        (folder, case)
    }

    fn outcome(text: &str, timeout: Duration) -> Outcome {
        let (folder, case) = script(text);
        assert_eq!((case.id().as_str(), case.function()), ("redis: a/it b::c", "c"));
        case.run(&[], timeout, &folder.path().join("log")).outcome
    }

    #[test]
    fn outcomes_are_read_from_the_end_and_the_output() {
        let outcome = |text: &str| outcome(text, Duration::from_secs(60));
        let passed = "echo 'test result: ok. 1 passed; 0 failed'";
        assert_eq!(outcome(passed), Outcome::Passed);
        assert_eq!(
            outcome(&format!("echo 'NOT RUN: c: x' >&2; {passed}")),
            Outcome::NotRun("c: x".to_owned())
        );
        let not_applicable = Outcome::NotApplicable("c: y".to_owned());
        assert_eq!(outcome(&format!("echo 'NOT APPLICABLE: c: y'; {passed}")), not_applicable);
        assert!(matches!(outcome("echo nothing"), Outcome::Failed(_)));
        let panicked = Outcome::Failed("thread 'b::c' panicked at x.rs:1:".to_owned());
        assert_eq!(outcome("echo \"thread 'b::c' panicked at x.rs:1:\"; exit 101"), panicked);
    }

    #[test]
    fn a_hanging_test_is_killed_with_its_child_processes() {
        let hung = outcome("sleep 4712.5 & sleep 4712.5", Duration::from_millis(200));
        assert!(matches!(hung, Outcome::Failed(reason) if reason.starts_with("HUNG")));
        assert!(bongsu_engines::process::with_argument("4712.5").is_empty());
    }
}
