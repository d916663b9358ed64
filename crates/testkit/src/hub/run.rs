//! One run of the hub's process, behind a wrapper or not.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::Signal;

use crate::{mortal, process};

/// A process and, once it has ended, how.
#[derive(Default)]
pub(super) struct Run {
    child: Option<Child>,
    bin: PathBuf,
    hub_pid: Option<u32>,
    exit: Option<ExitStatus>,
}

impl Run {
    /// Starts the command with its output at the end of the log file.
    pub(super) fn start(mut command: Command, log: &Path, bin: &Path) -> Self {
        let output = File::options().create(true).append(true).open(log).expect("a log file");
        let errors = output.try_clone().expect("a second handle of the log file");
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        Self { child: Some(mortal::spawn(command)), bin: bin.to_owned(), hub_pid: None, exit: None }
    }

    /// The hub's process: the one we started, or the one below it that runs the hub's program. None when it has
    /// ended, or when a wrapper has not come to start it.
    pub(super) fn pid(&mut self) -> Option<u32> {
        if self.exit_status().is_some() {
            return None;
        }
        let child = self.child.as_ref()?.id();
        if self.hub_pid.is_none_or(|pid| pid != child && !process::runs(pid, &self.bin)) {
            let family = std::iter::once(child).chain(process::descendants(child));
            self.hub_pid = family.into_iter().find(|pid| process::runs(*pid, &self.bin));
        }
        self.hub_pid
    }

    pub(super) fn is_running(&mut self) -> bool {
        self.child.is_some() && self.exit_status().is_none()
    }

    /// How it ended; none while it runs, or when it was never started.
    pub(super) fn exit_status(&mut self) -> Option<ExitStatus> {
        if self.exit.is_none()
            && let Some(child) = &mut self.child
        {
            self.exit = child.try_wait().expect("the state of a child");
        }
        self.exit
    }

    /// Kills the hub and then its wrapper, and collects them.
    pub(super) fn kill_all(&mut self) {
        // First the hub: a tracer that dies leaves its tracee running.
        let hub = self.pid();
        if let Some(pid) = hub {
            process::signal(pid, Signal::KILL);
        }
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            self.exit = child.wait().ok();
        }
        // Behind a wrapper the hub is no child of ours.
        hub.into_iter().for_each(process::wait_gone);
    }
}
