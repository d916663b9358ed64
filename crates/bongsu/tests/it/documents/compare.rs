//! Compares the output that a document shows with the output of a run, line by line.
//!
//! The rules below recognise the parts of a line that differ from run to run. The ids, times and delays of a run differ
//! from those in the document, but a value that the document shows twice must also appear twice in the run.

use std::collections::BTreeMap;

/// A kind of text that differs from run to run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum VariableKind {
    /// The id of a room event. Two different ids in the document are two different ids in the run.
    StreamId,
    /// A time with milliseconds. Two different times in the document may be equal in the run.
    Time,
    /// The delay before a reconnection.
    Delay,
    /// Any other number. Its values are not compared.
    Number,
}

/// Numbers that differ from run to run, by the text before and after them.
const NUMBERS: [(&str, &str, VariableKind); 7] = [
    ("retry: ", "", VariableKind::Delay),
    ("\"retryMs\":", "", VariableKind::Delay),
    ("\"uptimeSecs\":", "", VariableKind::Number),
    ("(pid ", ")", VariableKind::Number),
    ("(", " bytes)", VariableKind::Number),
    ("ok    ", " open files are allowed", VariableKind::Number),
    ("ok    ", " MiB are free in ", VariableKind::Number),
];
const TIME_PATTERN: &[u8] = b"0000-00-00T00:00:00.000Z";
const STREAM_ID_PATTERN: &[u8] = b"0000000000000-";

/// The value in this run of each id, time and delay of the document.
#[derive(Clone, Default)]
pub(super) struct Bindings(BTreeMap<(VariableKind, String), String>);

pub(super) enum Comparison {
    /// All lines are equal. The bindings include those of the compared lines.
    Equal(Bindings),
    /// All received lines are expected, but others are still missing.
    Incomplete,
    Different,
}

impl Bindings {
    /// Replaces the ids in a command of the document by those of this run. The error is an id that no earlier output
    /// contains.
    pub(super) fn apply(&self, command: &str) -> Result<String, String> {
        let mut text = command.to_owned();
        for (kind, expected) in variables(command).1 {
            if kind == VariableKind::StreamId {
                let id = self.0.get(&(kind, expected.clone())).ok_or_else(|| expected.clone())?;
                text = text.replace(&expected, id);
            }
        }
        Ok(text)
    }

    /// Records that `expected` in the document is `actual` in the run. False if it contradicts an earlier record.
    fn bind(&mut self, kind: VariableKind, expected: &str, actual: &str) -> bool {
        if kind == VariableKind::Number {
            return true;
        }
        let is_taken =
            self.0.iter().any(|((of, other), value)| *of == kind && other != expected && value == actual);
        let bound = self.0.entry((kind, expected.to_owned())).or_insert_with(|| actual.to_owned());
        bound == actual && !(is_taken && kind == VariableKind::StreamId)
    }

    fn bind_line(&mut self, expected: &str, actual: &str) -> bool {
        let ((shape, expected), (actual_shape, actual)) = (variables(expected), variables(actual));
        let mut pairs = expected.iter().zip(&actual);
        shape == actual_shape
            && pairs.all(|((kind, expected), (_, actual))| self.bind(*kind, expected, actual))
    }
}

/// Compares the expected lines with those of the sources: the command in the foreground and each open stream. The lines of
/// one source must be in the expected order; lines of different sources may be interleaved in any way. With `is_growing` a
/// source may still get more lines.
pub(super) fn compare(
    expected: &[String],
    sources: &[Vec<String>],
    is_growing: bool,
    known: &Bindings,
) -> Comparison {
    let rests: Vec<&[String]> = sources.iter().map(Vec::as_slice).collect();
    assign(expected, &rests, is_growing, known)
}

/// Finds a source for the first expected line, then for the following lines.
fn assign(expected: &[String], rests: &[&[String]], is_growing: bool, known: &Bindings) -> Comparison {
    let received_count: usize = rests.iter().map(|rest| rest.len()).sum();
    if received_count > expected.len() {
        return Comparison::Different;
    }
    let Some((first, others)) = expected.split_first() else { return Comparison::Equal(known.clone()) };
    let mut best = Comparison::Different;
    for (at, rest) in rests.iter().enumerate() {
        let mut bindings = known.clone();
        if !rest.first().is_some_and(|line| bindings.bind_line(first, line)) {
            continue;
        }
        let mut rests = rests.to_vec();
        rests[at] = &rest[1..];
        match assign(others, &rests, is_growing, &bindings) {
            Comparison::Equal(bindings) => return Comparison::Equal(bindings),
            Comparison::Incomplete => best = Comparison::Incomplete,
            Comparison::Different => {}
        }
    }
    if is_growing && !matches!(assign(others, rests, is_growing, known), Comparison::Different) {
        return Comparison::Incomplete;
    }
    best
}

