//! Decides which tests run on which profile.
//!
//! Every test runs on the embedded engine. Suites that depend on the engine run again on Redis + PostgreSQL, with a
//! second hub in the fleet, so that events reach streams through Redis. Of these, suites that depend on Cluster slots
//! or on MariaDB run on Redis Cluster + MariaDB; samples of the suites about workers run with `api` and `worker` in
//! separate processes. `prove` runs every suite on each of these profiles, where it can run there.

/// The environment variable that tells tests which engine their hubs use.
pub(crate) const VARIABLE: &str = "BONGSU_TEST_ENGINE";
pub(crate) const EMBEDDED: &str = "embedded";

const HUB_TESTS: &str = "bongsu/it";
const REDIS: &str = "redis";
const CLUSTER: &str = "cluster";
const SPLIT: &str = "split";
/// Prefixes of the tests whose outcome depends on the engine.
const ENGINE_SUITES: [&str; 5] = ["rooms_", "inbox::", "drain", "browser", "topics::"];
/// Of these, tests that are only about the embedded engine, or that start their own engines.
const EMBEDDED_ONLY: [&str; 3] = ["rooms_crash", "inbox::away", "inbox::faults"];
/// Of these, tests that depend on Cluster slots (several keys or rooms in one operation, keys of persons together with
/// keys of rooms), and tests of records, which this profile keeps in MariaDB.
const CLUSTER_SUITES: [&str; 9] = [
    "rooms_once",
    "rooms_many",
    "rooms_publish",
    "rooms_orders",
    "rooms_presence",
    "rooms_registered",
    "rooms_socket",
    "inbox::",
    "topics::",
];
/// Prefixes of the tests about work that requests leave to a worker.
const SPLIT_SUITES: [&str; 3] = ["inbox::", "outbox::", "topics::"];
/// Parts of the names of those among these tests that choose another engine, or that start no hub.
const NOT_SPLIT: [&str; 7] = [
    "mariadb",
    "embedded",
    "cluster",
    "::relay::rows_become_events",
    "::naive::",
    "::ledger::",
    "::the_outbox_document_shows",
];
/// Of these, one test for each kind of work of a worker, such as inbox entries, read marks, dead letters and relaying.
const SPLIT_SAMPLES: [&str; 9] = [
    "inbox::away::read_marks_are_written_when_a_hub_stops",
    "inbox::exact::follow_up_records_become_one_entry",
    "inbox::soon::entries_of_an_active_room",
    "outbox::postgres::a_row_appended",
    "outbox::postgres::a_withdrawal_closes",
    "outbox::postgres::failing_rows_become_dead_letters",
    "outbox::postgres::committed_rows_arrive",
    "outbox::trouble::rows_that_are_stuck_are_reported_in_health_and_continue_later_on_postgres",
    "topics::events_become_one_entry",
];
/// This crate compiles sources of the crate `live` for the model checker. Only its tests with the prefix
/// [`MODEL_SUITE`] run here; the other tests of these sources run in `live`.
const MODEL_TESTS: &str = "live-model";
const MODEL_SUITE: &str = "model::";

/// The engines of a profile, as names of `bongsu_engines::ENGINES`.
pub(crate) fn engines(profile: &str) -> [&'static str; 2] {
    if profile == CLUSTER { ["cluster", "mariadb"] } else { ["redis", "postgres"] }
}

/// The prefixes in the lists above that no test begins with: a suite that was renamed would no longer run on its
/// profiles.
pub(crate) fn unused_prefixes(tests: &[(&str, &str)]) -> Vec<&'static str> {
    let is_used = |executable: &str, start: &str| {
        tests.iter().any(|(name, test)| *name == executable && test.starts_with(start))
    };
    let suites =
        [&ENGINE_SUITES[..], &EMBEDDED_ONLY, &CLUSTER_SUITES, &SPLIT_SUITES, &SPLIT_SAMPLES].concat();
    let mut unused_prefixes: Vec<_> = suites.into_iter().filter(|suite| !is_used(HUB_TESTS, suite)).collect();
    if !is_used(MODEL_TESTS, MODEL_SUITE) {
        unused_prefixes.push(MODEL_TESTS);
    }
    unused_prefixes
}

