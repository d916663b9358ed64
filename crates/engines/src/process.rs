//! Reads /proc (parents, programs, memory, open files of processes) and kills processes by id.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Sends a signal to one process. A process that has already ended is not an error.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Waits up to one second until a killed process is gone. For a process that is not a child of this one there is no
/// `wait`, so /proc is polled. A zombie counts as gone: its `exe` link is unreadable.
pub fn wait_gone(pid: u32) {
    for _ in 0..1_000 {
        if std::fs::read_link(file(pid, "exe")).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Kills a child and all of its descendants (SIGKILL) and waits until they are gone. The child is stopped while its
/// descendants are listed, so that it cannot start another one in between.
pub fn kill_tree(child: &mut Child) {
    signal(child.id(), Signal::STOP);
    wait_stopped(child.id());
    let descendants = descendants(child.id());
    descendants.iter().for_each(|pid| signal(*pid, Signal::KILL));
    // An error means that the child has already ended.
    let _ = child.kill();
    let _ = child.wait();
    descendants.into_iter().for_each(wait_gone);
}

/// Waits up to one second until a process has stopped or ended. A signal only takes effect when the process is scheduled:
/// a process that was preempted within `fork` still creates its child.
fn wait_stopped(pid: u32) {
    for _ in 0..1_000 {
        match state(pid) {
            None | Some('T' | 'Z' | 'X') => return,
            Some(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// All descendants of `ancestor`, nearest first.
pub fn descendants(ancestor: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> =
        all().into_iter().filter_map(|pid| parent(pid).map(|parent| (pid, parent))).collect();
    let mut found = vec![ancestor];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

/// All processes whose command line contains `text`.
pub fn with_argument(text: &str) -> Vec<u32> {
    all()
        .into_iter()
        .filter(|pid| {
            std::fs::read(file(*pid, "cmdline"))
                .is_ok_and(|line| line.windows(text.len()).any(|part| part == text.as_bytes()))
        })
        .collect()
}

/// Whether the process runs the program at `path`.
pub fn runs(pid: u32, path: &Path) -> bool {
    std::fs::read_link(file(pid, "exe")).is_ok_and(|exe| exe == path)
}

/// The number in the line `name` of /proc/<pid>/status: in KiB for memory, else a plain number.
pub fn status_number(pid: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(file(pid, "status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The number of files and sockets that the process has open.
pub fn open_files(pid: u32) -> Option<usize> {
    Some(std::fs::read_dir(file(pid, "fd")).ok()?.count())
}

/// The letter of the scheduler's state in /proc/<pid>/status, such as `T` for stopped.
fn state(pid: u32) -> Option<char> {
    let status = std::fs::read_to_string(file(pid, "status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("State:"))?.trim_start().chars().next()
}

fn parent(pid: u32) -> Option<u32> {
    u32::try_from(status_number(pid, "PPid")?).ok()
}

fn file(pid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}

fn all() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn finds_children_of_children_and_ends_them_by_id() {
        let mark = "4711.25";
        let mut child = Command::new("sh")
            .args(["-c", &format!("sleep {mark} & wait")])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        let sleep = which("sleep").unwrap();
        let sleeper = loop {
            if let Some(pid) = descendants(child.id()).into_iter().find(|pid| runs(*pid, &sleep)) {
                break pid;
            }
            assert!(std::time::Instant::now() < deadline, "the grandchild did not start");
        };
        assert!(descendants(std::process::id()).contains(&sleeper));
        assert!(with_argument(mark).contains(&sleeper));
        signal(sleeper, Signal::KILL);
        child.wait().unwrap();
        assert!(status_number(std::process::id(), "VmRSS").unwrap() > 100);
        assert!(open_files(std::process::id()).unwrap() >= 3);
    }

    fn which(program: &str) -> Option<PathBuf> {
        std::env::split_paths(&std::env::var_os("PATH")?)
            .map(|folder| folder.join(program))
            .find(|path| path.is_file())
            .and_then(|path| path.canonicalize().ok())
    }
}
