//! One process of a hub, with or without a wrapper command around it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::Signal;

use crate::{child_process, process};

/// A started process and, once it has ended, its exit status.
#[derive(Default)]
pub(super) struct HubProcess {
    child: Option<Child>,
    bin: PathBuf,
    hub_pid: Option<u32>,
    exit: Option<ExitStatus>,
}

impl HubProcess {
    /// Starts the command and appends its output to the log file.
    pub(super) fn start(mut command: Command, log: &Path, bin: &Path) -> Self {
        let output = File::options().create(true).append(true).open(log).expect("cannot open the log file");
        let errors = output.try_clone().expect("cannot duplicate the handle of the log file");
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        Self { child: Some(child_process::spawn(command)), bin: bin.to_owned(), hub_pid: None, exit: None }
    }

    /// The id of the hub's process: the started process, or its descendant that runs the hub's program. None if it has
    /// ended, or if the wrapper has not started it yet.
    pub(super) fn pid(&mut self) -> Option<u32> {
        if self.exit_status().is_some() {
            return None;
        }
        let child = self.child.as_ref()?.id();
        if self.hub_pid.is_none_or(|pid| pid != child && !process::runs(pid, &self.bin)) {
            let candidates = std::iter::once(child).chain(process::descendants(child));
            self.hub_pid = candidates.into_iter().find(|pid| process::runs(*pid, &self.bin));
        }
        self.hub_pid
    }

    pub(super) fn is_running(&mut self) -> bool {
        self.child.is_some() && self.exit_status().is_none()
    }

    /// The exit status; None while the process runs, or if it was never started.
    pub(super) fn exit_status(&mut self) -> Option<ExitStatus> {
        if self.exit.is_none()
            && let Some(child) = &mut self.child
        {
            self.exit = child.try_wait().expect("cannot read the state of the child process");
        }
        self.exit
    }

    /// Kills the hub and then its wrapper, and waits for both.
    pub(super) fn kill_all(&mut self) {
        // First the hub, because a tracer that is killed leaves the traced process running.
        let hub = self.pid();
        if let Some(pid) = hub {
            process::signal(pid, Signal::KILL);
        }
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            self.exit = child.wait().ok();
        }
        // With a wrapper the hub is not a direct child of this process, so `wait` does not cover it.
        hub.into_iter().for_each(process::wait_gone);
    }
}
