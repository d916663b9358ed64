//! The project's own commands, started as `cargo xtask <command>`.
//!
//! This file reads the command line and hands over to one module per command. Every command is a
//! series of named steps (`steps`), streams what its children print, and ends with a summary; when
//! steps fail, the last line names them and the exit code is 1.

#![allow(clippy::disallowed_macros, reason = "a command line tool talks to its user by printing")]

mod bench;
mod build;
mod case;
mod deny;
mod docs;
mod engines;
mod lines;
mod lint;
mod node;
mod packages;
mod place;
mod process;
mod profiles;
mod proof;
mod prove;
mod runner;
mod services;
mod steps;
mod tally;
mod test;
mod venv;

use std::process::ExitCode;

use steps::{Steps, Stopped};

const HELP: &str = "\
cargo xtask <command>

  test [--quick] [--no-lint] [--keep-durations] [filter...]
          lint, install what the tests need, start the engines, run every test on its profiles.
          --quick    only what needs no engine and no browser; under 3 minutes once built
          --no-lint  leave the lints out
          --keep-durations
                     write how long tests took to xtask/durations.json, by which they are ordered
          filter     run only tests whose name contains one of these
  prove [part] [--resume]
          the same tests at full size, one at a time; writes docs/proof/<part>.json.
          part       its crate's tests, and those elsewhere whose name contains the part's
          --resume   keep what earlier runs on the same commit have proven
  bench [arguments of bongsu-bench run...]
          build as distributed, then measure; writes docs/bench.json
  lines [checkout]
          count the lines of production code; of this checkout, or another one
  lint    format and clippy; if a dependency changed: licences, duplicates, sources, advisories
  services
          install what the tests need beside Rust, and print what is there and where
  docs [--check]
          write docs/settings.md and .env.example from the program's own settings;
          --check only says whether they are as they would be written
  help    this text

In CI (CI=true) something that cannot be installed is an error. Elsewhere the run goes on without it
and its last lines name what was not run.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", [].as_slice()),
    };
    let run: fn(&mut Steps, &[String]) -> Result<(), Stopped> = match command {
        "test" => test::run,
        "prove" => prove::run,
        "bench" => bench::run,
        "lines" => lines::run,
        "lint" => lint::run,
        "services" => services::run,
        "docs" => docs::run,
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        other => {
            eprint!("{HELP}");
            eprintln!("\nxtask: there is no command `{other}`");
            return ExitCode::FAILURE;
        }
    };
    let mut steps = Steps::new(command);
    // A command that stopped early has the reason among its steps.
    let _ = run(&mut steps, rest);
    steps.close()
}
