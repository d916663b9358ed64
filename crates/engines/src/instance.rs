//! A running engine: its processes, its address, and its end.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use crate::{Engine, child_process, process};

const START_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const LOG_TAIL_LINES: usize = 40;

/// The processes of one engine. Dropping the instance kills them and all of their descendants.
pub struct Instance {
    /// Where clients connect: a URL, or `host:port` for engines whose URL also names a database.
    pub address: String,
    processes: Vec<(Child, PathBuf)>,
}

impl Instance {
    pub(crate) fn new(address: String) -> Self {
        Self { address, processes: Vec::new() }
    }

    /// Starts a process of the engine. Its output goes to `<folder>/<name>.log`; the kernel kills it when the calling
    /// process ends.
    pub(crate) fn spawn(&mut self, folder: &Path, name: &str, program: &Path, arguments: &[String]) {
        let log = folder.join(name).with_extension("log");
        let arguments: Vec<&Path> = arguments.iter().map(Path::new).collect();
        let child = child_process::start(program, &arguments, &log);
        self.processes.push((child, log));
    }

    /// Waits until the engine is ready. Fails with the end of the logs if a process ends or 120 s pass.
    pub fn wait_ready(mut self, engine: &Engine) -> Result<Self, String> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !(engine.is_ready)(&self) {
            let ended =
                self.processes.iter_mut().any(|(child, _)| child.try_wait().is_ok_and(|end| end.is_some()));
            if ended || Instant::now() > deadline {
                let problem = if ended { "ended" } else { "does not answer" };
                return Err(format!("{} at {} {problem}:\n{}", engine.name, self.address, self.log_tail()));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(self)
    }

    fn log_tail(&self) -> String {
        let logs = self.processes.iter().map(|(_, log)| tail(&read_log(log)));
        logs.collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.processes.iter_mut().for_each(|(child, _)| process::kill_tree(child));
    }
}

/// The content of a log file so far; empty if the file cannot be read.
pub fn read_log(log: &Path) -> String {
    std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// The last 40 lines of a log.
pub fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}
