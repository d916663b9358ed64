//! Installs Debian packages without prompts, and without starting their services.
//!
//! Root calls apt-get directly, other users through sudo if it needs no password. Where neither works, the error names
//! the command to run by hand.

use bongsu_engines::programs;

use crate::paths;
use crate::process::{capture_if_ok, command, run_logged};

/// Installs all packages.
pub(crate) fn install(packages: &[&str]) -> Result<(), String> {
    let by_hand = format!("install by hand: apt-get install {}", packages.join(" "));
    if programs::find("apt-get").is_none() {
        return Err(format!("apt-get is missing; {by_hand}"));
    }
    let is_root = capture_if_ok(command("id").arg("-u")).is_some_and(|id| id.trim() == "0");
    if !is_root && capture_if_ok(command("sudo").args(["-n", "true"])).is_none() {
        return Err(format!("not root, and sudo needs a password or is missing; {by_hand}"));
    }
    let script = paths::root().join("xtask").join("apt.sh");
    let apt = |arguments: &[&str]| {
        let mut apt = if is_root { command("sh") } else { command("sudo") };
        if !is_root {
            apt.args(["-n", "sh"]);
        }
        run_logged(apt.arg(&script).args(arguments))
    };
    // A failed update is not an error: the present package lists may be recent enough.
    if let Err(reason) = apt(&["update"]) {
        println!("{reason}; installing with the present package lists");
    }
    let mut arguments = vec!["install", "-y", "--no-install-recommends"];
    arguments.extend(packages);
    apt(&arguments).map_err(|reason| format!("{reason}; {by_hand}"))
}
