//! One test on one profile: its name, how it is run, and what its output says about it.
//!
//! Every test runs in a process of its own: it can be ended when it hangs, its output is its own, and nothing that it
//! leaves behind in the process reaches another test.

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
/// Bytes of a failed test's output that are shown; the whole of it is in `target/test-logs`.
const MAX_SHOWN_OUTPUT: usize = 64 * 1024;

/// A test on a profile; None is the embedded one.
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
    /// What went wrong, in a few words; the output has the rest.
    Failed(String),
    /// The test means nothing on this engine or adapter, and says why.
    NotApplicable(String),
    /// The test could not run, and says what is missing.
    NotRun(String),
}

/// One run of a test.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
    pub(crate) output: String,
}

impl Case {
    /// The name that people use: `redis: bongsu/it rooms_seam::...`.
    pub(crate) fn id(&self) -> String {
        profiles::name_on(self.profile, &format!("{} {}", self.executable.name, self.test))
    }

    /// The test's function.
    pub(crate) fn function(&self) -> &str {
        self.test.rsplit("::").next().unwrap_or(&self.test)
    }

    /// Runs the test to its end, or to `limit`. Its output goes to `log`.
    pub(crate) fn run(
        &self,
        environment: &[(String, std::ffi::OsString)],
        limit: Duration,
        log: &Path,
    ) -> Attempt {
        let started = Instant::now();
        let ended = self.spawn_and_wait(environment, limit, log);
        let output = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
        let outcome = match ended {
            Ok(status) => judge(status, &output),
            Err(reason) => Outcome::Failed(reason),
        };
        Attempt { outcome, took: started.elapsed(), output }
    }

    fn spawn_and_wait(
        &self,
        environment: &[(String, std::ffi::OsString)],
        limit: Duration,
        log: &Path,
    ) -> Result<ExitStatus, String> {
        let failed = |error| format!("cannot run {}: {error}", self.executable.path.display());
        // All that the test leaves behind, also when it is killed. Open to all, because PostgreSQL runs as its own user.
        let scratch = tempfile::Builder::new()
            .prefix("bongsu-test-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir();
        let scratch = scratch.map_err(failed)?;
        let output = File::create(log).map_err(failed)?;
        // A test dies with this process. With one thread libtest would print the test's name before its first line.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(&self.executable.path);
        command.args([&self.test, "--exact", "--nocapture", "--test-threads=2"]);
        command.current_dir(&self.executable.folder);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.env(profiles::VARIABLE, self.profile.unwrap_or(profiles::EMBEDDED));
        command.env("TMPDIR", scratch.path());
        command.stdin(Stdio::null()).stdout(output.try_clone().map_err(failed)?).stderr(output);
        let mut child = command.process_group(0).spawn().map_err(failed)?;
        let deadline = Instant::now() + limit;
        let status = loop {
            match child.try_wait().map_err(failed)? {
                Some(status) => break Ok(status),
                None if Instant::now() > deadline => {
                    kill_tree(&mut child);
                    break Err(format!("HUNG: it still ran after {} s", limit.as_secs()));
                }
                None => std::thread::sleep(POLL_INTERVAL),
            }
        };
        // A test that was killed, or aborted, leaves its hubs behind; they are of its process group.
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        status
    }
}

impl Attempt {
    /// The last lines of the output, as many as a person wants to see at once.
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

/// Whether the test said that it counts events, so that a second attempt would hide a loss.
pub(crate) fn counts_events(output: &str) -> bool {
    output.lines().any(|line| line == "COUNTS EVENTS" || line.starts_with("proof "))
}

fn judge(status: ExitStatus, output: &str) -> Outcome {
    let reason = |word: &str| output.lines().find_map(|line| line.strip_prefix(word)).map(str::to_owned);
    if !status.success() {
        let panic = output.lines().find(|line| line.contains("panicked at"));
        return Outcome::Failed(panic.map_or_else(|| status.to_string(), str::to_owned));
    }
    if let Some(reason) = reason("NOT RUN: ") {
        return Outcome::NotRun(reason);
    }
    if let Some(reason) = reason("NOT APPLICABLE: ") {
        return Outcome::NotApplicable(reason);
    }
    if output.contains("test result: ok. 1 passed;") {
        Outcome::Passed
    } else {
        Outcome::Failed("the executable ran no test of this name".to_owned())
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

    fn outcome(text: &str, limit: Duration) -> Outcome {
        let (folder, case) = script(text);
        assert_eq!((case.id().as_str(), case.function()), ("redis: a/it b::c", "c"));
        case.run(&[], limit, &folder.path().join("log")).outcome
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
    fn a_test_that_hangs_is_ended_with_all_that_it_started() {
        let hung = outcome("sleep 4712.5 & sleep 4712.5", Duration::from_millis(200));
        assert!(matches!(hung, Outcome::Failed(reason) if reason.starts_with("HUNG")));
        assert!(bongsu_engines::process::with_argument("4712.5").is_empty());
    }
}
