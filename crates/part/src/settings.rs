//! The settings of all parts and of the engines, and which parts run.
//!
//! [`Parts::check`] refuses combinations that cannot work before any file or server is opened.

use bongsu_http::{identity, server};
use bongsu_kernel::settings::{Kind, Scope, Setting, SettingError, Values};
use bongsu_kernel::telemetry;
use bongsu_redis::REDIS_URL;
use bongsu_sql::{DATA_DIR, DATABASE_URL, Query};

use crate::Part;
use crate::roles::{ROLES, Roles};

bongsu_kernel::settings! { "storage":
    IDEMPOTENCY_MAX_KEYS = "2000000", integer(1_000, 1_000_000_000):
        "Maximum number of idempotency keys of all rooms together. Each is kept for 24 hours; above the limit, the oldest are removed earlier. A key takes about 200 bytes on disk, or 400 in Redis.";
}

bongsu_kernel::settings! { "engines":
    /// Whether there is a store of records. Features that need records answer 503 without it.
    pub(crate) RECORDS = "on", scope(Scope::Instance), kind(Kind::OneOf(&["on", "off"])):
        "off: the hub keeps no records in SQL, and requests that need records (registered rooms, the inbox, applications) answer 503. Allowed only with REDIS_URL and without DATABASE_URL; several instances then require off.";
}

/// Settings of engines that this build does not have. Setting one stops the start.
const MISSING_ENGINES: &[&Setting] = &[
    &Setting::text("engines", "AMQP_URL", "", "Must be unset: this build has no work queues on RabbitMQ.")
        .scope(Scope::Instance)
        .kind(Kind::Url),
    &Setting::text(
        "engines",
        "KAFKA_BROKERS",
        "",
        "Must be unset: this build has no domain events on Kafka.",
    )
    .scope(Scope::Instance),
];

/// The parts of a program, in the order in which they start: a part comes after those whose handles it uses.
#[derive(Clone, Copy)]
pub struct Parts(pub &'static [&'static Part]);

impl Parts {
    /// Every setting, in the order of the settings reference.
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
        all.extend(MISSING_ENGINES);
        all
    }

    /// All queries of the engines and parts.
    pub fn queries(self) -> Vec<&'static Query> {
        let parts = self.0.iter().flat_map(|part| part.queries);
        let engines = [bongsu_coordination::access_commands::records::QUERIES, bongsu_queue::store::QUERIES];
        bongsu_sql::queries().chain(engines.into_iter().flatten().chain(parts).copied()).collect()
    }

    /// The parts that run in this process.
    pub fn running(self, roles: &Roles) -> impl Iterator<Item = &'static Part> {
        self.0.iter().copied().filter(|part| !part.is_application || roles.runs(part.name))
    }

    /// Refuses settings that cannot work, without opening a file or a server. Returns the roles of the process.
    pub fn check(self, values: &Values) -> Result<Roles, SettingError> {
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

/// Refuses the settings of an engine that this build does not have, instead of ignoring them.
pub fn check_engines(values: &Values) -> Result<(), SettingError> {
    match MISSING_ENGINES.iter().find(|engine| values.get(engine).is_some()) {
        Some(engine) => Err(SettingError(format!(
            "{} is set, but this build does not support this engine: unset it",
            engine.name
        ))),
        None => Ok(()),
    }
}

/// Whether there is a store of records.
pub fn keeps_records(values: &Values) -> bool {
    values.text(&RECORDS) == "on"
}

/// Whether the data folder is used: for events without Redis, or for records without a database server.
pub fn uses_folder(values: &Values) -> bool {
    let is_set = |setting| values.get(setting).is_some();
    !is_set(&REDIS_URL) || (keeps_records(values) && !is_set(&DATABASE_URL))
}

fn check_records(values: &Values, on_redis: bool, on_database: bool) -> Result<(), SettingError> {
    if keeps_records(values) {
        return Ok(());
    }
    if on_database {
        return Err(values.not_allowed(&RECORDS, "use on while DATABASE_URL is set, or unset DATABASE_URL"));
    }
    if !on_redis {
        let allowed = "use on while REDIS_URL is unset, because events are then kept in the data folder";
        return Err(values.not_allowed(&RECORDS, allowed));
    }
    Ok(())
}

/// Maximum number of stored idempotency keys, over all rooms.
pub(crate) fn max_idempotency_keys(values: &Values) -> u64 {
    values.integer(&IDEMPOTENCY_MAX_KEYS)
}
