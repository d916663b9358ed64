//! The size of a run: the same tests in three sizes, and the treatment of missing engines.
//!
//! No test is skipped silently: in CI a missing engine is a failure, elsewhere a printed line names it.

use std::path::PathBuf;
use std::sync::{Once, OnceLock};

use bongsu_engines::programs;
use bongsu_engines::sql::postgres_program;

use crate::print_line;

/// The size of the run, from `BONGSU_TEST_TIER` (`quick`, `full`, `prove`; full when unset).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// No engines, small test sizes.
    Quick,
    /// Engines, small test sizes.
    Full,
    /// Engines, full test sizes.
    Prove,
}

impl Tier {
    pub fn current() -> Self {
        match std::env::var("BONGSU_TEST_TIER") {
            Ok(name) => Self::parse(&name),
            Err(_) => Self::Full,
        }
    }

    fn parse(name: &str) -> Self {
        match name {
            "quick" => Self::Quick,
            "full" | "" => Self::Full,
            "prove" => Self::Prove,
            other => panic!("BONGSU_TEST_TIER is {other:?}; allowed: quick, full, prove"),
        }
    }
}

/// The size for this run: `test` in the quick and full tiers, `prove` in the prove tier.
pub fn size(test: usize, prove: usize) -> usize {
    if Tier::current() == Tier::Prove { prove } else { test }
}

/// Whether a test that needs `engine` can run. `chromium` is the browser and its driver; `redis` and `cluster` are the
/// server and its command line client; `sentinel` is these two and the Sentinel; `postgres` and `mariadb` are the
/// server, the program that initializes its folder, and the command line client; `nginx` is nginx and openssl; any
/// other name is a [`program`].
///
/// The quick tier uses no engines. In the other tiers a missing engine is a panic if `CI` is set, else a printed line.
pub fn needs_engine(engine: &str) -> bool {
    let in_ci = std::env::var("CI").is_ok_and(|ci| !ci.is_empty() && ci != "false");
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    match decide(engine, Tier::current(), &missing_programs(engine), in_ci) {
        Verdict::Run => true,
        Verdict::Skip(reason) => {
            print_line(&format!("NOT RUN: {reason}"));
            false
        }
        Verdict::Fail(reason) => panic!("{test} cannot run: {reason}"),
    }
}

/// Declares that the calling test counts events. The test runner gives such a test no second attempt, because a
/// repeated run could hide a lost event.
pub fn counts_events() {
    static PRINT_ONCE: Once = Once::new();
    PRINT_ONCE.call_once(|| print_line("COUNTS EVENTS"));
}

/// Reports that the calling test does not apply to the engine or adapter of this run. The test runner counts it as not
/// applicable instead of passed.
pub fn not_applicable(reason: &str) {
    print_line(&format!("NOT APPLICABLE: {reason}"));
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Run,
    Skip(String),
    Fail(String),
}

fn decide(engine: &str, tier: Tier, missing: &[String], in_ci: bool) -> Verdict {
    let reason = format!("it needs {engine}, and {} is missing", missing.join(" and "));
    match (tier, missing.is_empty(), in_ci) {
        (Tier::Quick, ..) => Verdict::Skip(format!("it needs {engine}, which the quick tier leaves out")),
        (_, true, _) => Verdict::Run,
        (_, false, false) => Verdict::Skip(reason),
        (_, false, true) => Verdict::Fail(reason),
    }
}

/// The programs of an engine (names as in [`needs_engine`]) that are not installed.
pub fn missing_programs(engine: &str) -> Vec<String> {
    let programs = match engine {
        "chromium" => vec![program("chromedriver"), program("chromium")],
        "redis" | "cluster" => vec![program("redis-server"), program("redis-cli")],
        "postgres" => ["postgres", "initdb", "psql"].map(postgres_program).to_vec(),
        "mariadb" => vec![program("mariadbd"), program("mariadb-install-db"), program("mariadb")],
        "sentinel" => vec![program("redis-server"), program("redis-cli"), program("redis-sentinel")],
        "nginx" => vec![program("nginx"), program("openssl")],
        other => vec![program(other)],
    };
    programs.iter().filter(|path| !path.is_file()).map(|path| path.display().to_string()).collect()
}

/// The path of a program; its bare name if it is not installed.
pub fn program(name: &str) -> PathBuf {
    programs::path(name)
}

/// The seed of the run: `BONGSU_SEED`, else a random number. It is the same for the whole process and printed once.
pub fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| {
        let seed = match std::env::var("BONGSU_SEED") {
            Ok(text) => text.parse().unwrap_or_else(|_| panic!("BONGSU_SEED is {text:?}, not a number")),
            Err(_) => getrandom::u64().expect("cannot read random bytes from the system"),
        };
        print_line(&format!("seed: BONGSU_SEED={seed}"));
        seed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_tier_uses_no_engine() {
        assert!(matches!(decide("sh", Tier::Quick, &[], true), Verdict::Skip(_)));
        assert_eq!(decide("sh", Tier::Full, &missing_programs("sh"), true), Verdict::Run);
    }

    #[test]
    fn a_missing_engine_is_named_and_fails_in_ci() {
        let missing = missing_programs("no-such-program");
        let reason = "it needs an engine, and no-such-program is missing".to_owned();
        for tier in [Tier::Full, Tier::Prove] {
            assert_eq!(decide("an engine", tier, &missing, false), Verdict::Skip(reason.clone()));
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
            [Tier::parse("quick"), Tier::parse("full"), Tier::parse("prove")],
            [Tier::Quick, Tier::Full, Tier::Prove]
        );
    }
}
