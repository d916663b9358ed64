//! `bongsu config`: shows the settings in force and where each came from.

use bongsu_kernel::settings::{Values, env_example, in_force, reference};
use clap::{ArgMatches, Command};

use super::{flag, say};
use crate::PARTS;
use bongsu_part::Failure;

pub(crate) fn command() -> Command {
    Command::new("config")
        .about("Show the settings in force, and where each came from")
        .arg(flag("reference", "Print the reference page of all settings (Markdown)"))
        .arg(flag("env-example", "Print an example of an environment file"))
}

pub(crate) fn run(matches: &ArgMatches, values: &Values) -> Result<(), Failure> {
    let all = PARTS.settings();
    let text = if matches.get_flag("reference") {
        reference(&all)
    } else if matches.get_flag("env-example") {
        env_example(&all)
    } else {
        in_force(&all, values)
    };
    say(text.trim_end());
    Ok(())
}
