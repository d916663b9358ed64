//! Rules for the source of this workspace: dependencies between crates, module comments, sizes of files, migrations,
//! queries.
//!
//! ARCHITECTURE.md describes the layers of crates. A failing test names the file that breaks a rule.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

#[path = "house/guarantees.rs"]
mod guarantees;
#[path = "house/naming.rs"]
mod naming;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The layers of crates, lowest first. A crate may depend on crates of lower layers only, not on those of its own
/// layer. A new crate that others depend on must be added to a layer.
const LAYERS: [&[&str]; 10] = [
    &["kernel"],
    &["http", "sql", "redis"],
    &["coordination", "limits", "queue", "live", "live-model"],
    &["part"],
    &["presence"],
    &["rooms"],
    &["inbox", "outbox"],
    &["members", "chat", "counters", "waiting-room", "gateway", "alerts"],
    &["community", "decisions", "ticketing"],
    &["bongsu"],
];
/// The layer of a crate that [`LAYERS`] does not name: a part that no other part depends on.
const DEFAULT_LAYER: usize = 7;
/// Used by tests only. It tests the hub from outside and depends on none of its crates.
const TESTKIT: &str = "testkit";
/// Starts the engines of tests. The testkit and the tools use it; it depends on no crate of the hub.
const ENGINES: &str = "engines";
/// Programs for development, on which no crate depends.
const TOOLS: [&str; 2] = ["bench", "xtask"];

/// A file with more lines than this needs a module comment of at least two lines.
const MAX_LINES_WITH_SHORT_COMMENT: usize = 150;
const MAX_LINES: usize = 500;

