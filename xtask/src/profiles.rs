//! Which tests run on which profile.
//!
//! Every test runs on the embedded engine. The hub's own tests of what an engine does run again on Redis + PostgreSQL,
//! where a hub has a twin and what a test publishes reaches its streams through the engine; and on Redis Cluster +
//! MariaDB, but only those that slots or the other database can change. The suites of what a worker does run again on
//! Redis + PostgreSQL with `api` and `worker` in processes of their own. `prove` runs all of them there.

/// Tells tests which engine hubs are to use.
pub(crate) const VARIABLE: &str = "BONGSU_TEST_ENGINE";
pub(crate) const EMBEDDED: &str = "embedded";

const HUB_TESTS: &str = "bongsu/it";
const REDIS: &str = "redis";
const CLUSTER: &str = "cluster";
const SPLIT: &str = "split";
/// The suites about what an engine does.
const ENGINE_SUITES: [&str; 4] = ["rooms_", "inbox::", "drain", "browser"];
/// Of these, what is about the embedded engine and nothing else, or brings engines of its own.
const EMBEDDED_ONLY: [&str; 3] = ["rooms_crash", "inbox::away", "inbox::faults"];
/// Of these, what slots can change (several keys or several rooms at once, keys of people beside keys of rooms), and
/// what is kept in MariaDB.
const CLUSTER_SUITES: [&str; 8] = [
    "rooms_once",
    "rooms_many",
    "rooms_publish",
    "rooms_orders",
    "rooms_presence",
    "rooms_registered",
    "rooms_socket",
    "inbox::",
];
/// The suites about work that requests leave to a worker.
const SPLIT_SUITES: [&str; 2] = ["inbox::", "outbox::"];
/// Of these, what brings another engine, which mostly stands in the name, or no hub at all.
const NOT_SPLIT: [&str; 7] = [
    "mariadb",
    "embedded",
    "cluster",
    "::relay::rows_become_events",
    "::naive::",
    "::ledger::",
    "::the_document_shows",
];
/// Of these, one for each kind of work: entries, marks, letters, relaying, positions, and what is written at the end.
const SPLIT_SAMPLES: [&str; 8] = [
    "inbox::away::marks_are_written_when_a_hub_ends",
    "inbox::exact::what_rooms_wrote_down",
    "inbox::soon::what_an_active_room",
    "outbox::postgres::a_row_appended",
    "outbox::postgres::a_withdrawal_ends",
    "outbox::postgres::what_cannot_go_on",
    "outbox::postgres::what_is_committed",
    "outbox::trouble::rows_that_get_stuck_show_in_health_and_go_on_on_postgres",
];
/// Runs the sources of another crate under the model checker; that crate's other tests run there.
const MODEL_TESTS: &str = "live-model";
const MODEL_SUITE: &str = "model::";

/// The engines of a profile: names of `bongsu_engines::ENGINES`.
pub(crate) fn engines(profile: &str) -> [&'static str; 2] {
    if profile == CLUSTER { ["cluster", "mariadb"] } else { ["redis", "postgres"] }
}

/// What of the lists above no test of the run begins with: a suite was renamed, and would no longer run where it should.
pub(crate) fn unused(tests: &[(&str, &str)]) -> Vec<&'static str> {
    let is_used = |executable: &str, start: &str| {
        tests.iter().any(|(of, test)| *of == executable && test.starts_with(start))
    };
    let suites =
        [&ENGINE_SUITES[..], &EMBEDDED_ONLY, &CLUSTER_SUITES, &SPLIT_SUITES, &SPLIT_SAMPLES].concat();
    let mut unused: Vec<_> = suites.into_iter().filter(|suite| !is_used(HUB_TESTS, suite)).collect();
    if !is_used(MODEL_TESTS, MODEL_SUITE) {
        unused.push(MODEL_TESTS);
    }
    unused
}

/// The profiles of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profiles {
    Embedded,
    /// Every profile; on the Cluster only what it can change, and with the roles apart only samples.
    All,
    /// Every profile, on the Cluster everything that runs on Redis, and with the roles apart all that can be split.
    Prove,
}

