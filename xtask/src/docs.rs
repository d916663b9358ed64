//! `cargo xtask docs`: documents that the program writes about itself.
//!
//! Settings are documented where they are declared. These files are copies of that, kept in the tree to
//! be read without a build; `--check`, which every test run does, too, fails when one has fallen behind.

use std::fs;
use std::path::{Path, PathBuf};

use crate::place;
use crate::process::{capture, cargo, command, run as run_child};
use crate::steps::{Steps, Stopped};

/// Each file with the arguments that print it.
const DOCUMENTS: [(&str, [&str; 2]); 2] =
    [("docs/settings.md", ["config", "--reference"]), (".env.example", ["config", "--env-example"])];

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), Stopped> {
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] => steps.step("write documents", |_| write(&program()?)),
        ["--check"] => steps.step("documents are current", |_| check(&program()?)),
        other => Err(steps.refuse(format!("docs takes --check or nothing, got {}", other.join(" ")))),
    }
}

/// Fails when a document is not what the program would write today.
pub(crate) fn check(program: &Path) -> Result<(), String> {
    let mut stale = Vec::new();
    for (file, text) in generate(program)? {
        let present = fs::read_to_string(place::root().join(file)).unwrap_or_default();
        if present == text {
            println!("{file} is current");
            continue;
        }
        let same = present.lines().zip(text.lines()).take_while(|(old, new)| old == new).count();
        println!("{file} differs from line {} on", same + 1);
        println!("  is:        {}", present.lines().nth(same).unwrap_or("(ends here)"));
        println!("  should be: {}", text.lines().nth(same).unwrap_or("(ends here)"));
        stale.push(file);
    }
    if stale.is_empty() {
        Ok(())
    } else {
        Err(format!("out of date: {}; run `cargo xtask docs`", stale.join(", ")))
    }
}

fn write(program: &Path) -> Result<(), String> {
    for (file, text) in generate(program)? {
        let path = place::root().join(file);
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
        // Without the caller's environment: a setting in force here is no part of the document.
        Ok((file, capture(command(program).args(arguments).env_clear())?))
    };
    DOCUMENTS.into_iter().map(print).collect()
}

fn program() -> Result<PathBuf, String> {
    run_child(&mut cargo(["build", "-p", "bongsu"]))?;
    Ok(place::target().join("debug").join("bongsu"))
}
