//! The command line: subcommands, and a flag for every setting.

use std::collections::BTreeMap;

use bongsu_kernel::settings::{Setting, SettingError, Values};
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::commands::{backup, config, dlq, doctor, explain, migrate, publish, serve, tail, token};
use crate::{PARTS, settings};
use bongsu_part::Failure;

/// Ends the help of commands that list the settings.
const SETTINGS_HELP: &str = "Each setting is also an environment variable, named in <angle brackets>, which may be set in a \
                             file .env, and a key of the configuration file. `bongsu config` shows the values in force.";

/// Ends the general help.
const GENERAL_HELP: &str = "Start a hub with `bongsu serve` and open http://127.0.0.1:8083/docs. `bongsu <COMMAND> --help` \
                            explains a command; `bongsu serve --help` lists every setting.";

/// A subcommand: its declaration, the function that runs it, and whether its help lists the settings.
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
        .about("A real-time event hub: stores events, decides who receives them, and delivers them live or later.")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help(GENERAL_HELP)
        .subcommands(SUBCOMMANDS.map(|(command, _, lists_settings)| with_settings(command(), lists_settings)))
}

/// Adds the settings as flags. Every command takes all of them; only commands about settings list them in their help.
fn with_settings(command: Command, lists_settings: bool) -> Command {
    let file = Arg::new("config-file").long("config").value_name("FILE").help("A configuration file (TOML)");
    let flags = PARTS.settings().into_iter().map(|setting| {
        Arg::new(setting.name)
            .long(setting.flag())
            .value_name(setting.name)
            .help(help(setting))
            .help_heading(format!("Settings: {}", setting.part))
            .hide(!lists_settings)
            .action(ArgAction::Set)
    });
    let command = command.arg(file).args(flags);
    if lists_settings { command.after_help(SETTINGS_HELP) } else { command }
}

/// The description of a setting, its default and its allowed values.
fn help(setting: &Setting) -> String {
    let default = if setting.default.is_empty() { "unset" } else { setting.default };
    format!("{}\n[default: {default}] [allowed: {}]", setting.description, setting.allowed())
}

fn values(matches: &ArgMatches) -> Result<Values, SettingError> {
    let flag =
        |setting: &Setting| Some((setting.name.to_owned(), matches.get_one::<String>(setting.name)?.clone()));
    let flags: BTreeMap<String, String> = PARTS.settings().into_iter().filter_map(flag).collect();
    settings::gather(flags, matches.get_one::<String>("config-file").map(String::as_str))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_well_formed() {
        super::command().debug_assert();
    }
}
