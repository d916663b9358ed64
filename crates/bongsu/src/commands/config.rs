//! `bongsu config`: shows the effective settings and the source of each.

use bongsu_kernel::settings::{Values, effective_values, env_example, reference_page};
use clap::{ArgMatches, Command};

use super::{flag, print_line};
use crate::PARTS;
use bongsu_part::Failure;

pub(crate) fn command() -> Command {
    Command::new("config")
        .about("Show the effective settings and the source of each")
        .arg(flag("reference", "Print the reference page of all settings (Markdown)"))
        .arg(flag("env-example", "Print an example of an environment file"))
}

pub(crate) fn run(matches: &ArgMatches, values: &Values) -> Result<(), Failure> {
    let all = PARTS.settings();
    let text = if matches.get_flag("reference") {
        reference_page(&all)
    } else if matches.get_flag("env-example") {
        env_example(&all)
    } else {
        effective_values(&all, values)
    };
    print_line(text.trim_end());
    Ok(())
}
