//! Starts child processes that the kernel kills when this process ends or is killed, and removes folders afterwards.
//!
//! The kernel kills a child when its parent ends (`setpriv --pdeathsig`). The parent is the thread that started the
//! child, and the thread of a test ends with the test. So one thread that lives as long as the process starts all
//! children.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};

type SpawnRequest = (Command, Sender<io::Result<Child>>);

static STARTER: LazyLock<Sender<SpawnRequest>> = LazyLock::new(|| {
    let (requests, received) = channel::<SpawnRequest>();
    let thread = std::thread::Builder::new().name("starter".to_owned());
    let starting = thread.spawn(move || {
        while let Ok((mut command, started)) = received.recv() {
            let _ = started.send(command.spawn());
        }
    });
    starting.expect("cannot start the thread that spawns children");
    requests
});

/// Starts a program and appends its output to the log file. The id of the child is that of the program.
pub fn start(program: &Path, arguments: &[&Path], log: &Path) -> Child {
    let output = File::options().create(true).append(true).open(log).expect("cannot open the log file");
    let errors = output.try_clone().expect("cannot duplicate the handle of the log file");
    let mut command = command(program);
    command.args(arguments).stdin(Stdio::null()).stdout(output).stderr(errors);
    spawn(command)
}

/// A command whose process the kernel kills when its parent ends, if [`spawn`] starts it. The id of the child is that of
/// the program, because `setpriv` replaces itself with the program.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// Starts a command on the thread that lives as long as the process.
pub fn spawn(command: Command) -> Child {
    let shown = format!("{command:?}");
    let (reply, spawned) = channel();
    STARTER.send((command, reply)).expect("the thread that spawns children has ended");
    let child = spawned.recv().expect("the thread that spawns children has ended");
    child.unwrap_or_else(|error| panic!("cannot start {shown}: {error}"))
}

/// Removes folders when this process has ended, even if it ended without running destructors.
///
/// A shell reads a pipe whose write end this process holds, and removes the folders when the pipe closes.
pub struct FolderCleanup {
    _shell: Child,
}

impl FolderCleanup {
    pub fn new(folders: &[PathBuf]) -> Self {
        // The processes that write to the folders are killed at the same time. A file that one of them creates during
        // the removal makes `rm` fail, so `rm` is retried.
        let script = "trap '' HUP INT TERM; read -r _; for _ in 1 2 3 4 5 6 7 8 9; do rm -rf -- \"$@\" && break; sleep 0.2; done";
        let mut command = Command::new("sh");
        // In its own process group, so that a signal to the group of this process does not kill the cleanup.
        command.args(["-c", script, "remove"]).args(folders).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let shell = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        Self { _shell: shell }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let asking = std::thread::spawn(move || start(Path::new("sleep"), &[Path::new("4711")], &log));
        let mut child = asking.join().unwrap();
        assert!(child.try_wait().unwrap().is_none());
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let parent = format!("PPid:\t{}\n", std::process::id());
        assert!(status.contains(&parent), "{status}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
