//! The rules of deny.toml, checked by cargo-deny: licences, duplicates, sources, advisories.
//!
//! The tool is built once, into the target directory, in a fixed version. Advisories come from a
//! database on GitHub; where that is out of reach, the other checks run and the summary says so.

use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use crate::place;
use crate::process::{ask, cargo, command, run};
use crate::steps::Steps;

const VERSION: &str = "0.20.2";
const DATABASE_HOST: &str = "github.com:443";
/// Long enough for any network that could deliver the database at all.
const REACH: Duration = Duration::from_secs(5);

pub(crate) fn check(steps: &mut Steps) -> Result<(), String> {
    let tool = match tool() {
        Ok(tool) => tool,
        Err(reason) if place::in_ci() => return Err(reason),
        Err(reason) => {
            steps.not_run.push(format!("the rules for dependencies ({reason})"));
            return Ok(());
        }
    };
    let mut check = command(tool);
    check.arg("check");
    if !database_in_reach() {
        println!("advisories are not checked: their database is out of reach");
        steps.not_run.push("advisories (their database is out of reach)".to_owned());
        check.args(["bans", "licenses", "sources"]);
    }
    run(&mut check)
}

/// The tool's path; built when it is not there. Without optimisation that takes about a minute, and a
/// check of the whole tree still runs in a few seconds.
fn tool() -> Result<PathBuf, String> {
    let folder = place::target().join("tools");
    let own = folder.join("bin").join("cargo-deny");
    let candidates = [Some(own.clone()), place::on_path("cargo-deny")];
    if let Some(present) = candidates.into_iter().flatten().find(is_right_version) {
        return Ok(present);
    }
    let mut install = cargo(["install", "cargo-deny", "--version", VERSION, "--locked", "--debug"]);
    run(install.arg("--root").arg(&folder))?;
    Ok(own)
}

fn is_right_version(tool: &PathBuf) -> bool {
    let said = ask(command(tool).arg("--version"));
    said.is_some_and(|version| version.split_whitespace().last() == Some(VERSION))
}

/// Asked by hand because git waits minutes for a host that does not answer. Behind a proxy only the
/// attempt itself can tell, so it is made.
fn database_in_reach() -> bool {
    let proxied = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
    if proxied.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())) {
        return ask(command("git").args(["ls-remote", "https://github.com/RustSec/advisory-db", "HEAD"]))
            .is_some();
    }
    let Ok(mut addresses) = DATABASE_HOST.to_socket_addrs() else { return false };
    addresses.any(|address| TcpStream::connect_timeout(&address, REACH).is_ok())
}
