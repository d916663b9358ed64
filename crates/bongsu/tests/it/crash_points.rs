//! The crash points of the product, and the test that kills the hub at each of them.
//!
//! Every `crash_point!("...")` in the sources of crates and applications belongs to exactly one test. That test gets
//! its points from [`of`], and fails when a run never reaches one of them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bongsu_testkit::Hub;

/// Test names, each with the crash points at which that test kills the hub.
const TESTS: [(&str, &[&str]); 6] = [
    (
        "a_hub_that_dies_at_any_crash_point_keeps_every_acknowledged_event",
        &[
            "after-id",
            "after-entry",
            "after-trim",
            "within-group",
            "before-commit",
            "after-commit",
            "after-deliver",
            "after-answer",
        ],
    ),
    (
        "read_marks_survive_a_kill_at_every_step_of_their_write",
        &["before-marks", "after-marks", "after-marks-removed"],
    ),
    ("follow_up_records_become_one_entry_each_despite_kills_and_trimming", &["after-derivation"]),
    ("a_notification_saved_before_a_crash_becomes_one_entry_and_one_live_event", &["after-notify"]),
    ("a_row_appended_before_a_crash_is_one_event_of_its_room", &["after-relay-append"]),
    ("a_hub_that_dies_between_a_change_and_its_event_keeps_neither", &["before-decision-told"]),
];

/// The crash points of a test.
pub(crate) fn of(test: &str) -> &'static [&'static str] {
    let points = TESTS.iter().find(|(name, _)| *name == test).map(|(_, points)| *points);
    points.unwrap_or_else(|| panic!("{test} is not in TESTS of {}", file!()))
}

/// Restarts a hub so that it dies the `nth` time it reaches a crash point, possibly before it is ready.
pub(crate) async fn arm(hub: &Hub, point: &str, nth: u64) {
    hub.restart_allowing_exit(&[("BONGSU_CRASH_POINT", &format!("{point}:{nth}"))]).await;
}

/// Waits until an armed hub has died at its crash point; panics when it does not.
pub(crate) async fn wait_dead(hub: &Hub, point: &str, timeout: Duration) {
    // Where the roles run in separate processes, the worker reaches the crash point.
    let hub = hub.worker().unwrap_or(hub);
    let exit = hub.wait_exit(timeout).await.unwrap_or_else(|| panic!("the hub never reached {point}"));
    assert_eq!(exit.signal(), Some(6), "at {point} the hub ended with {exit}");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace").to_owned()
}

/// The texts of all Rust files in a folder and its subfolders.
fn sources(folder: PathBuf) -> Vec<String> {
    let (mut folders, mut texts) = (vec![folder], Vec::new());
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                texts.push(std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    texts
}

/// The names in all `crash_point!("...")` calls of the product.
fn in_the_sources() -> BTreeSet<String> {
    let mut points = BTreeSet::new();
    for parent in ["crates", "apps"] {
        for folder in std::fs::read_dir(root().join(parent)).unwrap() {
            for text in sources(folder.unwrap().path().join("src")) {
                let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
                let calls = code.filter_map(|line| line.split_once("crash_point!(\""));
                points.extend(calls.filter_map(|(_, call)| Some(call.split_once('"')?.0.to_owned())));
            }
        }
    }
    points
}

#[test]
fn every_crash_point_belongs_to_exactly_one_test() {
    let mut owners: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (test, points) in TESTS {
        points.iter().for_each(|point| owners.entry(point).or_default().push(test));
    }
    for (point, tests) in &owners {
        assert_eq!(tests.len(), 1, "{point} belongs to several tests: {tests:?}");
    }
    let found = in_the_sources();
    let nobodys: Vec<&String> = found.iter().filter(|point| !owners.contains_key(point.as_str())).collect();
    assert!(nobodys.is_empty(), "no test kills at {nobodys:?}: add them to TESTS of {}", file!());
    let gone: Vec<&&str> = owners.keys().filter(|point| !found.contains(**point)).collect();
    assert!(gone.is_empty(), "no source has {gone:?}: remove them from TESTS of {}", file!());
}

#[test]
fn every_crash_point_test_uses_this_list() {
    let texts = sources(root().join("crates/bongsu/tests/it"));
    for (test, _) in TESTS {
        let bodies: Vec<&str> = texts
            .iter()
            .filter_map(|text| text.split_once(&format!("fn {test}(")))
            .map(|(_, rest)| rest.split_once("\n}\n").map_or(rest, |(body, _)| body))
            .collect();
        assert!(!bodies.is_empty(), "there is no test {test}");
        assert!(
            bodies.iter().any(|body| body.contains("crash_points::of(")),
            "{test} does not call crash_points::of"
        );
    }
}
