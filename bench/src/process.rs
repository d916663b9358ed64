//! Child processes, and their CPU time, resident memory and descriptor limit.
//! Dropping a guard kills its child; the kernel kills the child if this process is killed first.

use crate::Result;
use rustix::process::{Resource, Signal, getrlimit, set_parent_process_death_signal, setrlimit};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// Linux reports CPU time in `/proc` in hundredths of a second, independent of the kernel's own tick.
const TICKS_PER_SECOND: f64 = 100.0;

pub(crate) struct ChildGuard {
    child: Child,
}

impl ChildGuard {
    /// Starts `program` so that it cannot outlive this process. `prepare` sets its arguments and environment.
    pub(crate) fn spawn(program: &Path, prepare: impl FnOnce(&mut Command)) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("exec-guarded").arg(program);
        prepare(&mut command);
        let child = command.spawn().map_err(|error| format!("starting {}: {error}", program.display()))?;
        Ok(Self { child })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // The child may have ended by itself; `wait` reaps it in both cases. A failure cannot be handled here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Replaces this process by `command`, which the kernel kills when the parent process ends. Returns only on failure.
pub(crate) fn exec_guarded(command: &[String]) -> Result<()> {
    let (program, arguments) = command.split_first().ok_or("no command given")?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Err(Command::new(program).args(arguments).exec().into())
}

/// User and system time of all threads of a process, in seconds.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse_cpu_seconds(&stat).ok_or_else(|| format!("/proc/{pid}/stat has an unknown format").into())
}

/// Counts fields from the last parenthesis, because the program's name in parentheses can contain any character.
fn parse_cpu_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / TICKS_PER_SECOND)
}

/// VmRSS of a process, in KiB.
pub(crate) fn resident_kib(pid: u32) -> Result<u64> {
    status_kib(pid, "VmRSS:")
}

/// VmHWM of a process, its peak resident memory, in KiB.
pub(crate) fn peak_resident_kib(pid: u32) -> Result<u64> {
    status_kib(pid, "VmHWM:")
}

fn status_kib(pid: u32, field: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|value| value.trim().strip_suffix(" kB"))
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| format!("/proc/{pid}/status has no {field}").into())
}

/// Raises the descriptor limit of this process and its children to the maximum, and returns the limit.
pub(crate) fn raise_descriptor_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let before = limit.current;
        limit.current = limit.maximum;
        if setrlimit(Resource::Nofile, limit).is_err() {
            limit.current = before;
        }
    }
    limit.current.unwrap_or(u64::MAX)
}

/// A folder below the build folder, so that it is on a disk. Dropping this removes the folder.
pub(crate) struct ScratchDir {
    path: PathBuf,
}

impl ScratchDir {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let base = bench_dir()?;
        remove_stale_folders(&base);
        let path = base.join(format!("scratch-{}-{name}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // If this fails, a later run removes the folder.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// `target/bench`, next to the folder of this executable.
pub(crate) fn bench_dir() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.parent().and_then(Path::parent).ok_or("the executable is not in a build folder")?;
    Ok(target.join("bench"))
}

/// Removes the folders of runs whose process does not exist any more.
fn remove_stale_folders(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix("scratch-"))
            .and_then(|name| name.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_after_any_program_name() {
        let stat = "42 (a) name) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1 0 99 0 0";
        assert_eq!(parse_cpu_seconds(stat), Some(2.0));
        assert!(cpu_seconds(std::process::id()).is_ok());
        assert!(resident_kib(std::process::id()).unwrap() > 0);
    }
}
