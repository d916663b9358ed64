//! One build of the whole workspace: every test executable and the product, linted on the way.
//!
//! The workspace's own crates are compiled by clippy's driver, which is the compiler with more lints, so that linting
//! costs no second pass over the tree. Warnings fail the step; the tests run all the same.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::process::{cargo, run_translated};

/// A test executable.
#[derive(Clone, Debug)]
pub(crate) struct Executable {
    /// The crate without the project's prefix, and the target where it is not the crate itself: `live`, `live/it`.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// Where cargo would run it.
    pub(crate) folder: PathBuf,
}

/// What a build made.
#[derive(Debug, Default)]
pub(crate) struct Built {
    pub(crate) executables: Vec<Executable>,
    /// The hub.
    pub(crate) product: PathBuf,
    /// Lints that fired.
    pub(crate) warnings: usize,
}

/// Builds all tests. `linted` compiles with clippy.
pub(crate) fn build(linted: bool) -> Result<Built, String> {
    let mut command = cargo(["test", "--workspace", "--all-targets", "--no-run", "--message-format=json"]);
    if linted {
        command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    }
    let mut built = Built::default();
    run_translated(&mut command, |line| built.take(line))?;
    built.executables.sort_by(|one, other| one.name.cmp(&other.name));
    if !built.product.is_file() {
        return Err("the build made no hub".to_owned());
    }
    Ok(built)
}

impl Built {
    /// Takes in one message of cargo; returns what a person should see of it, None for a line that is no message.
    fn take(&mut self, line: &str) -> Option<String> {
        let message: Value = serde_json::from_str(line).ok()?;
        match message["reason"].as_str()? {
            "compiler-message" => {
                let lint = &message["message"];
                // The last message of a crate only counts the others.
                let is_sum = lint["message"].as_str()?.ends_with(" emitted");
                self.warnings += usize::from(lint["level"] == "warning" && !is_sum);
                Some(lint["rendered"].as_str()?.to_owned())
            }
            "compiler-artifact" => {
                self.artifact(&message);
                Some(String::new())
            }
            _ => Some(String::new()),
        }
    }

    fn artifact(&mut self, message: &Value) -> Option<()> {
        let path = PathBuf::from(message["executable"].as_str()?);
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        let target = message["target"]["name"].as_str()?;
        if message["profile"]["test"] == true {
            let package = message["package_id"].as_str().and_then(package_name)?;
            self.executables.push(Executable { name: name(&package, target), path, folder });
        } else if target == "bongsu" {
            self.product = path;
        }
        Some(())
    }
}

/// `path+file:///here/crates/live#bongsu-live@0.1.0`, or `path+file:///here/xtask#0.1.0` where the folder says it.
fn package_name(id: &str) -> Option<String> {
    let (place, version) = id.split_once('#')?;
    let name = match version.split_once('@') {
        Some((name, _)) => name,
        None => place.rsplit('/').next()?,
    };
    Some(name.strip_prefix("bongsu-").unwrap_or(name).to_owned())
}

fn name(package: &str, target: &str) -> String {
    let target = target.strip_prefix("bongsu-").or_else(|| target.strip_prefix("bongsu_")).unwrap_or(target);
    if target.replace('_', "-") == package { package.to_owned() } else { format!("{package}/{target}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_named_by_crate_and_target() {
        let name_of = |id: &str, target: &str| name(&package_name(id).unwrap(), target);
        assert_eq!(name_of("path+file:///x/crates/live#bongsu-live@0.1.0", "bongsu_live"), "live");
        assert_eq!(name_of("path+file:///x/crates/live#bongsu-live@0.1.0", "it"), "live/it");
        assert_eq!(name_of("path+file:///x/xtask#0.1.0", "xtask"), "xtask");
        assert_eq!(name_of("path+file:///x/crates/bongsu#0.1.0", "house"), "bongsu/house");
        assert_eq!(
            name_of("path+file:///x/crates/live/model#bongsu-live-model@0.1.0", "bongsu_live_model"),
            "live-model"
        );
    }

    #[test]
    fn messages_become_executables_and_warnings() {
        let mut built = Built::default();
        let artifact = r#"{"reason":"compiler-artifact","package_id":"path+file:///x/crates/sql#bongsu-sql@0.1.0",
            "manifest_path":"/x/crates/sql/Cargo.toml","target":{"name":"it"},"profile":{"test":true},
            "executable":"/x/target/debug/deps/it-1"}"#;
        assert_eq!(built.take(artifact), Some(String::new()));
        let lint = r#"{"reason":"compiler-message","message":{"level":"warning","message":"x","rendered":"warning: x"}}"#;
        assert_eq!(built.take(lint).as_deref(), Some("warning: x"));
        assert_eq!(built.take("   Compiling sql"), None);
        assert_eq!((built.executables[0].name.as_str(), built.warnings), ("sql/it", 1));
        assert_eq!(built.executables[0].folder, Path::new("/x/crates/sql"));
    }
}