/// The profiles of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profiles {
    Embedded,
    /// Every profile, with [`CLUSTER_SUITES`] on the Cluster and [`SPLIT_SAMPLES`] with the roles in separate
    /// processes.
    All,
    /// Every profile, with all tests of the Redis profile also on the Cluster, and all tests that can be split with the
    /// roles in separate processes.
    Prove,
}

/// The profiles that a test runs on; None is the embedded profile.
pub(crate) fn for_test(executable: &str, test: &str, profiles: Profiles) -> Vec<Option<&'static str>> {
    if executable == MODEL_TESTS && !test.starts_with(MODEL_SUITE) {
        return Vec::new();
    }
    let begins_with = |suites: &[&str]| suites.iter().any(|suite| test.starts_with(suite));
    let mut test_profiles = vec![None];
    if profiles == Profiles::Embedded || executable != HUB_TESTS {
        return test_profiles;
    }
    let is_proving = profiles == Profiles::Prove;
    if begins_with(&ENGINE_SUITES) && !begins_with(&EMBEDDED_ONLY) {
        test_profiles.push(Some(REDIS));
        test_profiles.extend((is_proving || begins_with(&CLUSTER_SUITES)).then_some(Some(CLUSTER)));
    }
    let can_be_split = begins_with(&SPLIT_SUITES) && !NOT_SPLIT.iter().any(|part| test.contains(part));
    test_profiles
        .extend((can_be_split && (is_proving || begins_with(&SPLIT_SAMPLES))).then_some(Some(SPLIT)));
    test_profiles
}

/// The name of a test with its profile in front; without one for the embedded profile.
pub(crate) fn name_on(profile: Option<&str>, test: &str) -> String {
    profile.map_or_else(|| test.to_owned(), |profile| format!("{profile}: {test}"))
}

/// Splits a name that [`name_on`] made into profile and test.
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
    fn every_test_has_its_profiles() {
        let counts = |executable: &str, test: &str| {
            [Profiles::Embedded, Profiles::All, Profiles::Prove]
                .map(|run| for_test(executable, test, run).len())
        };
        for test in ["rooms_once::c", "rooms_publish::batch::d", "inbox::large::on_the_embedded_engine"] {
            assert_eq!(counts(HUB_TESTS, test), [1, 3, 3], "{test}");
        }
        assert_eq!(counts(HUB_TESTS, "inbox::stream::b"), [1, 3, 4]);
        assert_eq!(counts(HUB_TESTS, "inbox::exact::follow_up_records_become_one_entry_each"), [1, 4, 4]);
        for test in ["outbox::postgres::a_silent_stream_pings", "inbox::away::a_stream", "outbox::gaps::a"] {
            assert_eq!(counts(HUB_TESTS, test), [1, 1, 2], "{test}");
        }
        assert_eq!(for_test(HUB_TESTS, SPLIT_SAMPLES[7], Profiles::All), [None, Some(SPLIT)]);
        for test in ["rooms_seam::a", "rooms_stream::position::b", "drain::c", "browser::d"] {
            assert_eq!(counts(HUB_TESTS, test), [1, 2, 3], "{test}");
        }
        // These tests start their own engines, or do not depend on the engine: they run only once.
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
    fn a_renamed_suite_is_reported() {
        let mut tests: Vec<(&str, &str)> = ENGINE_SUITES.iter().map(|suite| (HUB_TESTS, *suite)).collect();
        let others = EMBEDDED_ONLY.iter().chain(&CLUSTER_SUITES).chain(&SPLIT_SUITES).chain(&SPLIT_SAMPLES);
        tests.extend(others.map(|suite| (HUB_TESTS, *suite)));
        assert_eq!(unused_prefixes(&tests), [MODEL_TESTS]);
        tests.push((MODEL_TESTS, "model::a"));
        assert_eq!(unused_prefixes(&tests), [""; 0]);
        tests.retain(|(_, test)| *test != "browser");
        assert_eq!(unused_prefixes(&tests), ["browser"]);
    }

    #[test]
    fn names_carry_their_profile() {
        for profile in [None, Some("redis")] {
            let name = name_on(profile, "bongsu/it rooms_seam::a");
            assert_eq!(split_name(&name), (profile, "bongsu/it rooms_seam::a"));
        }
    }
}
