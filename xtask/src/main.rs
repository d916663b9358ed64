//! The project's own commands, started as `cargo xtask <command>`.
//!
//! This file reads the command line and calls the module of the command. Every command is a series of named steps
//! (`steps`), prints the output of its child processes as it comes, and ends with a summary. When steps fail, the last
//! line names them and the exit code is 1.

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
mod paths;
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

use steps::{StepError, Steps};

const HELP: &str = "\
cargo xtask <command>

  test [--quick] [--no-lint] [--keep-durations] [filter...]
          lint, install what the tests need, start the engines, run every test on its profiles.
          --quick    run only tests that need no engine and no browser; under 3 minutes after the build
          --no-lint  skip the lints
          --keep-durations
                     write the durations of long tests to xtask/durations.json; later runs start
                     the longest tests first
          filter     run only tests whose name contains one of the filters
  prove [part ...] [--resume]
          run the same tests at full size, one per core, and write docs/proof/<part>.json
          part       run only the tests of this crate, and tests whose name contains the part
          --resume   skip tests that an earlier run on the same commit has proven
  bench [arguments of bongsu-bench run...]
          build with the profile dist, measure, and write docs/bench.json
  lines [checkout]
          count the lines of production code in this checkout or in another one
  lint    check format and clippy; if a dependency changed also licences, duplicates, sources, advisories
  services
          install the programs that the tests need, and print their versions and paths
  docs [--check]
          write docs/settings.md and .env.example from the settings in the code;
          --check only compares them
  help    print this text

In CI (CI=true) a program that cannot be installed is an error. Elsewhere the run continues without it,
and its last lines name the tests that were not run.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", [].as_slice()),
    };
    let run: fn(&mut Steps, &[String]) -> Result<(), StepError> = match command {
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
    // The summary prints the error of the step that stopped the command.
    let _ = run(&mut steps, rest);
    steps.close()
}
