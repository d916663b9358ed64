//! Builds the whole workspace once, with lints: every test executable and the hub.
//!
//! Clippy's driver, which is the compiler with more lints, compiles the workspace's own crates, so that linting needs
//! no second build. Warnings fail the step; the tests run nevertheless.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::process::{cargo, run_translated};

/// A test executable.
#[derive(Clone, Debug)]
pub(crate) struct Executable {
    /// The crate without the prefix `bongsu-`, and the target if it is not the crate itself: `live`, `live/it`.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// The folder in which cargo runs the executable.
    pub(crate) folder: PathBuf,
}

/// The results of a build.
#[derive(Debug, Default)]
pub(crate) struct BuildOutput {
    pub(crate) executables: Vec<Executable>,
    /// The executable of the hub.
    pub(crate) product: PathBuf,
    /// Number of compiler and clippy warnings.
    pub(crate) warnings: usize,
}

/// Builds all tests and the hub. `with_clippy` compiles with clippy's driver.
pub(crate) fn build(with_clippy: bool) -> Result<BuildOutput, String> {
    let mut command = cargo(["test", "--workspace", "--all-targets", "--no-run", "--message-format=json"]);
    if with_clippy {
        command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    }
    let mut output = BuildOutput::default();
    run_translated(&mut command, |line| output.add_message(line))?;
    output.executables.sort_by(|one, other| one.name.cmp(&other.name));
    if !output.product.is_file() {
        return Err("the build produced no executable of the hub".to_owned());
    }
    Ok(output)
}

impl BuildOutput {
    /// Adds one line of cargo's output. Returns the text to print instead of the line; None when the line is not a
    /// message in JSON and is printed as it is.
    fn add_message(&mut self, line: &str) -> Option<String> {
        let message: Value = serde_json::from_str(line).ok()?;
        match message["reason"].as_str()? {
            "compiler-message" => {
                let lint = &message["message"];
                // The last message of a crate ("3 warnings emitted") only counts the other ones.
                let is_summary = lint["message"].as_str()?.ends_with(" emitted");
                self.warnings += usize::from(lint["level"] == "warning" && !is_summary);
                Some(lint["rendered"].as_str()?.to_owned())
            }
            "compiler-artifact" => {
                self.add_artifact(&message);
                Some(String::new())
            }
            _ => Some(String::new()),
        }
    }

    fn add_artifact(&mut self, message: &Value) -> Option<()> {
        let path = PathBuf::from(message["executable"].as_str()?);
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        let target = message["target"]["name"].as_str()?;
        if message["profile"]["test"] == true {
            let package = message["package_id"].as_str().and_then(package_name)?;
            self.executables.push(Executable { name: executable_name(&package, target), path, folder });
        } else if target == "bongsu" {
            self.product = path;
        }
        Some(())
    }
}

/// Extracts the name from a package id: `path+file:///here/crates/live#bongsu-live@0.1.0`, or
/// `path+file:///here/xtask#0.1.0` when the folder has the name of the package.
fn package_name(id: &str) -> Option<String> {
    let (path, version) = id.split_once('#')?;
    let name = match version.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next()?,
    };
    Some(name.strip_prefix("bongsu-").unwrap_or(name).to_owned())
}

fn executable_name(package: &str, target: &str) -> String {
    let target = target.strip_prefix("bongsu-").or_else(|| target.strip_prefix("bongsu_")).unwrap_or(target);
    if target.replace('_', "-") == package { package.to_owned() } else { format!("{package}/{target}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_named_by_crate_and_target() {
        let name_of = |id: &str, target: &str| executable_name(&package_name(id).unwrap(), target);
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
        let mut output = BuildOutput::default();
        let artifact = r#"{"reason":"compiler-artifact","package_id":"path+file:///x/crates/sql#bongsu-sql@0.1.0",
            "manifest_path":"/x/crates/sql/Cargo.toml","target":{"name":"it"},"profile":{"test":true},
            "executable":"/x/target/debug/deps/it-1"}"#;
        assert_eq!(output.add_message(artifact), Some(String::new()));
        let lint = r#"{"reason":"compiler-message","message":{"level":"warning","message":"x","rendered":"warning: x"}}"#;
        assert_eq!(output.add_message(lint).as_deref(), Some("warning: x"));
        assert_eq!(output.add_message("   Compiling sql"), None);
        assert_eq!((output.executables[0].name.as_str(), output.warnings), ("sql/it", 1));
        assert_eq!(output.executables[0].folder, Path::new("/x/crates/sql"));
    }
}
