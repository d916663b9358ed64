//! Debian packages, installed without a question asked and without a service started.
//!
//! As root directly, otherwise through a sudo that needs no password; where neither works, the error
//! is the command that a person would have to run.

use bongsu_engines::programs;

use crate::place;
use crate::process::{ask, command, run_logged};

/// Installs all of them or says why not.
pub(crate) fn install(packages: &[&str]) -> Result<(), String> {
    let by_hand = format!("install by hand: apt-get install {}", packages.join(" "));
    if programs::find("apt-get").is_none() {
        return Err(format!("there is no apt-get here; {by_hand}"));
    }
    let root = ask(command("id").arg("-u")).is_some_and(|id| id.trim() == "0");
    if !root && ask(command("sudo").args(["-n", "true"])).is_none() {
        return Err(format!("neither root nor a sudo without password; {by_hand}"));
    }
    let script = place::root().join("xtask").join("apt.sh");
    let apt = |arguments: &[&str]| {
        let mut apt = if root { command("sh") } else { command("sudo") };
        if !root {
            apt.args(["-n", "sh"]);
        }
        run_logged(apt.arg(&script).args(arguments))
    };
    // Old lists may do as well, so only the installation decides.
    if let Err(reason) = apt(&["update"]) {
        println!("{reason}; trying with the lists that are there");
    }
    let mut arguments = vec!["install", "-y", "--no-install-recommends"];
    arguments.extend(packages);
    apt(&arguments).map_err(|reason| format!("{reason}; {by_hand}"))
}
