//! Child processes: started, streamed, waited for.
//!
//! No child outlives the call that started it: each is waited for, and one whose output can no longer
//! be passed on is ended by its own handle first. What a child itself left behind is an error, not a
//! hang.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use crate::place;

/// A command in the workspace's root, without standard input: nothing here asks questions.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(place::root()).stdin(Stdio::null());
    // `cargo run` describes this package to us in the environment. Passed on, that would look to some
    // build scripts like a change, and they would run again on every switch between `cargo` and us.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name == "CARGO" || name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
    command
}

/// `cargo` with these arguments.
pub(crate) fn cargo<I, S>(arguments: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut cargo = command("cargo");
    cargo.args(arguments);
    cargo
}

/// Runs to the end, output streamed; anything but success is an error.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    announce(command);
    let status = Running::start(command)?.wait()?;
    success(command, status)
}

/// As `run`; `translate` sees every line and may give what is printed instead of it.
pub(crate) fn run_translated(
    command: &mut Command,
    mut translate: impl FnMut(&str) -> Option<String>,
) -> Result<(), String> {
    announce(command);
    if std::io::stderr().is_terminal() && std::env::var_os("CARGO_TERM_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::start(command)?;
    let lines = running.lines();
    let mut ended: Option<(ExitStatus, Instant)> = None;
    loop {
        match lines.recv_timeout(Duration::from_millis(500)) {
            Ok(line) => {
                let printed = match translate(String::from_utf8_lossy(line.text()).trim_end()) {
                    Some(instead) => std::io::stdout().write_all(instead.as_bytes()),
                    None => line.print(),
                };
                printed.map_err(|error| format!("cannot print: {error}"))?;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        match ended {
            None => ended = running.has_ended()?.map(|status| (status, Instant::now())),
            Some((status, since)) if since.elapsed() > PATIENCE => {
                success(command, status)?;
                return Err(format!("`{}` left a process behind that still runs", short(command)));
            }
            Some(_) => {}
        }
    }
    let status = running.wait()?;
    success(command, status)
}

/// Runs to the end with its output in a file below the target directory, for what runs beside something else.
pub(crate) fn run_logged(command: &mut Command) -> Result<(), String> {
    let log = place::target().join("services.log");
    let failed = |error| format!("cannot write {}: {error}", log.display());
    let mut output = File::options().create(true).append(true).open(&log).map_err(failed)?;
    writeln!(output, "$ {}", shown(command)).map_err(failed)?;
    command.stdout(output.try_clone().map_err(failed)?).stderr(output);
    let status = Running::start(command)?.wait()?;
    success(command, status).map_err(|problem| format!("{problem}; its output is in {}", log.display()))
}

/// Runs quietly and returns what it printed on standard output.
pub(crate) fn capture(command: &mut Command) -> Result<String, String> {
    command.stdout(Stdio::piped());
    let mut running = Running::start(command)?;
    let mut text = Vec::new();
    if let Some(mut output) = running.0.stdout.take() {
        output.read_to_end(&mut text).map_err(|error| error.to_string())?;
    }
    let status = running.wait()?;
    success(command, status)?;
    String::from_utf8(text).map_err(|_| format!("`{}` printed something that is not text", shown(command)))
}

/// As `capture`, with what it says on standard error thrown away: for questions that may be answered no.
pub(crate) fn ask(command: &mut Command) -> Option<String> {
    capture(command.stderr(Stdio::null())).ok()
}

/// All that it says when it succeeds, on both outputs: some programs tell their version on standard error.
pub(crate) fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some([output.stdout, output.stderr].iter().map(|text| String::from_utf8_lossy(text)).collect())
}

fn announce(command: &Command) {
    println!("$ {}", shown(command));
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

fn success(command: &Command, status: ExitStatus) -> Result<(), String> {
    if status.success() { Ok(()) } else { Err(format!("`{}` ended with {status}", short(command))) }
}

/// For the last line, which should stay one: the whole command stands above it.
fn short(command: &Command) -> String {
    let shown = shown(command);
    if shown.chars().count() <= 120 { shown } else { shown.chars().take(117).chain("...".chars()).collect() }
}

/// How long the output of a child may stay open after its end, for whatever it started to end as well.
const PATIENCE: Duration = Duration::from_secs(5);

/// A line of output and where it goes on to.
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

/// A child that is ended and waited for should its owner give up early.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Result<Self, String> {
        match command.spawn() {
            Ok(child) => Ok(Self(child)),
            Err(error) => Err(format!("cannot start `{}`: {error}", shown(command))),
        }
    }

    /// The lines of both outputs as they come. The threads end with the outputs, or when nobody listens.
    fn lines(&mut self) -> Receiver<Line> {
        let (sender, lines) = std::sync::mpsc::sync_channel(256);
        if let Some(output) = self.0.stdout.take() {
            let sender = sender.clone();
            std::thread::spawn(move || forward(output, &sender, Line::Out));
        }
        if let Some(output) = self.0.stderr.take() {
            std::thread::spawn(move || forward(output, &sender, Line::Err));
        }
        lines
    }

    fn has_ended(&mut self) -> Result<Option<ExitStatus>, String> {
        self.0.try_wait().map_err(|error| format!("cannot wait for process {}: {error}", self.0.id()))
    }

    fn wait(&mut self) -> Result<ExitStatus, String> {
        self.0.wait().map_err(|error| format!("cannot wait for process {}: {error}", self.0.id()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both do nothing to a child that was waited for; a failure here has nobody left to tell.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn forward(output: impl Read, lines: &SyncSender<Line>, line: fn(Vec<u8>) -> Line) {
    let mut output = BufReader::new(output);
    loop {
        let mut text = Vec::new();
        match output.read_until(b'\n', &mut text) {
            Ok(1..) if lines.send(line(text)).is_ok() => {}
            _ => return,
        }
    }
}
