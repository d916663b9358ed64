//! `cargo xtask lines [checkout]`: lines of production code that are neither blank nor comments.
//!
//! Counted are Rust, Lua and SQL of crates and applications, without `#[cfg(test)]` items and what is only for tests.

use std::fs;
use std::path::{Path, PathBuf};

use crate::place;
use crate::steps::{Steps, Stopped};

/// Ends of paths of what is only for tests.
const ONLY_FOR_TESTS: [&str; 6] =
    ["crates/testkit", "crates/engines", "live/src/model.rs", "tests", "tests.rs", "parser_tests.rs"];

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), Stopped> {
    let root = arguments.first().map_or_else(place::root, PathBuf::from);
    steps.step("count lines", |_| {
        let mut lines = [("rs", 0), ("lua", 0), ("sql", 0)];
        ["crates", "apps"].iter().try_for_each(|folder| add(&root.join(folder), &mut lines))?;
        lines.iter().for_each(|(extension, lines)| println!("{extension:4}{lines:>7} lines"));
        Ok(())
    })
}

/// Adds the lines of all files below a folder, by their extensions.
fn add(folder: &Path, lines: &mut [(&str, usize)]) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_of = |extension: &str| path.extension().is_some_and(|is| is == extension);
        if ONLY_FOR_TESTS.iter().any(|end| path.ends_with(end)) {
            continue;
        } else if path.is_dir() {
            add(&path, lines)?;
        } else if let Some((_, lines)) = lines.iter_mut().find(|(extension, _)| is_of(extension)) {
            *lines += count(&fs::read_to_string(&path).map_err(failed)?);
        }
    }
    Ok(())
}

fn count(text: &str) -> usize {
    let (mut lines, mut is_test, mut test_end) = (0, false, None);
    for line in text.lines() {
        let code = line.trim_start();
        if test_end.is_some() {
            test_end = test_end.filter(|end| line != end);
        } else if code.starts_with("#[cfg(test)") || code.starts_with("#[cfg(all(test,") {
            is_test = true;
        } else if is_test {
            is_test = code.starts_with("#[");
            test_end = code.ends_with('{').then(|| format!("{}}}", &line[..line.len() - code.len()]));
        } else {
            lines +=
                usize::from(!["//", "--"].iter().any(|start| code.starts_with(start)) && !code.is_empty());
        }
    }
    lines
}
