//! Runs the commands of a document in one shell, in the order of the document, with a hub that listens on a port of its own.
//!
//! `steps.rs` lists the actions between the commands.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Hub, tier, wait};

use super::compare::{Bindings, Comparison, compare};
use super::is_run;
use super::parse::{DocumentPart, DocumentedCommand, commands, parts};
use super::shell::Shell;
use super::steps::{STEPS, Trigger};
use super::stream::{BackgroundStream, is_keepalive, join_pings};
use crate::BONGSU;

pub(super) const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// The Redis address in docs/operating.md.
const REDIS_URL: &str = "redis://127.0.0.1:6379";
/// `bongsu migrate --print` only needs the kind of the database and does not connect.
const UNREACHABLE_DATABASE_URL: &str = "postgres://app@127.0.0.1:9/app";

pub(super) struct DocumentRun {
    pub(super) document: &'static str,
    pub(super) hub: Hub,
    /// Streams that a step has opened and that stay open.
    pub(super) streams: Vec<Stream>,
    shell: Shell,
    /// Streams of commands that end in `&`.
    background_streams: Vec<BackgroundStream>,
    bindings: Bindings,
    /// Indexes in [`STEPS`] of the steps that were done.
    done: BTreeSet<usize>,
    /// The assignments of settings in this block so far.
    settings: Vec<String>,
    redis: Option<Redis>,
    // Last field, so that the processes end before their folder is removed.
    folder: tempfile::TempDir,
}

impl DocumentRun {
    /// Runs all commands of a document and compares their output.
    pub(super) async fn run(document: &'static str) {
        let parts = parts(document);
        let mut run = Self::start(document, &parts).await;
        for part in parts {
            match part {
                DocumentPart::Prose(text) => {
                    run.do_steps(|trigger| matches!(trigger, Trigger::Text(words) if text.contains(words)))
                        .await;
                }
                DocumentPart::Commands(block) => run.run_block(&block).await,
                DocumentPart::Other { .. } => {}
            }
        }
        run.assert_no_new_lines("the end of the document");
        let steps = STEPS.iter().enumerate().filter(|(_, step)| step.document == document);
        for (at, step) in steps {
            assert!(run.done.contains(&at), "{document} does not contain {:?}", step.trigger);
        }
    }

