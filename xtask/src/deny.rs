//! The rules of deny.toml, checked by cargo-deny: licences, duplicates, sources, advisories.
//!
//! The answer depends only on deny.toml, the lock file and the manifests (advisories aside). A check that passed leaves
//! their digest in `xtask/dependencies.sha256`, which is committed: while it fits, nothing has to be checked, and
//! nothing has to be built for it. Once it does not, cargo-deny is built and run.

use std::fs;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use bongsu_engines::programs;
use sha2::{Digest as _, Sha256};

use crate::place;
use crate::process::{ask, capture, cargo, command, run};
use crate::steps::Steps;

const VERSION: &str = "0.20.2";
const ADVISORY_HOST: &str = "github.com:443";
/// Second line of the file when the database of advisories could not be reached.
const WITHOUT_ADVISORIES: &str = "without advisories";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn check(steps: &mut Steps) -> Result<(), String> {
    let digest = digest()?;
    let file = place::root().join("xtask").join("dependencies.sha256");
    let checked = fs::read_to_string(&file).unwrap_or_default();
    if checked.lines().next() == Some(digest.as_str()) {
        println!("deny.toml, the lock file and the manifests are as they were when cargo-deny accepted them");
        if checked.lines().any(|line| line == WITHOUT_ADVISORIES) {
            steps.not_run.push(format!("advisories (dependencies were accepted {WITHOUT_ADVISORIES})"));
        }
        return Ok(());
    }
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
    let with_advisories = are_advisories_in_reach();
    if !with_advisories {
        println!("advisories are not checked: their database is out of reach");
        steps.not_run.push("advisories (their database is out of reach)".to_owned());
        check.args(["bans", "licenses", "sources"]);
    }
    run(&mut check)?;
    let remark = if with_advisories { String::new() } else { format!("{WITHOUT_ADVISORIES}\n") };
    fs::write(&file, format!("{digest}\n{remark}"))
        .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    println!("wrote {}: commit it, so that the next run need not check again", file.display());
    Ok(())
}

/// Of everything that the answer depends on.
fn digest() -> Result<String, String> {
    let root = place::root();
    let mut files = vec![root.join("deny.toml"), root.join("Cargo.lock"), root.join("Cargo.toml")];
    let metadata = capture(&mut cargo(["metadata", "--no-deps", "--format-version=1", "--offline"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata).map_err(|error| error.to_string())?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    files.extend(packages.filter_map(|package| package["manifest_path"].as_str()).map(PathBuf::from));
    files.sort();
    let mut digest = Sha256::new();
    for file in files {
        digest.update(fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?);
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The tool's path; built when it is not there. Without optimisation that takes about a minute, and a
/// check of the whole tree still runs in a few seconds.
fn tool() -> Result<PathBuf, String> {
    let folder = place::target().join("tools");
    let own = folder.join("bin").join("cargo-deny");
    let candidates = [Some(own.clone()), programs::find("cargo-deny")];
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
fn are_advisories_in_reach() -> bool {
    let proxied = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
    if proxied.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())) {
        return ask(command("git").args(["ls-remote", "https://github.com/RustSec/advisory-db", "HEAD"]))
            .is_some();
    }
    let Ok(mut addresses) = ADVISORY_HOST.to_socket_addrs() else { return false };
    addresses.any(|address| TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok())
}
