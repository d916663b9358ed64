//! The settings of all parts and of the engines, and which parts run.
//!
//! Combinations that cannot work are refused here, before anything is touched.

use bongsu_http::{identity, server};
use bongsu_kernel::settings::{Bad, Kind, Scope, Setting, Values};
use bongsu_kernel::telemetry;
use bongsu_redis::REDIS_URL;
use bongsu_sql::{DATA_DIR, DATABASE_URL, Query};

use crate::Part;
use crate::roles::{ROLES, Roles};

bongsu_kernel::settings! { "storage":
    IDEMPOTENCY_MAX_KEYS = "2000000", whole(1_000, 1_000_000_000):
        "Idempotency keys kept at most, of all rooms together and each for 24 hours; past it the oldest go early. A key costs about 200 bytes of disk, or 400 of Redis' memory.";
}

bongsu_kernel::settings! { "engines":
    /// Whether what needs records is offered.
    pub(crate) RECORDS = "on", scope(Scope::Instance), kind(Kind::OneOf(&["on", "off"])):
        "off: nothing is kept in SQL, and what needs records (registered rooms, the inbox, applications) answers 503. A fleet on Redis without DATABASE_URL runs this way.";
}

/// Engines that are named in the configuration but are not part of this build.
const ENGINES: &[&Setting] = &[
    &Setting::text("engines", "AMQP_URL", "", "Not in this build yet: work queues on RabbitMQ.")
        .scope(Scope::Instance)
        .kind(Kind::Url),
    &Setting::text("engines", "KAFKA_BROKERS", "", "Not in this build yet: domain events on Kafka.")
        .scope(Scope::Instance),
];

/// The parts of a program, in the order in which they start: a part comes after those whose handles it uses.
#[derive(Clone, Copy)]
pub struct Parts(pub &'static [&'static Part]);

impl Parts {
    /// Every setting, in the order of the reference.
    pub fn settings(self) -> Vec<&'static Setting> {
        let mut all: Vec<&'static Setting> = Vec::new();
        all.extend(server::SETTINGS);
        all.push(&ROLES);
        all.extend(identity::SETTINGS);
        all.extend([&DATA_DIR, &IDEMPOTENCY_MAX_KEYS]);
        all.extend(bongsu_live::SETTINGS);
        all.extend(self.0.iter().flat_map(|part| part.settings));
        all.extend(bongsu_coordination::SETTINGS);
        all.push(&telemetry::RUST_LOG);
        all.extend(bongsu_redis::SETTINGS);
        all.extend(bongsu_sql::SETTINGS);
        all.push(&RECORDS);
        all.extend(ENGINES);
        all
    }

    /// Every query that a database has to understand.
    pub fn queries(self) -> Vec<&'static Query> {
        let of_parts = self.0.iter().flat_map(|part| part.queries);
        let of_engines = bongsu_coordination::orders::records::QUERIES;
        bongsu_sql::queries().chain(of_engines.iter().chain(of_parts).copied()).collect()
    }

    /// Those that run in this process.
    pub fn running(self, roles: &Roles) -> impl Iterator<Item = &'static Part> {
        self.0.iter().copied().filter(|part| !part.is_application || roles.runs(part.name))
    }

    /// Refuses settings that cannot work, without touching anything, and gives the roles of the process.
    pub fn check(self, values: &Values) -> Result<Roles, Bad> {
        let roles = Roles::from_settings(values, self)?;
        check_engines(values)?;
        let (redis, database) =
            (bongsu_redis::Options::from_settings(values)?, bongsu_sql::Options::from_settings(values)?);
        check_records(values, redis.is_some(), database.is_some())?;
        roles.check(values, redis.is_some(), database.is_some())?;
        for part in self.running(&roles) {
            (part.check)(values)?;
        }
        Ok(roles)
    }
}

/// Refuses an engine that this build does not have, instead of going on without it.
pub fn check_engines(values: &Values) -> Result<(), Bad> {
    match ENGINES.iter().find(|engine| values.given(engine).is_some()) {
        Some(engine) => Err(Bad(format!(
            "{} is set, but this build has no such engine: unset it to run embedded",
            engine.name
        ))),
        None => Ok(()),
    }
}

/// Whether there is a store of records.
pub fn keeps_records(values: &Values) -> bool {
    values.text(&RECORDS) == "on"
}

/// Whether anything is kept in the data folder: events without Redis, records without a database.
pub fn uses_folder(values: &Values) -> bool {
    let is_set = |setting| values.given(setting).is_some();
    !is_set(&REDIS_URL) || (keeps_records(values) && !is_set(&DATABASE_URL))
}

fn check_records(values: &Values, on_redis: bool, on_database: bool) -> Result<(), Bad> {
    if keeps_records(values) {
        return Ok(());
    }
    if on_database {
        return Err(Bad::value(&RECORDS, "off", "on while DATABASE_URL says where records are kept"));
    }
    if !on_redis {
        let allowed = "on while events are kept in the data folder (REDIS_URL is unset)";
        return Err(Bad::value(&RECORDS, "off", allowed));
    }
    Ok(())
}

/// How many idempotency keys are kept.
pub(crate) fn most_keys(values: &Values) -> u64 {
    values.whole(&IDEMPOTENCY_MAX_KEYS)
}