#[test]
fn crates_depend_downwards_only() {
    let mut wrong = Vec::new();
    for package in packages() {
        let name = short(package["name"].as_str().unwrap());
        for dependency in package["dependencies"].as_array().unwrap() {
            // Only dependencies on crates of this workspace have a path.
            if !dependency["path"].is_null() {
                let on = short(dependency["name"].as_str().unwrap());
                wrong.extend(refusal(name, on, dependency["kind"].as_str().unwrap_or("normal")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_dependency_rule_refuses_upward_dependencies() {
    for (from, on, kind) in [
        ("rooms", "live", "normal"),
        ("bongsu", "rooms", "normal"),
        ("live", "http", "normal"),
        ("ticketing", "waiting-room", "normal"),
        ("kernel", "testkit", "dev"),
        ("bench", "testkit", "normal"),
        ("testkit", "engines", "normal"),
        ("xtask", "engines", "normal"),
    ] {
        assert_eq!(refusal(from, on, kind), None);
    }
    for (from, on, kind) in [
        ("live", "rooms", "normal"),
        ("rooms", "members", "normal"),
        ("sql", "http", "normal"),
        ("kernel", "sql", "dev"),
        ("rooms", "testkit", "normal"),
        ("testkit", "kernel", "normal"),
        ("engines", "kernel", "normal"),
        ("rooms", "engines", "dev"),
        ("rooms", "bench", "dev"),
        ("kernel", "kernel", "normal"),
    ] {
        assert!(refusal(from, on, kind).is_some(), "{from} may use {on}");
    }
}

#[test]
fn every_folder_of_a_crate_is_part_of_the_workspace() {
    let members: BTreeSet<PathBuf> = packages()
        .iter()
        .map(|package| Path::new(package["manifest_path"].as_str().unwrap()).to_owned())
        .collect();
    for parent in ["crates", "apps"] {
        for folder in std::fs::read_dir(root().join(parent)).into_iter().flatten().flatten() {
            let manifest = folder.path().join("Cargo.toml");
            assert!(members.contains(&manifest), "{} is not a member of the workspace", manifest.display());
        }
    }
}

#[test]
fn every_file_begins_with_a_module_comment() {
    let mut wrong = Vec::new();
    for source in sources() {
        let head = source.text.lines().take_while(|line| line.starts_with("//!")).count();
        // A `tests.rs` needs one line only, because the comment of the tested module explains the rest.
        let min = if source.lines() > MAX_LINES_WITH_SHORT_COMMENT && !source.place().ends_with("tests.rs") {
            2
        } else {
            1
        };
        if !(min..=6).contains(&head) {
            let (place, lines) = (source.place(), source.lines());
            wrong.push(format!(
                "{place} has {lines} lines, and {head} lines of `//!` at its head; required are {min} to 6"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_file_is_too_long() {
    for source in sources() {
        assert!(source.lines() <= MAX_LINES, "{} has {} lines: split it", source.place(), source.lines());
    }
}

#[test]
fn no_source_has_markers_of_unfinished_code() {
    for source in sources() {
        for (at, line) in source.text.lines().enumerate() {
            for word in ["TODO", "FIXME", "todo!(", "unimplemented!("] {
                assert!(!line.contains(word), "{}:{}: {word}", source.place(), at + 1);
            }
        }
    }
}

#[test]
fn tasks_are_spawned_only_in_the_listed_files() {
    for source in sources().iter().filter(|source| source.krate != TESTKIT) {
        let lines: Vec<&str> = source.without_tests().lines().collect();
        for (at, line) in lines.iter().enumerate() {
            if !line.contains("tokio::spawn(") && !line.contains("tokio::task::spawn(") {
                continue;
            }
            // The attribute is on the function that contains the call, so below the end of the previous function.
            let above = lines[..at].iter().rev().take_while(|line| **line != "}" && **line != "    }");
            let is_expected = above.into_iter().any(|line| line.contains("clippy::disallowed_methods"));
            assert!(
                is_expected,
                "{}:{}: use the supervisor, or add #[expect(clippy::disallowed_methods)] with a reason",
                source.place(),
                at + 1
            );
        }
    }
}

#[test]
fn crash_point_names_are_unique() {
    let mut places: BTreeMap<String, String> = BTreeMap::new();
    for source in sources() {
        for (at, line) in source.without_tests().lines().enumerate() {
            let Some((_, rest)) = line.split_once("crash_point!(\"") else { continue };
            if line.trim_start().starts_with("//") {
                continue;
            }
            let name = rest.split('"').next().unwrap_or_default().to_owned();
            let place = format!("{}:{}", source.place(), at + 1);
            let other = places.insert(name.clone(), place.clone());
            assert_eq!(other, None, "the crash point {name:?} is also at {place}");
        }
    }
    assert!(!places.is_empty(), "no crash point was found: the test reads the wrong folders");
}

#[test]
fn migrations_are_numbered_consecutively_and_listed_in_code() {
    let mut found = 0;
    for krate in folders() {
        let code: String =
            sources().iter().filter(|source| source.krate == krate.0).map(|s| s.text.as_str()).collect();
        for dialect in std::fs::read_dir(krate.1.join("migrations")).into_iter().flatten().flatten() {
            let mut files: Vec<String> = std::fs::read_dir(dialect.path())
                .unwrap()
                .map(|file| file.unwrap().file_name().into_string().unwrap())
                .collect();
            files.sort_unstable();
            for (at, file) in files.iter().enumerate() {
                let place = format!("migrations/{}/{file}", dialect.file_name().display());
                assert!(
                    file.starts_with(&format!("{:04}_", at + 1)),
                    "{}: {place} breaks the numbering",
                    krate.0
                );
                assert!(file.ends_with(".sql"), "{}: {place} is not an SQL file", krate.0);
                // `migration!` includes the file of this name for every dialect.
                let declared = format!(", \"{}\")", file.trim_end_matches(".sql"));
                let by_macro =
                    code.lines().any(|line| line.contains("migration!(") && line.contains(&declared));
                assert!(
                    by_macro || code.contains(&format!("{place}\"")),
                    "{}: {place} is not included by the code",
                    krate.0
                );
                found += 1;
            }
        }
    }
    assert!(found > 0, "no migration was found: the test reads the wrong folders");
}

#[test]
fn every_query_is_a_file_that_is_declared_and_listed() {
    let mut found = 0;
    for (name, folder) in folders() {
        let code: String =
            sources().iter().filter(|source| source.krate == name).map(|s| s.text.as_str()).collect();
        for file in std::fs::read_dir(folder.join("queries")).into_iter().flatten().flatten() {
            let file = file.file_name().into_string().unwrap();
            let mut parts = file.trim_end_matches(".sql").split('.');
            let (query, dialect) = (parts.next().unwrap_or_default(), parts.next());
            let declared = match dialect {
                None => code.contains(&format!("query!(\"{query}\"")),
                Some(dialect) => [dialect, "all"]
                    .iter()
                    .any(|dialect| code.contains(&format!("query!(\"{query}\", {dialect})"))),
            };
            assert!(declared, "{name}: queries/{file} is not declared by query!");
            found += 1;
        }
        // The test that prepares every query on every database reads `QUERIES`.
        for declared in code.split("static ").skip(1).filter(|rest| rest.contains(": Query = query!(")) {
            let Some((constant, _)) = declared.split_once(": Query = query!(") else { continue };
            let is_listed = code.split("QUERIES").any(|list| {
                let list = list.split(';').next().unwrap_or_default();
                list.contains(&format!("&{constant},")) || list.contains(&format!("&{constant}]"))
            });
            assert!(
                is_listed || constant.contains(char::is_whitespace),
                "{name}: {constant} is not in QUERIES"
            );
        }
    }
    assert!(found > 0, "no query was found: the test reads the wrong folders");
}

/// The reason why a crate must not depend on another one; None if it may.
fn refusal(from: &str, on: &str, kind: &str) -> Option<String> {
    let refuse = |reason: &str| Some(format!("{from} depends on {on} ({kind}): {reason}"));
    if TOOLS.contains(&on) {
        return refuse("no crate depends on a tool");
    }
    if TOOLS.contains(&from) {
        return None;
    }
    if (from, on) == (TESTKIT, ENGINES) {
        return None;
    }
    if [TESTKIT, ENGINES].contains(&from) {
        return refuse("test support tests the hub from outside and depends on none of its crates");
    }
    if on == TESTKIT {
        return if kind == "dev" { None } else { refuse("testkit is a dev-dependency only") };
    }
    if layer(on) < layer(from) {
        None
    } else {
        refuse("a crate depends on crates of lower layers only, see LAYERS")
    }
}

fn layer(name: &str) -> usize {
    LAYERS.iter().position(|row| row.contains(&name)).unwrap_or(DEFAULT_LAYER)
}

/// The name of a crate without the prefix of the workspace, as in [`LAYERS`].
fn short(name: &str) -> &str {
    name.strip_prefix("bongsu-").unwrap_or(name)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// The packages of the workspace, from `cargo metadata`.
fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().clone();
    assert!(packages.len() > 5, "the workspace was not found");
    packages
}

/// The name and folder of each crate.
fn folders() -> Vec<(String, PathBuf)> {
    let folders = ["crates", "apps"].into_iter().flat_map(|parent| {
        std::fs::read_dir(root().join(parent)).into_iter().flatten().flatten().map(|folder| folder.path())
    });
    folders.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path)).collect()
}

/// A source file of a crate.
struct Source {
    krate: String,
    path: PathBuf,
    text: String,
}

impl Source {
    fn place(&self) -> String {
        self.path.strip_prefix(root()).unwrap_or(&self.path).display().to_string()
    }

    fn lines(&self) -> usize {
        self.text.lines().count()
    }

    /// The text without the unit tests, which are at the end of a file.
    fn without_tests(&self) -> &str {
        self.text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(&self.text)
    }
}

fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    for (krate, folder) in folders() {
        let mut pending = vec![folder.join("src")];
        while let Some(folder) = pending.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    pending.push(path);
                } else if path.extension().is_some_and(|ending| ending == "rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    found.push(Source { krate: krate.clone(), path, text });
                }
            }
        }
    }
    assert!(found.len() > 50, "the sources were not found");
    found
}
