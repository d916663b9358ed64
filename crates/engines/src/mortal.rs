//! Children that die with this process, however it ends, and folders that go with it.
//!
//! The kernel ends a child for us when its parent is gone (`setpriv --pdeathsig`), but it means the thread that
//! started it, and a test's thread ends with its test. So one thread, which lives as long as the process, starts
//! them all.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};

type Order = (Command, Sender<io::Result<Child>>);

static STARTER: LazyLock<Sender<Order>> = LazyLock::new(|| {
    let (orders, waiting) = channel::<Order>();
    let thread = std::thread::Builder::new().name("starter".to_owned());
    let starting = thread.spawn(move || {
        while let Ok((mut command, started)) = waiting.recv() {
            let _ = started.send(command.spawn());
        }
    });
    starting.expect("a thread");
    orders
});

/// Starts a program with its output at the end of the log file. The child's id is the program's own.
pub fn start(program: &Path, arguments: &[&Path], log: &Path) -> Child {
    let output = File::options().create(true).append(true).open(log).expect("a log file");
    let errors = output.try_clone().expect("a second handle of the log file");
    let mut command = command(program);
    command.args(arguments).stdin(Stdio::null()).stdout(output).stderr(errors);
    spawn(command)
}

/// A command whose process dies with its parent, once [`spawn`] has started it. The child's id is the program's own.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// Starts a command by the thread that lives as long as the process.
pub fn spawn(command: Command) -> Child {
    let shown = format!("{command:?}");
    let (started, starting) = channel();
    STARTER.send((command, started)).expect("the thread that starts children");
    let child = starting.recv().expect("the thread that starts children");
    child.unwrap_or_else(|error| panic!("cannot start {shown}: {error}"))
}

/// Folders that are removed when this process has ended, also when nothing of it was dropped.
///
/// A shell waits for the end of its input, whose other end is ours.
pub struct RemovedAfterwards {
    _shell: Child,
}

impl RemovedAfterwards {
    pub fn new(folders: &[PathBuf]) -> Self {
        // Who writes there is being ended at the same time; what appears while it is removed needs another try.
        let script = "trap '' HUP INT TERM; read -r _; for _ in 1 2 3 4 5 6 7 8 9; do rm -rf -- \"$@\" && break; sleep 0.2; done";
        let mut command = Command::new("sh");
        // In a group of its own: whoever ends ours must not end what cleans up after it.
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
