//! How big a run is: the same tests in three sizes, and what happens when an engine is missing.
//!
//! Nothing is skipped silently: in CI a missing engine is a failure, elsewhere one line names what did not run.

use std::path::PathBuf;
use std::sync::{Once, OnceLock};

use bongsu_engines::programs;
use bongsu_engines::sql::beside_postgres;

use crate::say;

/// The size of the run, from `BONGSU_TEST_TIER` (`quick`, `full`, `prove`; full when unset).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// No engines, small numbers.
    Quick,
    /// Engines, small numbers.
    Full,
    /// Engines, full numbers.
    Prove,
}

impl Tier {
    pub fn current() -> Self {
        match std::env::var("BONGSU_TEST_TIER") {
            Ok(name) => Self::named(&name),
            Err(_) => Self::Full,
        }
    }

    fn named(name: &str) -> Self {
        match name {
            "quick" => Self::Quick,
            "full" | "" => Self::Full,
            "prove" => Self::Prove,
            other => panic!("BONGSU_TEST_TIER is {other:?}; allowed: quick, full, prove"),
        }
    }
}

/// The number to use now: `test` in the quick and full tiers, `prove` in the prove tier.
pub fn size(test: usize, prove: usize) -> usize {
    if Tier::current() == Tier::Prove { prove } else { test }
}

/// Whether a test that needs `engine` can run. `chromium` means the browser and its driver, `redis` the server and
/// its command line, `sentinel` these and the Sentinel, `postgres` and `mariadb` the server, what makes its folder and
/// its command line, any other name a [`program`].
///
/// The quick tier uses no engines. In the others a missing one panics when `CI=true`, else it is named on one line.
pub fn needs_engine(engine: &str) -> bool {
    let in_ci = std::env::var("CI").is_ok_and(|ci| !ci.is_empty() && ci != "false");
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    match decide(engine, Tier::current(), &missing_programs(engine), in_ci) {
        Verdict::Run => true,
        Verdict::LeaveOut(reason) => {
            say(&format!("NOT RUN: {reason}"));
            false
        }
        Verdict::Fail(reason) => panic!("{test} cannot run: {reason}"),
    }
}

/// Says that the calling test counts events. The runner gives it no second attempt: a loss must not pass as bad luck.
pub fn counts_events() {
    static SAID: Once = Once::new();
    SAID.call_once(|| say("COUNTS EVENTS"));
}

/// Reports that the calling test means nothing on the engine or adapter at hand. The runner counts it as not applicable
/// instead of passed.
pub fn not_applicable(reason: &str) {
    say(&format!("NOT APPLICABLE: {reason}"));
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Run,
    LeaveOut(String),
    Fail(String),
}

fn decide(engine: &str, tier: Tier, missing: &[String], in_ci: bool) -> Verdict {
    let reason = format!("it needs {engine}, and {} is missing", missing.join(" and "));
    match (tier, missing.is_empty(), in_ci) {
        (Tier::Quick, ..) => Verdict::LeaveOut(format!("it needs {engine}, which the quick tier leaves out")),
        (_, true, _) => Verdict::Run,
        (_, false, false) => Verdict::LeaveOut(reason),
        (_, false, true) => Verdict::Fail(reason),
    }
}

/// Which programs of an engine, by the names of [`needs_engine`], are not there.
pub fn missing_programs(engine: &str) -> Vec<String> {
    let programs = match engine {
        "chromium" => vec![program("chromedriver"), program("chromium")],
        "redis" | "cluster" => vec![program("redis-server"), program("redis-cli")],
        "postgres" => ["postgres", "initdb", "psql"].map(beside_postgres).to_vec(),
        "mariadb" => vec![program("mariadbd"), program("mariadb-install-db"), program("mariadb")],
        "sentinel" => vec![program("redis-server"), program("redis-cli"), program("redis-sentinel")],
        "nginx" => vec![program("nginx"), program("openssl")],
        other => vec![program(other)],
    };
    programs.iter().filter(|path| !path.is_file()).map(|path| path.display().to_string()).collect()
}

/// Where a program is; its bare name when it is nowhere.
pub fn program(name: &str) -> PathBuf {
    programs::path(name)
}

/// The run's seed: `BONGSU_SEED`, else a random one; printed once, the same for the whole process.
pub fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| {
        let seed = match std::env::var("BONGSU_SEED") {
            Ok(text) => text.parse().unwrap_or_else(|_| panic!("BONGSU_SEED is {text:?}, not a number")),
            Err(_) => getrandom::u64().expect("the system gives random bytes"),
        };
        say(&format!("seed: BONGSU_SEED={seed}"));
        seed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_tier_uses_no_engine() {
        assert!(matches!(decide("sh", Tier::Quick, &[], true), Verdict::LeaveOut(_)));
        assert_eq!(decide("sh", Tier::Full, &missing_programs("sh"), true), Verdict::Run);
    }

    #[test]
    fn a_missing_engine_is_named_and_fails_in_ci() {
        let missing = missing_programs("no-such-program");
        let reason = "it needs an engine, and no-such-program is missing".to_owned();
        for tier in [Tier::Full, Tier::Prove] {
            assert_eq!(decide("an engine", tier, &missing, false), Verdict::LeaveOut(reason.clone()));
            assert_eq!(decide("an engine", tier, &missing, true), Verdict::Fail(reason.clone()));
        }
    }

    #[test]
    fn seeds_stay_the_same_in_one_process() {
        assert_eq!(seed(), seed());
        assert_eq!(crate::Rng::for_test("a").next_u64(), crate::Rng::for_test("a").next_u64());
        assert_ne!(crate::Rng::for_test("a").next_u64(), crate::Rng::for_test("b").next_u64());
    }

    #[test]
    fn tiers_are_read_by_name() {
        assert_eq!(
            [Tier::named("quick"), Tier::named("full"), Tier::named("prove")],
            [Tier::Quick, Tier::Full, Tier::Prove]
        );
    }
}
