//! A running engine: its processes, where it is, and its end.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use crate::{Engine, mortal, process};

const START_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const LOG_TAIL_LINES: usize = 40;

/// The processes of one engine. Dropped, they are killed with everything below them.
pub struct Instance {
    /// What clients are given: a URL, or `host:port` where the URL also needs a database.
    pub address: String,
    processes: Vec<(Child, PathBuf)>,
}

impl Instance {
    pub(crate) fn new(address: String) -> Self {
        Self { address, processes: Vec::new() }
    }

    /// Adds a process of the engine; it writes to `<folder>/<name>.log` and dies with this one.
    pub(crate) fn spawn(&mut self, folder: &Path, name: &str, program: &Path, arguments: &[String]) {
        let log = folder.join(name).with_extension("log");
        let arguments: Vec<&Path> = arguments.iter().map(Path::new).collect();
        self.processes.push((mortal::start(program, &arguments, &log), log));
    }

    /// Waits until it is ready; an error with the end of its logs when it ends or takes too long.
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

/// All that a process wrote to its log file so far.
pub fn read_log(log: &Path) -> String {
    std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// The last lines of a log.
pub fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}
