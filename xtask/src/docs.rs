//! `cargo xtask docs`: writes the documents that the hub generates from its own settings.
//!
//! Settings are documented where they are declared. The generated files are committed, so that they can be read without
//! a build. `--check`, which is also a step of every test run, fails when a file is out of date.

use std::fs;
use std::path::{Path, PathBuf};

use crate::paths;
use crate::process::{capture, cargo, command, run as run_child};
use crate::steps::{StepError, Steps};

/// Each file, with the arguments for which the hub prints its content.
const DOCUMENTS: [(&str, [&str; 2]); 2] =
    [("docs/settings.md", ["config", "--reference"]), (".env.example", ["config", "--env-example"])];

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), StepError> {
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] => steps.step("write documents", |_| write(&program()?)),
        ["--check"] => steps.step("documents are current", |_| check(&program()?)),
        other => Err(steps.refuse(format!("docs takes --check or no argument, got {}", other.join(" ")))),
    }
}

/// Fails when a file differs from what the hub generates now.
pub(crate) fn check(program: &Path) -> Result<(), String> {
    let mut outdated = Vec::new();
    for (file, text) in generate(program)? {
        let present = fs::read_to_string(paths::root().join(file)).unwrap_or_default();
        if present == text {
            println!("{file} is current");
            continue;
        }
        let equal_lines = present.lines().zip(text.lines()).take_while(|(old, new)| old == new).count();
        println!("{file} differs from line {}", equal_lines + 1);
        println!("  file:      {}", present.lines().nth(equal_lines).unwrap_or("(ends here)"));
        println!("  generated: {}", text.lines().nth(equal_lines).unwrap_or("(ends here)"));
        outdated.push(file);
    }
    if outdated.is_empty() {
        Ok(())
    } else {
        Err(format!("out of date: {}; run `cargo xtask docs`", outdated.join(", ")))
    }
}

fn write(program: &Path) -> Result<(), String> {
    for (file, text) in generate(program)? {
        let path = paths::root().join(file);
        let failed = |error| format!("cannot write {file}: {error}");
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        fs::write(path, text).map_err(failed)?;
        println!("wrote {file}");
    }
    Ok(())
}

fn generate(program: &Path) -> Result<Vec<(&'static str, String)>, String> {
    let print = |(file, arguments): (&'static str, [&str; 2])| {
        // Without the environment, because settings in it would change the document.
        Ok((file, capture(command(program).args(arguments).env_clear())?))
    };
    DOCUMENTS.into_iter().map(print).collect()
}

fn program() -> Result<PathBuf, String> {
    run_child(&mut cargo(["build", "-p", "bongsu"]))?;
    Ok(paths::target().join("debug").join("bongsu"))
}