/// The line with placeholders for its variable parts, and the values of these parts.
fn variables(line: &str) -> (String, Vec<(VariableKind, String)>) {
    let line = without_machine_dependent_text(line);
    let (mut shape, mut found, mut rest) = (String::new(), Vec::new(), line);
    while let Some(next) = rest.chars().next() {
        let is_inside = shape.ends_with(|before: char| before.is_ascii_alphanumeric());
        match variable(&shape, rest).filter(|_| !is_inside) {
            Some((kind, length)) => {
                found.push((kind, rest[..length].to_owned()));
                shape.push_str(&format!("<{kind:?}>"));
                rest = &rest[length..];
            }
            None => {
                shape.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
    }
    (shape, found)
}

/// The kind and length of the variable part at the beginning of `rest`. `before` is the line up to there.
fn variable(before: &str, rest: &str) -> Option<(VariableKind, usize)> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let is_like = |pattern: &[u8]| {
        rest.len() >= pattern.len()
            && rest.bytes().zip(pattern).all(|(byte, as_in)| match as_in {
                b'0' => byte.is_ascii_digit(),
                other => byte == *other,
            })
    };
    if is_like(TIME_PATTERN) {
        return Some((VariableKind::Time, TIME_PATTERN.len()));
    }
    if is_like(STREAM_ID_PATTERN) {
        return Some((
            VariableKind::StreamId,
            STREAM_ID_PATTERN.len() + digits(&rest[STREAM_ID_PATTERN.len()..]),
        ));
    }
    let length = digits(rest);
    let is_here = |(start, end, _): &&(&str, &str, VariableKind)| {
        length > 0 && before.ends_with(start) && rest[length..].starts_with(end)
    };
    NUMBERS.iter().find(is_here).map(|(_, _, kind)| (*kind, length))
}

/// Removes text that depends on the speed of the disk or on the version of curl.
fn without_machine_dependent_text(line: &str) -> &str {
    // `doctor` prints a slow sync as a note, with more words.
    let sync = "a synced write takes ";
    if let Some(start) = line.find(sync) {
        return &line[start..start + sync.len()];
    }
    line.find(" after ").filter(|_| line.starts_with("curl: (")).map_or(line, |end| &line[..end])
}

#[test]
fn lines_that_differ_only_in_variable_parts_are_equal() {
    let is_equal = |expected: &[&str], sources: &[&[&str]], is_growing| {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let sources: Vec<_> = sources.iter().map(|source| lines(source)).collect();
        match compare(&lines(expected), &sources, is_growing, &Bindings::default()) {
            Comparison::Equal(_) => Some(true),
            Comparison::Incomplete => None,
            Comparison::Different => Some(false),
        }
    };
    let (a, b) = ("id: 1794740706402-0", "id: 1794740706403-0");
    let (x, y) = ("id: 1804740706402-0", "id: 1804740706402-1");
    assert_eq!(is_equal(&[a, b, a], &[&[x, y, x]], false), Some(true));
    assert_eq!(is_equal(&[a, b, a], &[&[x, y, y]], false), Some(false));
    assert_eq!(is_equal(&[a, b], &[&[x, x]], false), Some(false));
    assert_eq!(is_equal(&["one", "two", "three"], &[&["two"], &["one", "three"]], false), Some(true));
    assert_eq!(is_equal(&["one", "two", "three"], &[&["two"], &["three", "one"]], false), Some(false));
    assert_eq!(is_equal(&["one", "two"], &[&["two"], &[]], true), None);
    assert_eq!(is_equal(&["one", "two"], &[&["two"], &[]], false), Some(false));
    assert_eq!(is_equal(&["one"], &[&["one"], &["two"]], true), Some(false));
    assert_eq!(
        is_equal(&["retry: 10", "x \"retryMs\":10}"], &[&["retry: 7", "x \"retryMs\":7}"]], false),
        Some(true)
    );
    assert_eq!(is_equal(&["\"count\":1"], &[&["\"count\":2"]], false), Some(false));
    let refused = "curl: (7) Failed to connect to localhost port 1 after ";
    let [expected, actual] = ["0 ms: a", "12 ms: b"].map(|rest| format!("{refused}{rest}"));
    assert_eq!(is_equal(&[&expected], &[&[&actual]], false), Some(true));
    assert_eq!(
        is_equal(&["at 2026-11-15T20:39:29.678Z"], &[&["at 2027-01-01T00:00:00.000Z"]], false),
        Some(true)
    );
}
