//! Runs child processes, and streams or captures their output.
//!
//! No child outlives the call that started it: the call waits for the child, and kills it first if its output cannot be
//! printed any more. When a child leaves a process behind that keeps its output open, the call fails instead of
//! hanging.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use crate::paths;

/// A command in the workspace's root, without standard input.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(paths::root()).stdin(Stdio::null());
    // `cargo run` describes the package xtask in the environment. If children inherited these variables, some build
    // scripts would take them for a change, and run again whenever `cargo` and `cargo xtask` alternate.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name == "CARGO" || name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
    command
}

/// A `cargo` command with these arguments.
pub(crate) fn cargo<I, S>(arguments: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut cargo = command("cargo");
    cargo.args(arguments);
    cargo
}

/// Runs a command with its output on this process's output. An exit code other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    announce(command);
    let status = ChildGuard::start(command)?.wait()?;
    check_status(command, status)
}

/// Runs a command and prints its output line by line. When `translate` returns a text for a line, that text is printed
/// instead of the line.
pub(crate) fn run_translated(
    command: &mut Command,
    mut translate: impl FnMut(&str) -> Option<String>,
) -> Result<(), String> {
    announce(command);
    if std::io::stderr().is_terminal() && std::env::var_os("CARGO_TERM_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = ChildGuard::start(command)?;
    let lines = running.lines();
    let mut ended: Option<(ExitStatus, Instant)> = None;
    loop {
        match lines.recv_timeout(Duration::from_millis(500)) {
            Ok(line) => {
                let printed = match translate(String::from_utf8_lossy(line.text()).trim_end()) {
                    Some(replacement) => std::io::stdout().write_all(replacement.as_bytes()),
                    None => line.print(),
                };
                printed.map_err(|error| format!("cannot print: {error}"))?;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        match ended {
            None => ended = running.try_wait()?.map(|status| (status, Instant::now())),
            Some((status, since)) if since.elapsed() > OUTPUT_CLOSE_TIMEOUT => {
                check_status(command, status)?;
                return Err(format!("`{}` left a process behind that still runs", shortened(command)));
            }
            Some(_) => {}
        }
    }
    let status = running.wait()?;
    check_status(command, status)
}

/// Runs a command with its output appended to `services.log` in the target directory, for commands that run in parallel
/// with others.
pub(crate) fn run_logged(command: &mut Command) -> Result<(), String> {
    let log = paths::target().join("services.log");
    let failed = |error| format!("cannot write {}: {error}", log.display());
    let mut output = File::options().create(true).append(true).open(&log).map_err(failed)?;
    writeln!(output, "$ {}", command_line(command)).map_err(failed)?;
    command.stdout(output.try_clone().map_err(failed)?).stderr(output);
    let status = ChildGuard::start(command)?.wait()?;
    check_status(command, status).map_err(|problem| format!("{problem}; its output is in {}", log.display()))
}

/// Runs a command and returns its standard output. Standard error is not captured.
pub(crate) fn capture(command: &mut Command) -> Result<String, String> {
    command.stdout(Stdio::piped());
    let mut running = ChildGuard::start(command)?;
    let mut text = Vec::new();
    if let Some(mut output) = running.0.stdout.take() {
        output.read_to_end(&mut text).map_err(|error| error.to_string())?;
    }
    let status = running.wait()?;
    check_status(command, status)?;
    String::from_utf8(text).map_err(|_| format!("`{}` printed text that is not UTF-8", command_line(command)))
}

/// Runs a command and returns its standard output, or None when it cannot start or fails. Discards standard error.
pub(crate) fn capture_if_ok(command: &mut Command) -> Option<String> {
    capture(command.stderr(Stdio::null())).ok()
}

/// Runs a command and returns both outputs, or None when it cannot start or fails: some programs print their version on
/// standard error.
pub(crate) fn capture_both_if_ok(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some([output.stdout, output.stderr].iter().map(|text| String::from_utf8_lossy(text)).collect())
}

fn announce(command: &Command) {
    println!("$ {}", command_line(command));
}

fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

fn check_status(command: &Command, status: ExitStatus) -> Result<(), String> {
    if status.success() { Ok(()) } else { Err(format!("`{}` ended with {status}", shortened(command))) }
}

/// The first 120 characters of a command line, for the last line of the summary. The whole command is printed above.
fn shortened(command: &Command) -> String {
    let line = command_line(command);
    if line.chars().count() <= 120 { line } else { line.chars().take(117).chain("...".chars()).collect() }
}

/// How long the output of a child may stay open after the child has ended, because processes that it started still run.
const OUTPUT_CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A line of standard output or standard error.
enum Line {
    Out(Vec<u8>),
    Err(Vec<u8>),
}

impl Line {
    fn text(&self) -> &[u8] {
        match self {
            Self::Out(text) | Self::Err(text) => text,
        }
    }

    fn print(&self) -> std::io::Result<()> {
        match self {
            Self::Out(text) => std::io::stdout().write_all(text),
            Self::Err(text) => std::io::stderr().write_all(text),
        }
    }
}

/// A child that is killed and waited for when this is dropped.
struct ChildGuard(Child);

impl ChildGuard {
    fn start(command: &mut Command) -> Result<Self, String> {
        match command.spawn() {
            Ok(child) => Ok(Self(child)),
            Err(error) => Err(format!("cannot start `{}`: {error}", command_line(command))),
        }
    }

    /// The lines of both outputs as they come. The reading threads end with the outputs, or when the receiver is
    /// dropped.
    fn lines(&mut self) -> Receiver<Line> {
        let (sender, lines) = std::sync::mpsc::sync_channel(256);
        if let Some(output) = self.0.stdout.take() {
            let sender = sender.clone();
            std::thread::spawn(move || forward_lines(output, &sender, Line::Out));
        }
        if let Some(output) = self.0.stderr.take() {
            std::thread::spawn(move || forward_lines(output, &sender, Line::Err));
        }
        lines
    }

    fn try_wait(&mut self) -> Result<Option<ExitStatus>, String> {
        self.0.try_wait().map_err(|error| format!("cannot wait for process {}: {error}", self.0.id()))
    }

    fn wait(&mut self) -> Result<ExitStatus, String> {
        self.0.wait().map_err(|error| format!("cannot wait for process {}: {error}", self.0.id()))
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // Neither affects a child that was already waited for. A failure here cannot be reported.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn forward_lines(output: impl Read, lines: &SyncSender<Line>, line: fn(Vec<u8>) -> Line) {
    let mut output = BufReader::new(output);
    loop {
        let mut text = Vec::new();
        match output.read_until(b'\n', &mut text) {
            Ok(1..) if lines.send(line(text)).is_ok() => {}
            _ => return,
        }
    }
}
