//! The engines beside the embedded one: the integration tests that mean something there run again on
//! each of them.
//!
//! On these a hub has a twin, and what a test publishes reaches its streams through the engine. A test
//! that cannot do without the embedded engine says so itself, in a line that ends up under "not run".

use crate::steps::{Failure, Steps};
use crate::test::{self, Surroundings};

/// Tells tests which engine hubs are to use.
pub(crate) const VARIABLE: &str = "BONGSU_TEST_ENGINE";
pub(crate) const EMBEDDED: &str = "embedded";
const ENGINES: [&str; 2] = ["redis", "cluster"];
/// The suites that are about what an engine does.
const SUITES: [&str; 4] = ["rooms_", "inbox::", "drain", "browser"];
/// Of these, what is about the embedded engine and nothing else, or brings engines of its own.
const EMBEDDED_ONLY: [&str; 3] = ["rooms_crash", "inbox::away", "inbox::faults"];
const TESTS: [&str; 4] = ["-p", "bongsu", "--test", "it"];

/// Runs those of the suites' tests that are wanted, one engine after the other. `wanted` is asked for
/// names as `name_on` writes them; `harness` has to say that names are exact.
pub(crate) fn run(
    steps: &mut Steps,
    surroundings: &Surroundings,
    harness: &[String],
    wanted: impl Fn(&str) -> bool,
) -> Result<(), Failure> {
    for engine in ENGINES {
        steps.used.push(format!("profile {engine}"));
        steps.tally.switch(Some(engine));
        let done = steps.step(&format!("tests on {engine}"), |steps| {
            let mut names = test::list(&TESTS)?;
            names.retain(|name| runs_on_engines(name) && wanted(&name_on(Some(engine), name)));
            if names.is_empty() {
                println!("none to run");
                return Ok(());
            }
            let mut surroundings = surroundings.clone();
            surroundings.push((VARIABLE, engine.into()));
            test::cargo_test(steps, &surroundings, &TESTS, &[harness, &names].concat())
        });
        steps.tally.switch(None);
        done?;
    }
    Ok(())
}

fn runs_on_engines(test: &str) -> bool {
    let is_of = |suites: &[&str]| suites.iter().any(|suite| test.starts_with(suite));
    is_of(&SUITES) && !is_of(&EMBEDDED_ONLY)
}

/// A test's full name with the profile it ran on; the embedded one needs no mention.
pub(crate) fn name_on(profile: Option<&str>, test: &str) -> String {
    profile.map_or_else(|| test.to_owned(), |profile| format!("{profile}: {test}"))
}

/// The profile and the test's full name again.
pub(crate) fn split_name(name: &str) -> (Option<&str>, &str) {
    match name.split_once(": ") {
        Some((profile, test)) => (Some(profile), test),
        None => (None, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_chosen_by_how_their_names_begin() {
        for test in [
            "rooms_seam::a",
            "rooms_stream::position::b",
            "inbox::a",
            "inbox::stream::b",
            "drain::c",
            "browser::d",
        ] {
            assert!(runs_on_engines(test), "{test}");
        }
        let elsewhere = [
            "rooms_crash::a",
            "rooms_crash::b::c",
            "inbox::away::a",
            "identity::a_browser",
            "cli::drain",
            "schema::d",
        ];
        // A fleet has its own Redis whatever the profile is: once is enough.
        for test in elsewhere.into_iter().chain(["fleet::bus::a", "fleet::rolling::b"]) {
            assert!(!runs_on_engines(test), "{test}");
        }
    }

    #[test]
    fn names_carry_their_profile() {
        for profile in [None, Some("redis")] {
            let name = name_on(profile, "rooms_seam::a");
            assert_eq!(split_name(&name), (profile, "rooms_seam::a"));
        }
    }
}