    /// Starts the hub with the arguments after `bongsu serve` in the document, and the shell.
    async fn start(document: &'static str, parts: &[DocumentPart]) -> Self {
        let folder = tempfile::Builder::new().prefix("bongsu-document-").tempdir().unwrap();
        for name in ["backups", "etc"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        for part in parts {
            if let DocumentPart::Other { language, text } = part
                && language == "toml"
            {
                std::fs::write(folder.path().join("etc/bongsu.toml"), text).unwrap();
            }
        }
        let mut hub = Hub::builder(BONGSU).data_dir(folder.path().join("bongsu-data"));
        for name in ["SSE_KEEPALIVE_SECS", "MEMBER_STREAM_PING_SECS", "OUTBOX_PING_SECS"] {
            hub = hub.env(name, 1);
        }
        for command in commands(document) {
            if let Some(arguments) = command.serve_arguments() {
                for argument in arguments.split_whitespace() {
                    hub = hub.arg(in_folder(argument, folder.path()));
                }
            }
            // The dead letters of docs/outbox.md are rows that could not be relayed.
            if let Some(relay) = command.text.strip_prefix("OUTBOX_RELAY=") {
                hub = hub.env("OUTBOX_RELAY", relay.trim_matches('\''));
            }
        }
        let hub = hub.start().await;
        let shell = Shell::open(folder.path(), &[("SERVER_PORT", hub.port().to_string())]);
        Self {
            document,
            hub,
            streams: Vec::new(),
            shell,
            background_streams: Vec::new(),
            bindings: Bindings::default(),
            done: BTreeSet::new(),
            settings: Vec::new(),
            redis: None,
            folder,
        }
    }

    /// Does the triggered steps of this document, each once.
    async fn do_steps(&mut self, is_triggered: impl Fn(&Trigger) -> bool) {
        for (at, step) in STEPS.iter().enumerate() {
            if step.document == self.document && is_triggered(&step.trigger) && self.done.insert(at) {
                step.action.run(self).await;
            }
        }
    }

    async fn run_block(&mut self, block: &[DocumentedCommand]) {
        self.settings.clear();
        for command in block.iter().filter(|command| is_run(&command.text)) {
            let text = &command.text;
            if command.serve_arguments().is_some() {
                // `start` has started the hub with these arguments.
                continue;
            }
            if text.contains(REDIS_URL) && !self.has_redis().await {
                continue;
            }
            self.do_steps(
                |trigger| matches!(trigger, Trigger::BeforeCommand(start) if text.starts_with(start)),
            )
            .await;
            match &command.expected_output {
                Some(expected) => self.run_and_compare(command, expected).await,
                None => self.run_without_output(command).await,
            }
        }
    }

    /// Runs a command of a `sh` block. It must succeed; an endless command must print something.
    async fn run_without_output(&mut self, command: &DocumentedCommand) {
        let place = self.place(command);
        // The document does not show further output of earlier streams.
        self.assert_no_new_lines(&place);
        for stream in std::mem::take(&mut self.background_streams) {
            stream.job.stop().await;
        }
        let mut text = self.localize_command(&command.text, &place);
        if command.is_setting() {
            self.settings.push(text);
            let assignments = self.settings.join("\n");
            text = format!(
                "(set -a\nDATABASE_URL={UNREACHABLE_DATABASE_URL}\n{assignments}\nbongsu config && bongsu migrate --print)"
            );
        }
        if command.is_endless() {
            let job = self.shell.start(&text).await;
            wait::until(WAIT_TIMEOUT, async || job.has_ended() || !job.output().is_empty()).await;
            assert!(!job.has_ended(), "{place} has ended: {}", job.output());
            job.stop().await;
            return;
        }
        let result = self.shell.run(&text).await;
        assert_eq!(result.status, 0, "{place}: {text}\n{}", result.output);
    }

    /// Runs a command, and compares its output and the new lines of all open streams with the document.
    async fn run_and_compare(&mut self, command: &DocumentedCommand, expected: &[String]) {
        let place = self.place(command);
        let text = self.localize_command(&command.text, &place);
        let expected = join_pings(expected.iter().map(|line| self.localize(line)).collect());
        let mut foreground = Vec::new();
        if command.is_background() || command.is_endless() {
            self.background_streams.push(BackgroundStream::new(self.shell.start(&text).await));
            self.do_steps_during_stream(&text).await;
        } else {
            let result = self.shell.run(&text).await;
            let fails_as_expected =
                expected.iter().any(|line| line.starts_with(&format!("curl: ({})", result.status)));
            assert!(
                result.status == 0 || fails_as_expected,
                "{place}: {text}\nexit code {}: {}",
                result.status,
                result.output
            );
            foreground = result.output.lines().map(str::to_owned).collect();
            if text.starts_with("kill -9 ") {
                wait::until(WAIT_TIMEOUT, async || self.hub.has_exited()).await;
            }
        }
        self.compare(&place, &text, &expected, foreground).await;
        if command.is_endless()
            && let Some(stream) = self.background_streams.pop()
        {
            stream.job.stop().await;
        }
    }

    /// Does the steps that the latest stream triggers, once it has sent its first lines.
    async fn do_steps_during_stream(&mut self, text: &str) {
        let Some(stream) = self.background_streams.last() else { return };
        wait::until(WAIT_TIMEOUT, async || !stream.lines().is_empty() || stream.job.has_ended()).await;
        self.do_steps(|trigger| matches!(trigger, Trigger::DuringStream(start) if text.starts_with(start)))
            .await;
    }

    /// Waits until all expected lines were received.
    async fn compare(&mut self, place: &str, command: &str, expected: &[String], foreground: Vec<String>) {
        let (keepalives, lines): (Vec<_>, Vec<_>) =
            expected.iter().cloned().partition(|line| is_keepalive(line));
        let sources = || {
            let streams = self.background_streams.iter().map(BackgroundStream::new_lines);
            std::iter::once(foreground.clone()).chain(streams).collect::<Vec<_>>()
        };
        let is_received = |line| self.background_streams.iter().any(|stream| stream.lines().contains(line));
        let result = || {
            let sources = sources();
            match compare(&lines, &sources, !self.background_streams.is_empty(), &self.bindings) {
                Comparison::Equal(bindings) => {
                    keepalives.iter().all(is_received).then_some(Some((bindings, sources)))
                }
                Comparison::Incomplete => None,
                Comparison::Different => Some(None),
            }
        };
        let result = wait::value_within(WAIT_TIMEOUT, || std::future::ready(result())).await;
        let Some((bindings, sources)) = result.flatten() else {
            let received: Vec<_> = sources().iter().map(|lines| lines.join("\n")).collect();
            panic!(
                "{place}: the output differs from the document.\n$ {command}\n--- expected ---\n{}\n--- received: \
                 foreground, then each stream ---\n{}\n",
                expected.join("\n"),
                received.join("\n--\n")
            )
        };
        self.bindings = bindings;
        for (stream, lines) in self.background_streams.iter_mut().zip(&sources[1..]) {
            stream.mark_compared(lines.len());
        }
    }

    /// Fails if a stream has received lines that the document does not show.
    fn assert_no_new_lines(&self, place: &str) {
        for stream in &self.background_streams {
            let lines = stream.new_lines();
            assert!(lines.is_empty(), "{place}: a stream has received lines that are not shown: {lines:#?}");
        }
    }

    fn place(&self, command: &DocumentedCommand) -> String {
        format!("{}:{}", self.document, command.line)
    }

    /// Replaces ids, the port and folders of the document by those of this run.
    fn localize_command(&self, text: &str, place: &str) -> String {
        let text = self.bindings.apply(text);
        self.localize(&text.unwrap_or_else(|id| panic!("{place}: no earlier output contains the id {id}")))
    }

    /// Replaces the port, folders and Redis of the document by those of this run.
    fn localize(&self, text: &str) -> String {
        let text = match &self.redis {
            Some(redis) => text.replace(REDIS_URL, &redis.url()),
            None => text.to_owned(),
        };
        let port = self.hub.port();
        let text = text.replace("127.0.0.1:8083", &self.hub.addr().to_string());
        in_folder(&text.replace("port 8083", &format!("port {port}")), self.folder.path())
    }

    /// Starts a Redis without a durable log. False if this run has no Redis.
    async fn has_redis(&mut self) -> bool {
        if !tier::needs_engine("redis") {
            return false;
        }
        if self.redis.is_none() {
            self.redis = Some(Redis::builder().setting("appendonly", "no").start().await);
        }
        true
    }
}

/// Moves the absolute paths of the documents into the folder of the run.
fn in_folder(text: &str, folder: &Path) -> String {
    let inside = |name: &str| format!("{}{name}", folder.display());
    text.replace("/backups/", &inside("/backups/")).replace("/etc/bongsu.toml", &inside("/etc/bongsu.toml"))
}
