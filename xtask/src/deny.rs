//! Checks the rules of deny.toml with cargo-deny: licences, duplicates, sources, advisories.
//!
//! Apart from advisories, the result depends only on deny.toml, the lock file and the manifests. A check that passes
//! writes their digest to `xtask/dependencies.sha256`, which is committed. While the digest matches, the check is
//! skipped; otherwise cargo-deny is installed if necessary, and run.

use std::fs;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use bongsu_engines::programs;
use sha2::{Digest as _, Sha256};

use crate::paths;
use crate::process::{capture, capture_if_ok, cargo, command, run};
use crate::steps::Steps;

const VERSION: &str = "0.20.2";
const ADVISORY_HOST: &str = "github.com:443";
/// Second line of `dependencies.sha256` when the advisory database could not be reached.
const WITHOUT_ADVISORIES: &str = "without advisories";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn check(steps: &mut Steps) -> Result<(), String> {
    let digest = digest()?;
    let file = paths::root().join("xtask").join("dependencies.sha256");
    let stored = fs::read_to_string(&file).unwrap_or_default();
    if stored.lines().next() == Some(digest.as_str()) {
        println!("deny.toml, the lock file and the manifests are unchanged since cargo-deny accepted them");
        if stored.lines().any(|line| line == WITHOUT_ADVISORIES) {
            steps.not_run.push(format!("advisories (dependencies were accepted {WITHOUT_ADVISORIES})"));
        }
        return Ok(());
    }
    let tool = match ensure_tool() {
        Ok(tool) => tool,
        Err(reason) if paths::in_ci() => return Err(reason),
        Err(reason) => {
            steps.not_run.push(format!("the rules of deny.toml ({reason})"));
            return Ok(());
        }
    };
    let mut check = command(tool);
    check.arg("check");
    let has_advisories = can_reach_advisories();
    if !has_advisories {
        println!("advisories are not checked: the advisory database cannot be reached");
        steps.not_run.push("advisories (the advisory database cannot be reached)".to_owned());
        check.args(["bans", "licenses", "sources"]);
    }
    run(&mut check)?;
    let remark = if has_advisories { String::new() } else { format!("{WITHOUT_ADVISORIES}\n") };
    fs::write(&file, format!("{digest}\n{remark}"))
        .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    println!("wrote {}: commit it, so that the next run skips the check", file.display());
    Ok(())
}

/// The SHA-256 of deny.toml, the lock file and all manifests, in hexadecimal.
fn digest() -> Result<String, String> {
    let root = paths::root();
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

/// Returns the path of cargo-deny, and installs it if it is missing. It is built without optimisation: that takes about
/// a minute, and a check of the whole workspace still takes only a few seconds.
fn ensure_tool() -> Result<PathBuf, String> {
    let folder = paths::target().join("tools");
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
    let output = capture_if_ok(command(tool).arg("--version"));
    output.is_some_and(|version| version.split_whitespace().last() == Some(VERSION))
}

/// Whether the host of the advisory database accepts a TCP connection: git would wait minutes for a host that does not
/// answer. Behind a proxy a connection proves nothing, so `git ls-remote` is tried instead.
fn can_reach_advisories() -> bool {
    let proxied = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
    if proxied.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())) {
        return capture_if_ok(command("git").args([
            "ls-remote",
            "https://github.com/RustSec/advisory-db",
            "HEAD",
        ]))
        .is_some();
    }
    let Ok(mut addresses) = ADVISORY_HOST.to_socket_addrs() else { return false };
    addresses.any(|address| TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok())
}
