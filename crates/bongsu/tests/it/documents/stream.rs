//! A stream that a command of a document has opened, and the lines that it has received.
//!
//! Only complete frames count. Keepalives, whose number depends on time, are separated from the other lines.

use super::shell::Job;

/// Lines that a silent stream sends. Their number depends on the duration of the run.
const KEEPALIVE_LINES: [&str; 3] = [":keepalive", ": ping", PING_LINE];
/// The two lines of a `ping` event, joined.
const PING_LINE: &str = "event: ping, data: {}";

/// A stream that runs beside the following commands.
pub(super) struct BackgroundStream {
    pub(super) job: Job,
    /// Number of lines that were compared with the document.
    compared: usize,
}

impl BackgroundStream {
    pub(super) fn new(job: Job) -> Self {
        Self { job, compared: 0 }
    }

    /// The lines of all complete frames so far. If the stream has ended, the rest of its output is included.
    pub(super) fn lines(&self) -> Vec<String> {
        let end = if self.job.has_ended() { "\n\n" } else { "" };
        frames(&format!("{}{end}", self.job.output()))
    }

    /// The lines that were not compared yet, without keepalives.
    pub(super) fn new_lines(&self) -> Vec<String> {
        self.lines().into_iter().filter(|line| !is_keepalive(line)).skip(self.compared).collect()
    }

    /// Records that the next `count` lines of [`Self::new_lines`] were compared.
    pub(super) fn mark_compared(&mut self, count: usize) {
        self.compared += count;
    }
}

pub(super) fn is_keepalive(line: &str) -> bool {
    KEEPALIVE_LINES.contains(&line)
}

/// The lines of the complete frames, without blank lines and without `presence.update` events, which the
/// documents say that they leave out.
fn frames(output: &str) -> Vec<String> {
    let complete = output.rfind("\n\n").map_or("", |end| &output[..end]);
    let frames = complete.split("\n\n").filter(|frame| !frame.starts_with("event: presence.update\n"));
    join_pings(frames.flat_map(str::lines).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// The same lines, with every `ping` event as one line.
pub(super) fn join_pings(lines: Vec<String>) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    for line in lines {
        match joined.last_mut() {
            Some(last) if last == "event: ping" && line == "data: {}" => PING_LINE.clone_into(last),
            _ => joined.push(line),
        }
    }
    joined
}

#[test]
fn incomplete_frames_and_presence_are_left_out() {
    let output = "event: ping\ndata: {}\n\nevent: presence.update\ndata: {}\n\nid: 1\ndata: 2\n\nid: 3\n";
    assert_eq!(frames(output), [PING_LINE, "id: 1", "data: 2"]);
}
