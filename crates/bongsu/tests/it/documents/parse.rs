//! Splits a Markdown document into prose and blocks, and the blocks of commands into commands with their output.
//!
//! In a `console` block a line that begins with `$ ` starts a command, and the lines up to the next command are its
//! output. A `sh` block contains commands without output. `bash -n` decides where a command of several lines ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Languages of blocks without commands. Any other language fails the tests, so that a block such as `bash` is not
/// skipped silently.
const OTHER_LANGUAGES: [&str; 9] = ["", "ini", "js", "nginx", "python", "rust", "sql", "toml", "ts"];

pub(super) enum DocumentPart {
    /// Text between two blocks, on one line.
    Prose(String),
    /// The commands of a `console` or `sh` block.
    Commands(Vec<DocumentedCommand>),
    /// A block of another language.
    Other { language: String, text: String },
}

/// A command and the output that the document shows for it.
pub(super) struct DocumentedCommand {
    pub(super) text: String,
    /// The lines below the command in a `console` block, without blank lines. None in a `sh` block.
    pub(super) expected_output: Option<Vec<String>>,
    /// The line of the document on which the command begins.
    pub(super) line: usize,
}

impl DocumentedCommand {
    /// Whether the command continues in the background.
    pub(super) fn is_background(&self) -> bool {
        self.text.ends_with('&')
    }

    /// Whether the command prints a stream in the foreground until its reader stops it.
    pub(super) fn is_endless(&self) -> bool {
        !self.is_background() && (self.text.starts_with("curl -sN ") || self.text.contains("bongsu tail "))
    }

    /// The arguments of `bongsu serve`; None if the command is another one.
    pub(super) fn serve_arguments(&self) -> Option<&str> {
        let arguments = self.text.strip_prefix("bongsu serve")?;
        Some(arguments.split('#').next().unwrap_or_default())
    }

    /// Whether the command does nothing but assign one of the settings of docs/settings.md.
    pub(super) fn is_setting(&self) -> bool {
        let Some((name, value)) = self.text.split_once('=') else { return false };
        let mut quotes = 0;
        let is_one_word = value.chars().all(|next| {
            quotes += usize::from(next == '\'');
            quotes % 2 == 1 || !next.is_whitespace()
        });
        is_one_word && read("docs/settings.md").contains(&format!("| `{name}` |"))
    }
}

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(super) fn read(document: &str) -> String {
    let path = root().join(document);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The parts of a document, in its order.
pub(super) fn parts(document: &str) -> Vec<DocumentPart> {
    let text = read(document);
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    let (mut parts, mut prose) = (Vec::new(), String::new());
    while let Some((at, line)) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            prose.push_str(line.trim());
            prose.push(' ');
            continue;
        };
        parts.push(DocumentPart::Prose(std::mem::take(&mut prose)));
        let block: Vec<(usize, &str)> = lines.by_ref().take_while(|(_, line)| *line != "```").collect();
        parts.push(match language {
            "console" => DocumentPart::Commands(console(document, &block)),
            "sh" => DocumentPart::Commands(script(document, &block)),
            other => {
                let is_known = OTHER_LANGUAGES.contains(&other);
                assert!(is_known, "{document}:{at}: write commands in console or sh blocks, not {other:?}");
                let has_prompt = block.iter().any(|(_, line)| line.starts_with("$ "));
                assert!(!has_prompt, "{document}:{at}: write commands in a console block");
                let text = block.iter().map(|(_, line)| format!("{line}\n")).collect();
                DocumentPart::Other { language: other.to_owned(), text }
            }
        });
    }
    parts.push(DocumentPart::Prose(prose));
    parts
}

/// All commands of a document, in its order.
pub(super) fn commands(document: &str) -> Vec<DocumentedCommand> {
    let parts = parts(document).into_iter();
    parts.flat_map(|part| if let DocumentPart::Commands(block) = part { block } else { Vec::new() }).collect()
}

fn console(document: &str, block: &[(usize, &str)]) -> Vec<DocumentedCommand> {
    let mut commands: Vec<DocumentedCommand> = Vec::new();
    let mut lines = block.iter();
    while let Some((at, line)) = lines.next() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(first), _) => {
                let text = read_command(document, *at, first, &mut lines);
                commands.push(DocumentedCommand { text, expected_output: Some(Vec::new()), line: *at });
            }
            (None, Some(DocumentedCommand { expected_output: Some(output), .. })) => {
                output.extend((!line.is_empty()).then(|| (*line).to_owned()));
            }
            (None, _) => panic!("{document}:{at}: output without a command above it"),
        }
    }
    commands
}

fn script(document: &str, block: &[(usize, &str)]) -> Vec<DocumentedCommand> {
    let mut commands = Vec::new();
    let mut lines = block.iter();
    while let Some((at, line)) = lines.next() {
        if !line.is_empty() && !line.starts_with('#') {
            let text = read_command(document, *at, line, &mut lines);
            commands.push(DocumentedCommand { text, expected_output: None, line: *at });
        }
    }
    commands
}

/// The command that begins with this line, with as many of the following lines as it needs.
fn read_command<'a>(
    document: &str,
    at: usize,
    first: &str,
    lines: &mut impl Iterator<Item = &'a (usize, &'a str)>,
) -> String {
    let mut text = first.to_owned();
    while !is_complete(&text) {
        let Some((_, line)) = lines.next() else {
            panic!("{document}:{at}: the command has no end:\n{text}")
        };
        text.push('\n');
        text.push_str(line);
    }
    text
}

/// Whether bash accepts the text as a complete command: no open quote, loop or heredoc, and no `\` at the end.
fn is_complete(text: &str) -> bool {
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-n", "-c", text]).stdin(Stdio::null()).stdout(Stdio::null());
    let checked = bash.output().unwrap_or_else(|error| panic!("bash: {error}"));
    // Bash only warns about an open heredoc.
    !text.ends_with('\\') && checked.status.success() && checked.stderr.is_empty()
}

#[test]
fn commands_of_several_lines_are_read_as_one() {
    let block = ["$ a \\", "  'b", "c'", "out", "", "$ d <<E", "e", "E", "$ f &", "{"];
    let block: Vec<(usize, &str)> = block.into_iter().enumerate().collect();
    let read: Vec<_> =
        console("", &block).into_iter().map(|c| (c.line, c.text, c.expected_output.unwrap())).collect();
    let expected = [(0, "a \\\n  'b\nc'", "out"), (5, "d <<E\ne\nE", ""), (8, "f &", "{")];
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(read, expected.map(|(at, command, output)| (at, command.to_owned(), lines(output))));
}