/// The profiles that a test runs on; None is the embedded one.
pub(crate) fn of(executable: &str, test: &str, profiles: Profiles) -> Vec<Option<&'static str>> {
    if executable == MODEL_TESTS && !test.starts_with(MODEL_SUITE) {
        return Vec::new();
    }
    let begins_with = |suites: &[&str]| suites.iter().any(|suite| test.starts_with(suite));
    let mut on = vec![None];
    if profiles == Profiles::Embedded || executable != HUB_TESTS {
        return on;
    }
    let is_proving = profiles == Profiles::Prove;
    if begins_with(&ENGINE_SUITES) && !begins_with(&EMBEDDED_ONLY) {
        on.push(Some(REDIS));
        on.extend((is_proving || begins_with(&CLUSTER_SUITES)).then_some(Some(CLUSTER)));
    }
    let can_be_split = begins_with(&SPLIT_SUITES) && !NOT_SPLIT.iter().any(|part| test.contains(part));
    on.extend((can_be_split && (is_proving || begins_with(&SPLIT_SAMPLES))).then_some(Some(SPLIT)));
    on
}

/// A test's name with the profile it ran on; the embedded one needs no mention.
pub(crate) fn name_on(profile: Option<&str>, test: &str) -> String {
    profile.map_or_else(|| test.to_owned(), |profile| format!("{profile}: {test}"))
}

/// The profile and the name again.
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
    fn tests_run_where_they_mean_something() {
        let counts = |executable: &str, test: &str| {
            [Profiles::Embedded, Profiles::All, Profiles::Prove].map(|run| of(executable, test, run).len())
        };
        for test in ["rooms_once::c", "rooms_publish::batch::d", "inbox::large::on_the_embedded_engine"] {
            assert_eq!(counts(HUB_TESTS, test), [1, 3, 3], "{test}");
        }
        assert_eq!(counts(HUB_TESTS, "inbox::stream::b"), [1, 3, 4]);
        assert_eq!(counts(HUB_TESTS, "inbox::exact::what_rooms_wrote_down_becomes_one"), [1, 4, 4]);
        for test in ["outbox::postgres::a_silent_stream_pings", "inbox::away::a_stream", "outbox::gaps::a"] {
            assert_eq!(counts(HUB_TESTS, test), [1, 1, 2], "{test}");
        }
        assert_eq!(of(HUB_TESTS, SPLIT_SAMPLES[7], Profiles::All), [None, Some(SPLIT)]);
        for test in ["rooms_seam::a", "rooms_stream::position::b", "drain::c", "browser::d"] {
            assert_eq!(counts(HUB_TESTS, test), [1, 2, 3], "{test}");
        }
        // A fleet has its own Redis whatever the profile is: once is enough.
        for test in [
            "rooms_crash::a",
            "inbox::away::mariadb",
            "outbox::naive::a",
            "outbox::embedded::b",
            "cli::drain",
            "schema::d",
            "fleet::bus::a",
        ] {
            assert_eq!(counts(HUB_TESTS, test), [1, 1, 1], "{test}");
        }
        assert_eq!(counts("live/it", "rooms_a"), [1, 1, 1]);
        assert_eq!(counts(MODEL_TESTS, "ring::tests::a"), [0, 0, 0]);
        assert_eq!(counts(MODEL_TESTS, "model::a"), [1, 1, 1]);
    }

    #[test]
    fn a_suite_that_was_renamed_is_found() {
        let mut tests: Vec<(&str, &str)> = ENGINE_SUITES.iter().map(|suite| (HUB_TESTS, *suite)).collect();
        let others = EMBEDDED_ONLY.iter().chain(&CLUSTER_SUITES).chain(&SPLIT_SUITES).chain(&SPLIT_SAMPLES);
        tests.extend(others.map(|suite| (HUB_TESTS, *suite)));
        assert_eq!(unused(&tests), [MODEL_TESTS]);
        tests.push((MODEL_TESTS, "model::a"));
        assert_eq!(unused(&tests), [""; 0]);
        tests.retain(|(_, test)| *test != "browser");
        assert_eq!(unused(&tests), ["browser"]);
    }

    #[test]
    fn names_carry_their_profile() {
        for profile in [None, Some("redis")] {
            let name = name_on(profile, "bongsu/it rooms_seam::a");
            assert_eq!(split_name(&name), (profile, "bongsu/it rooms_seam::a"));
        }
    }
}
