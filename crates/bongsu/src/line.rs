//! The command line: subcommands, and a flag for every setting.

use std::collections::BTreeMap;

use bongsu_kernel::settings::{Bad, Values};
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::commands::{backup, config, dlq, doctor, explain, migrate, publish, serve, tail, token};
use crate::{PARTS, settings};
use bongsu_part::Failure;

pub(crate) fn run() -> Result<(), Failure> {
    let matches = command().get_matches();
    let Some((name, matches)) = matches.subcommand() else { return Ok(()) };
    let values = values(matches)?;
    match name {
        "serve" => serve::run(&values),
        "token" => token::run(matches, &values),
        "publish" => publish::run(matches, &values),
        "tail" => tail::run(matches, &values),
        "config" => config::run(matches, &values),
        "migrate" => migrate::run(matches, &values),
        "dlq" => dlq::run(matches, &values),
        "doctor" => doctor::run(matches, &values),
        "backup" => backup::run(matches, &values),
        "explain" => explain::run(matches, &values),
        other => Err(Failure::Other(format!("no such command: {other}"))),
    }
}

fn command() -> Command {
    Command::new("bongsu")
        .about("A real-time event hub: keeps what happens, decides who hears of it, delivers it.")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            with_settings(serve::command(), true),
            with_settings(token::command(), false),
            with_settings(publish::command(), false),
            with_settings(tail::command(), false),
            with_settings(config::command(), true),
            with_settings(migrate::command(), false),
            with_settings(dlq::command(), false),
            with_settings(doctor::command(), false),
            with_settings(backup::command(), false),
            with_settings(explain::command(), false),
        ])
}

/// Every command takes every setting; only those that are about settings list them in their help.
fn with_settings(command: Command, listed: bool) -> Command {
    let file = Arg::new("config-file").long("config").value_name("FILE").help("A configuration file (TOML)");
    let flags = PARTS.settings().into_iter().map(|setting| {
        Arg::new(setting.name)
            .long(setting.flag())
            .value_name(setting.name)
            .help(setting.about)
            .help_heading("Settings (each is also an environment variable)")
            .hide(!listed)
            .action(ArgAction::Set)
    });
    command.arg(file).args(flags)
}

fn values(matches: &ArgMatches) -> Result<Values, Bad> {
    let flags: BTreeMap<String, String> = PARTS
        .settings()
        .into_iter()
        .filter_map(|setting| {
            Some((setting.name.to_owned(), matches.get_one::<String>(setting.name)?.clone()))
        })
        .collect();
    settings::gather(flags, matches.get_one::<String>("config-file").map(String::as_str))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_well_formed() {
        super::command().debug_assert();
    }
}
