//! What the tests have proven: one JSON file each while they run, one document per part afterwards.
//!
//! A test writes `<part>.<name>.json`, an object, into the folder it is told, where `name` is the name
//! of its function, and `<part>.<name>.<profile>.json` on a shared engine. The folder belongs to one
//! commit: it is emptied when another is being proven.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::process::{ask, command};
use crate::{place, profiles};

const COMMIT: &str = "COMMIT";

/// The folder of results, and what was in it when the run began.
#[derive(Debug)]
pub(crate) struct Proofs {
    folder: PathBuf,
    commit: String,
    done: Vec<String>,
}

impl Proofs {
    /// Opens the folder: emptied, unless resuming on the commit it was filled on.
    pub(crate) fn open(resume: bool) -> Result<Self, String> {
        let folder = place::target().join("proof");
        let commit = commit();
        let kept = fs::read_to_string(folder.join(COMMIT)).is_ok_and(|before| before.trim() == commit);
        let failed = |error| format!("cannot prepare {}: {error}", folder.display());
        if !(resume && kept) && folder.exists() {
            fs::remove_dir_all(&folder).map_err(failed)?;
        }
        fs::create_dir_all(&folder).map_err(failed)?;
        fs::write(folder.join(COMMIT), &commit).map_err(failed)?;
        let done: Vec<_> = read(&folder)?.into_values().flatten().map(|(name, _)| name).collect();
        println!("commit {commit}, {} tests proven", done.len());
        if !done.is_empty() && commit.ends_with("-dirty") {
            println!(
                "there are changes that are not committed: what they were when those tests ran is not known"
            );
        }
        Ok(Self { folder, commit, done })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the test of this full name (`crate/it module::function`, on another profile with that before it) had left
    /// its result.
    pub(crate) fn has(&self, test: &str) -> bool {
        self.done.contains(&result(test))
    }

    /// Takes back the results of these tests.
    pub(crate) fn forget<'a>(&self, tests: impl Iterator<Item = &'a str>) {
        for test in tests {
            let ending = format!(".{}.json", result(test));
            for file in files(&self.folder).filter(|file| file.to_string_lossy().ends_with(&ending)) {
                match fs::remove_file(&file) {
                    Ok(()) => println!("{test} failed: its result {} is taken back", file.display()),
                    Err(error) => println!("cannot remove {}: {error}", file.display()),
                }
            }
        }
    }

    /// Writes docs/proof/<part>.json for the part, or for every part that has results.
    pub(crate) fn publish(&self, part: Option<&str>) -> Result<(), String> {
        let mut parts = read(&self.folder)?;
        if let Some(part) = part {
            parts.retain(|name, _| name == part);
        }
        if parts.is_empty() {
            return Err(format!("no test left a result in {}", self.folder.display()));
        }
        let date = git(&["log", "-1", "--format=%cI"]).unwrap_or_default();
        let folder = place::root().join("docs").join("proof");
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

/// What a test's result is called, from the test's full name.
fn result(test: &str) -> String {
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

/// The results in a folder, by part and test.
fn read(folder: &Path) -> Result<BTreeMap<String, BTreeMap<String, Value>>, String> {
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

/// The commit that is being proven, marked when the tree has changes; the proof itself is none.
fn commit() -> String {
    let id = git(&["rev-parse", "--short", "HEAD"]).unwrap_or_else(|| "none".to_owned());
    let changes = git(&["status", "--porcelain", "--", ".", ":(exclude)docs/proof"]);
    if changes.is_some_and(|changes| changes.is_empty()) { id } else { format!("{id}-dirty") }
}

fn git(arguments: &[&str]) -> Option<String> {
    ask(command("git").args(arguments)).map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_told_apart_by_their_profile() {
        assert_eq!(result("bongsu/it rooms_seam::nothing_is_missed"), "nothing_is_missed");
        assert_eq!(result("cluster: bongsu/it rooms_seam::nothing_is_missed"), "nothing_is_missed.cluster");
    }
}
