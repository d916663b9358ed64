//! The rules of the house, held against its source: who may depend on whom, how a file begins, what never lands.
//!
//! The map that these enforce is in ARCHITECTURE.md. A test that fails names the file and what to do about it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

#[path = "house/guarantees.rs"]
mod guarantees;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Who stands on whom: a crate may use those of the rows above its own, never its neighbours.
/// A new crate that others stand on is added to the row it belongs to.
const STORIES: [&[&str]; 10] = [
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
/// The row of a crate that is named in none: it is a part that no other part stands on.
const NEW_PARTS: usize = 7;
/// Only ever used by tests; looks at the hub from outside and knows nothing of its crates.
const TESTKIT: &str = "testkit";
/// Starts the engines of tests; used by the testkit and the tools, and knows nothing of the product either.
const ENGINES: &str = "engines";
/// Programs beside the product, which nothing depends on.
const TOOLS: [&str; 2] = ["bench", "xtask"];

/// A file of more lines than this needs more than one line to say what it is for.
const TINY: usize = 150;
const LONGEST: usize = 500;

#[test]
fn crates_depend_downwards_only() {
    let mut wrong = Vec::new();
    for package in packages() {
        let name = short(package["name"].as_str().unwrap());
        for dependency in package["dependencies"].as_array().unwrap() {
            // Crates of this workspace have a path.
            if !dependency["path"].is_null() {
                let on = short(dependency["name"].as_str().unwrap());
                wrong.extend(refusal(name, on, dependency["kind"].as_str().unwrap_or("normal")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_rule_of_directions_refuses_what_it_should() {
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
            assert!(members.contains(&manifest), "{} is no member of the workspace", manifest.display());
        }
    }
}

#[test]
fn every_file_begins_by_saying_what_it_is_for() {
    let mut wrong = Vec::new();
    for source in sources() {
        let head = source.text.lines().take_while(|line| line.starts_with("//!")).count();
        // Tests stand beside what they test, which says what it is for.
        let least = if source.lines() > TINY && !source.place().ends_with("tests.rs") { 2 } else { 1 };
        if !(least..=6).contains(&head) {
            let (place, lines) = (source.place(), source.lines());
            wrong.push(format!(
                "{place}: {lines} lines, and {head} of `//!` at its head; {least} to 6 are asked for"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_file_is_too_long() {
    for source in sources() {
        assert!(source.lines() <= LONGEST, "{} has {} lines: split it", source.place(), source.lines());
    }
}

#[test]
fn nothing_unfinished_lands() {
    for source in sources() {
        for (at, line) in source.text.lines().enumerate() {
            for word in ["TODO", "FIXME", "todo!(", "unimplemented!("] {
                assert!(!line.contains(word), "{}:{}: {word}", source.place(), at + 1);
            }
        }
    }
}

#[test]
fn tasks_are_spawned_where_it_was_agreed_only() {
    for source in sources().iter().filter(|source| source.of != TESTKIT) {
        let lines: Vec<&str> = source.product().lines().collect();
        for (at, line) in lines.iter().enumerate() {
            if !line.contains("tokio::spawn(") && !line.contains("tokio::task::spawn(") {
                continue;
            }
            // The agreement stands on the function: above the call, below the end of the function before it.
            let above = lines[..at].iter().rev().take_while(|line| **line != "}" && **line != "    }");
            let agreed = above.into_iter().any(|line| line.contains("clippy::disallowed_methods"));
            assert!(
                agreed,
                "{}:{}: use the supervisor, or agree with #[expect] and a reason",
                source.place(),
                at + 1
            );
        }
    }
}

#[test]
fn every_crash_point_has_a_name_of_its_own() {
    let mut places: BTreeMap<String, String> = BTreeMap::new();
    for source in sources() {
        for (at, line) in source.product().lines().enumerate() {
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
    assert!(!places.is_empty(), "no crash point was found: the rule looks in the wrong place");
}

#[test]
fn every_migration_is_numbered_on_and_listed_in_code() {
    let mut found = 0;
    for krate in folders() {
        let code: String =
            sources().iter().filter(|source| source.of == krate.0).map(|s| s.text.as_str()).collect();
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
                assert!(file.ends_with(".sql"), "{}: {place} is no SQL", krate.0);
                let stem = file.trim_end_matches(".sql");
                assert!(
                    code.contains(&format!("{place}\"")) || code.contains(&format!("\"{stem}\"")),
                    "{}: {place} is not included by the code",
                    krate.0
                );
                found += 1;
            }
        }
    }
    assert!(found > 0, "no migration was found: the rule looks in the wrong place");
}

#[test]
fn every_query_is_a_file_that_is_declared_and_listed() {
    let mut found = 0;
    for (name, folder) in folders() {
        let code: String =
            sources().iter().filter(|source| source.of == name).map(|s| s.text.as_str()).collect();
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
        // The test that prepares every query sees those that are listed.
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
    assert!(found > 0, "no query was found: the rule looks in the wrong place");
}

/// Why a crate may not depend on another one, if it may not.
fn refusal(from: &str, on: &str, kind: &str) -> Option<String> {
    let says = |why: &str| Some(format!("{from} depends on {on} ({kind}): {why}"));
    if TOOLS.contains(&on) {
        return says("nothing depends on a tool");
    }
    if TOOLS.contains(&from) {
        return None;
    }
    if (from, on) == (TESTKIT, ENGINES) {
        return None;
    }
    if [TESTKIT, ENGINES].contains(&from) {
        return says("test support looks at the hub from outside and uses none of its crates");
    }
    if on == TESTKIT {
        return if kind == "dev" { None } else { says("testkit is a dev-dependency only") };
    }
    if story(on) < story(from) {
        None
    } else {
        says("a crate stands on those of lower rows only, see STORIES")
    }
}

fn story(name: &str) -> usize {
    STORIES.iter().position(|row| row.contains(&name)).unwrap_or(NEW_PARTS)
}

/// The name as the map has it.
fn short(name: &str) -> &str {
    name.strip_prefix("bongsu-").unwrap_or(name)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// The workspace's packages, as cargo reads them.
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

/// The crates' folders by their names on the map.
fn folders() -> Vec<(String, PathBuf)> {
    let folders = ["crates", "apps"].into_iter().flat_map(|parent| {
        std::fs::read_dir(root().join(parent)).into_iter().flatten().flatten().map(|folder| folder.path())
    });
    folders.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path)).collect()
}

/// A source file of a crate.
struct Source {
    of: String,
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

    /// What is compiled into the product: unit tests stand at the end of a file.
    fn product(&self) -> &str {
        self.text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(&self.text)
    }
}

fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    for (of, folder) in folders() {
        let mut waiting = vec![folder.join("src")];
        while let Some(folder) = waiting.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    waiting.push(path);
                } else if path.extension().is_some_and(|ending| ending == "rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    found.push(Source { of: of.clone(), path, text });
                }
            }
        }
    }
    assert!(found.len() > 50, "the sources were not found");
    found
}
