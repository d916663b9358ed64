//! The results of `prove`: each test writes one JSON file, and a passed run joins them to one document per part.
//!
//! A test writes a JSON object to `<part>.<function>.json` in the folder that `BONGSU_PROOF_DIR` names, or to
//! `<part>.<function>.<profile>.json` when it is not on the embedded profile. The folder holds the results of one
//! commit: a run on another commit empties it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::process::{capture_if_ok, command};
use crate::{paths, profiles};

/// The file that names the commit of the results.
const COMMIT_FILE: &str = "COMMIT";

/// The folder of results, and the results that it had when the run began.
#[derive(Debug)]
pub(crate) struct Proofs {
    folder: PathBuf,
    commit: String,
    proven: Vec<String>,
}

impl Proofs {
    /// Opens the folder. Removes earlier results, unless `resume` is true and they belong to the current commit.
    pub(crate) fn open(resume: bool) -> Result<Self, String> {
        let folder = paths::target().join("proof");
        let commit = commit();
        let is_same_commit =
            fs::read_to_string(folder.join(COMMIT_FILE)).is_ok_and(|before| before.trim() == commit);
        let failed = |error| format!("cannot prepare {}: {error}", folder.display());
        if !(resume && is_same_commit) && folder.exists() {
            fs::remove_dir_all(&folder).map_err(failed)?;
        }
        fs::create_dir_all(&folder).map_err(failed)?;
        fs::write(folder.join(COMMIT_FILE), &commit).map_err(failed)?;
        let proven: Vec<_> = read_results(&folder)?.into_values().flatten().map(|(name, _)| name).collect();
        println!("commit {commit}, {} tests proven", proven.len());
        if !proven.is_empty() && commit.ends_with("-dirty") {
            println!("the tree has uncommitted changes: they may have been others when these tests ran");
        }
        Ok(Self { folder, commit, proven })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the folder had a result of this test when the run began. `test` is its full name: `crate/it
    /// module::function`, with the profile in front if it is not the embedded one.
    pub(crate) fn has(&self, test: &str) -> bool {
        self.proven.contains(&result_name(test))
    }

    /// Removes the results of these tests.
    pub(crate) fn remove<'a>(&self, tests: impl Iterator<Item = &'a str>) {
        for test in tests {
            let ending = format!(".{}.json", result_name(test));
            for file in files(&self.folder).filter(|file| file.to_string_lossy().ends_with(&ending)) {
                match fs::remove_file(&file) {
                    Ok(()) => println!("{test} failed: removed its result {}", file.display()),
                    Err(error) => println!("cannot remove {}: {error}", file.display()),
                }
            }
        }
    }

    /// Writes docs/proof/<part>.json for the named parts, or for every part that has results if `named` is empty.
    pub(crate) fn publish(&self, named: &[&str]) -> Result<(), String> {
        let mut parts = read_results(&self.folder)?;
        parts.retain(|name, _| named.is_empty() || named.contains(&name.as_str()));
        if parts.is_empty() {
            return Err(format!("no test left a result in {}", self.folder.display()));
        }
        let date = git(&["log", "-1", "--format=%cI"]).unwrap_or_default();
        let folder = paths::root().join("docs").join("proof");
        fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        for (part, tests) in parts {
            let count = tests.len();
            let proof = json!({ "commit": self.commit, "date": date, "tests": tests });
            let text = serde_json::to_string_pretty(&proof).map_err(|error| error.to_string())?;
            let file = folder.join(format!("{part}.json"));
            fs::write(&file, text + "\n")
                .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
            println!("wrote docs/proof/{part}.json: {count} tests");
        }
        Ok(())
    }
}

/// The name of a test's result, without its part: the function and, if it is not the embedded one, the profile.
fn result_name(test: &str) -> String {
    let (profile, test) = profiles::split_name(test);
    let function = test.rsplit([':', ' ']).next().unwrap_or(test);
    match profile {
        Some(profile) => format!("{function}.{profile}"),
        None => function.to_owned(),
    }
}

fn files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(Result::ok).map(|entry| entry.path())
}

/// Reads the results in a folder, by part and test.
fn read_results(folder: &Path) -> Result<BTreeMap<String, BTreeMap<String, Value>>, String> {
    let mut parts: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
    for path in files(folder) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some((part, test)) = name.strip_suffix(".json").and_then(|name| name.split_once('.')) else {
            continue;
        };
        let text = fs::read_to_string(&path).map_err(|error| format!("cannot read {name}: {error}"))?;
        match serde_json::from_str(&text) {
            Ok(value @ Value::Object(_)) => {
                parts.entry(part.to_owned()).or_default().insert(test.to_owned(), value);
            }
            _ => return Err(format!("{name} is not a JSON object")),
        }
    }
    Ok(parts)
}

/// The current commit, with the suffix `-dirty` if the tree has changes outside docs/proof.
fn commit() -> String {
    let id = git(&["rev-parse", "--short", "HEAD"]).unwrap_or_else(|| "none".to_owned());
    let changes = git(&["status", "--porcelain", "--", ".", ":(exclude)docs/proof"]);
    if changes.is_some_and(|changes| changes.is_empty()) { id } else { format!("{id}-dirty") }
}

fn git(arguments: &[&str]) -> Option<String> {
    capture_if_ok(command("git").args(arguments)).map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_profiles_have_different_names() {
        assert_eq!(result_name("bongsu/it rooms_seam::nothing_is_missed"), "nothing_is_missed");
        assert_eq!(
            result_name("cluster: bongsu/it rooms_seam::nothing_is_missed"),
            "nothing_is_missed.cluster"
        );
    }
}
