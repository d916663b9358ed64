//! Runs every command of README.md, README.ko.md and docs/*.md, and compares its output with the document.
//!
//! `documents/parse.rs` reads the commands from a document, `documents/compare.rs` has the rules for output
//! that may differ, and `documents/steps.rs` the actions between commands. [`NOT_RUN`] lists the commands
//! that cannot run in a test.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

mod compare;
mod parse;
mod run;
mod shell;
mod steps;
mod stream;

use std::collections::BTreeSet;

use bongsu_testkit::engine::needs_embedded;
use bongsu_testkit::tier;

use parse::{commands, read, root};
use run::DocumentRun;
use steps::STEPS;

/// The programs that the commands use, besides the hub.
const PROGRAMS: [&str; 4] = ["bash", "curl", "jq", "openssl"];

/// Commands that no test of this module runs, and why.
const NOT_RUN: [(&str, &str); 3] = [
    (
        "sudo apt-get install build-essential ca-certificates curl git jq",
        "it changes the machine; `cargo xtask services` installs packages in the same way",
    ),
    (
        "cargo run --release -- serve",
        "the test starts the hub's binary that cargo built for it, with the same defaults",
    ),
    ("cargo xtask test", "`.ci/run` runs it; this test is a part of it"),
];

/// First words of commands that may run here. They change nothing outside the folder of the test.
const RUNNABLE: [&str; 6] = ["bongsu", "target/release/bongsu", "curl", "for", "kill", "openssl"];

/// Whether to run the command; panics if [`NOT_RUN`] does not list it and it is not known to be harmless.
fn is_run(command: &str) -> bool {
    if NOT_RUN.iter().any(|(listed, _)| *listed == command) {
        return false;
    }
    let first = command.split_whitespace().next().unwrap_or_default();
    // An assignment may precede a command, and its value may be the output of a command.
    let is_assignment = first
        .split_once('=')
        .is_some_and(|(name, _)| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'));
    assert!(RUNNABLE.contains(&first) || is_assignment, "neither in RUNNABLE nor in NOT_RUN: {command}");
    true
}

macro_rules! documents {
    ($($test:ident: $document:literal;)*) => {
        /// The documents with commands.
        const DOCUMENTS: &[&str] = &[$($document),*];
        $(
            #[tokio::test]
            async fn $test() {
                if needs_embedded("the documents show a hub with a data folder") && has_programs() {
                    DocumentRun::run($document).await;
                }
            }
        )*
    };
}

documents! {
    commands_of_the_readme_print_what_it_shows: "README.md";
    commands_of_the_korean_readme_print_what_it_shows: "README.ko.md";
    commands_of_rooms_print_what_it_shows: "docs/rooms.md";
    commands_of_inbox_print_what_it_shows: "docs/inbox.md";
    commands_of_queues_print_what_it_shows: "docs/queues.md";
    commands_of_outbox_print_what_it_shows: "docs/outbox.md";
    commands_of_decisions_print_what_it_shows: "docs/decisions.md";
    commands_of_operating_print_what_it_shows: "docs/operating.md";
}

/// Whether all programs are installed; a missing program is reported like a missing engine.
fn has_programs() -> bool {
    let is_missing = |program: &&str| !tier::missing_programs(program).is_empty();
    PROGRAMS.into_iter().find(is_missing).is_none_or(tier::needs_engine)
}

#[test]
fn every_document_with_commands_is_run() {
    let pages = std::fs::read_dir(root().join("docs")).unwrap();
    let pages = pages.map(|page| format!("docs/{}", page.unwrap().file_name().to_str().unwrap()));
    let pages = pages.filter(|page| page.ends_with(".md"));
    let all = pages.chain(["README.md", "README.ko.md"].map(str::to_owned));
    let with_commands: BTreeSet<String> = all.filter(|document| !commands(document).is_empty()).collect();
    assert_eq!(with_commands, DOCUMENTS.iter().map(|document| (*document).to_owned()).collect());
    assert!(STEPS.iter().all(|step| DOCUMENTS.contains(&step.document)));
}

#[test]
fn every_command_that_is_not_run_is_in_a_document() {
    let all: BTreeSet<String> =
        DOCUMENTS.iter().flat_map(|document| commands(document)).map(|command| command.text).collect();
    for (command, reason) in NOT_RUN {
        assert!(all.contains(command), "no document contains this command: {command} ({reason})");
    }
}

#[test]
fn both_readmes_show_the_same_commands_and_outputs() {
    let blocks = |document: &str| -> Vec<String> {
        read(document).split("\n```").skip(1).step_by(2).map(str::to_owned).collect()
    };
    assert_eq!(blocks("README.md"), blocks("README.ko.md"));
}
