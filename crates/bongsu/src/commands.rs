//! The subcommands, one file each, and their common functions for arguments and output.

pub(crate) mod backup;
pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod dlq;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod migrate;
pub(crate) mod publish;
pub(crate) mod serve;
pub(crate) mod tail;
pub(crate) mod token;

use std::io::Write;

use bongsu_part::Failure;
use clap::{Arg, ArgAction, ArgMatches};

/// An option `--name` with a value.
pub(crate) fn option(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).help(help)
}

/// An option `--name` without a value.
pub(crate) fn flag(name: &'static str, help: &'static str) -> Arg {
    option(name, help).action(ArgAction::SetTrue)
}

/// The value of an option or an argument.
pub(crate) fn given<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a str> {
    matches.get_one::<String>(name).map(String::as_str)
}

/// Writes a line to standard output. A closed pipe (`| head`) is no error.
pub(crate) fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Writes a failure to standard error, in one line.
pub(crate) fn print_failure(failure: &Failure) {
    let _ = writeln!(std::io::stderr(), "bongsu: {failure}");
}
