//! `cargo xtask lines [checkout]`: counts the lines of production code that are neither blank nor comments.
//!
//! It counts the Rust, Lua and SQL files of `crates` and `apps`, without `#[cfg(test)]` items and without files that
//! are only for tests.

use std::fs;
use std::path::{Path, PathBuf};

use crate::paths;
use crate::steps::{StepError, Steps};

/// Ends of the paths of files and folders that are only for tests.
const TEST_PATHS: [&str; 6] =
    ["crates/testkit", "crates/engines", "live/src/model.rs", "tests", "tests.rs", "parser_tests.rs"];

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), StepError> {
    let root = arguments.first().map_or_else(paths::root, PathBuf::from);
    steps.step("count lines", |_| {
        let mut lines = [("rs", 0), ("lua", 0), ("sql", 0)];
        ["crates", "apps"].iter().try_for_each(|folder| add_lines(&root.join(folder), &mut lines))?;
        lines.iter().for_each(|(extension, lines)| println!("{extension:4}{lines:>7} lines"));
        Ok(())
    })
}

/// Adds the lines of all files below a folder to the count of their extension.
fn add_lines(folder: &Path, lines: &mut [(&str, usize)]) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let has_extension = |extension: &str| path.extension().is_some_and(|actual| actual == extension);
        if TEST_PATHS.iter().any(|end| path.ends_with(end)) {
            continue;
        } else if path.is_dir() {
            add_lines(&path, lines)?;
        } else if let Some((_, lines)) = lines.iter_mut().find(|(extension, _)| has_extension(extension)) {
            *lines += count_lines(&fs::read_to_string(&path).map_err(failed)?);
        }
    }
    Ok(())
}

fn count_lines(text: &str) -> usize {
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
