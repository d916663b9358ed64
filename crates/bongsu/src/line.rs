//! The command line: subcommands, and a flag for every setting.

use std::collections::BTreeMap;

use bongsu_kernel::settings::{Bad, Values};
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::commands::{backup, config, dlq, doctor, explain, migrate, publish, serve, tail, token};
use crate::{PARTS, settings};
use bongsu_part::Failure;

/// A subcommand, what it does, and whether its help lists the settings.
type Subcommand = (fn() -> Command, fn(&ArgMatches, &Values) -> Result<(), Failure>, bool);

const SUBCOMMANDS: [Subcommand; 10] = [
    (serve::command, serve::run, true),
    (token::command, token::run, false),
    (publish::command, publish::run, false),
    (tail::command, tail::run, false),
    (config::command, config::run, true),
    (migrate::command, migrate::run, false),
    (dlq::command, dlq::run, false),
    (doctor::command, doctor::run, false),
    (backup::command, backup::run, false),
    (explain::command, explain::run, false),
];

pub(crate) fn run() -> Result<(), Failure> {
    let matches = command().get_matches();
    let Some((name, matches)) = matches.subcommand() else { return Ok(()) };
    let values = values(matches)?;
    let known = SUBCOMMANDS.iter().find(|(command, ..)| command().get_name() == name);
    let (_, run, _) = known.ok_or_else(|| Failure::Other(format!("no such command: {name}")))?;
    run(matches, &values)
}

fn command() -> Command {
    Command::new("bongsu")
        .about("A real-time event hub: keeps what happens, decides who hears of it, delivers it.")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(SUBCOMMANDS.map(|(command, _, lists)| with_settings(command(), lists)))
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
