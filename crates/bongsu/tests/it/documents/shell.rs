//! A bash process that runs the commands of a document one after another, so that variables and background jobs are kept.
//!
//! Each command writes to its own file, so that the output of a background stream does not mix with the output of the
//! commands after it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use bongsu_testkit::wait;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::BONGSU;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct Shell {
    bash: Child,
    stdin: ChildStdin,
    /// Folder of the output files.
    outputs: PathBuf,
    /// Number of commands so far; the output files are named after it.
    count: usize,
}

/// A command that has ended.
pub(super) struct CommandResult {
    pub(super) status: i32,
    pub(super) output: String,
}

/// A background job. Dropping it kills its processes.
pub(super) struct Job {
    group: Pid,
    output: PathBuf,
}

impl Shell {
    /// Starts bash in a folder, in which it finds the hub as `bongsu` and as `target/release/bongsu`.
    pub(super) fn open(folder: &Path, environment: &[(&str, String)]) -> Self {
        let (outputs, bin) = (folder.join("outputs"), folder.join("target/release"));
        std::fs::create_dir(&outputs).unwrap();
        std::fs::create_dir_all(&bin).unwrap();
        std::os::unix::fs::symlink(BONGSU, bin.join("bongsu")).unwrap();
        // Without a terminal, curl prints its progress.
        std::fs::write(folder.join(".curlrc"), "no-progress-meter\n").unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut bash = Command::new("bash");
        bash.args(["--noprofile", "--norc"]).current_dir(folder).env_clear();
        bash.env("PATH", format!("{}:{path}", bin.display())).env("HOME", folder).env("LANG", "C.UTF-8");
        bash.envs(environment.iter().map(|(name, value)| (name, value)));
        bash.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut bash = bash.spawn().unwrap();
        let mut stdin = bash.stdin.take().unwrap();
        // Job control gives every job its own process group, so that all processes of a job can be stopped.
        stdin.write_all(b"set -m\n").unwrap();
        Self { bash, stdin, outputs, count: 0 }
    }

    /// Runs a command and waits until it has ended.
    pub(super) async fn run(&mut self, command: &str) -> CommandResult {
        let (status, _) = self.execute(command).await;
        CommandResult { status, output: read(&self.output_file()) }
    }

    /// Starts a command that continues in the background, with or without `&` at its end.
    pub(super) async fn start(&mut self, command: &str) -> Job {
        let in_background =
            if command.ends_with('&') { command.to_owned() } else { format!("{{\n{command}\n}} &") };
        let (_, group) = self.execute(&in_background).await;
        let group = group.unwrap_or_else(|| panic!("bash has started no job: {command}"));
        Job { group, output: self.output_file() }
    }

    /// Returns the exit status and the latest job.
    async fn execute(&mut self, command: &str) -> (i32, Option<Pid>) {
        self.count += 1;
        let written = self.outputs.join(format!("{}.status", self.count));
        let done = self.outputs.join(format!("{}.done", self.count));
        // Braces redirect any command without a subshell, in which assignments would be lost.
        let script = format!(
            "{{\n{command}\n}} >'{}' 2>&1 </dev/null\nprintf '%s %s' \"$?\" \"$!\" >'{written}'\nmv '{written}' '{}'\n",
            self.output_file().display(),
            done.display(),
            written = written.display(),
        );
        self.stdin.write_all(script.as_bytes()).unwrap();
        wait::until(WAIT_TIMEOUT, async || done.exists()).await;
        let done = std::fs::read_to_string(&done).unwrap();
        let (status, group) = done.split_once(' ').unwrap();
        (status.parse().unwrap(), group.parse().ok().and_then(Pid::from_raw))
    }

    /// The output file of the latest command.
    fn output_file(&self) -> PathBuf {
        self.outputs.join(format!("{}.output", self.count))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.bash.kill();
        let _ = self.bash.wait();
    }
}

impl Job {
    /// The output of the job so far.
    pub(super) fn output(&self) -> String {
        read(&self.output)
    }

    pub(super) fn has_ended(&self) -> bool {
        test_kill_process_group(self.group).is_err()
    }

    /// Terminates the job and waits until it has ended.
    pub(super) async fn stop(self) {
        let _ = kill_process_group(self.group, Signal::TERM);
        wait::until(WAIT_TIMEOUT, async || self.has_ended()).await;
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = kill_process_group(self.group, Signal::KILL);
    }
}

fn read(file: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned()
}
