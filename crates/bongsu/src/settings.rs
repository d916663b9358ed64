//! All settings of all parts, and where their values come from.
//!
//! Combinations that cannot work are refused here, before anything is touched.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::IpAddr;

use bongsu_http::identity;
use bongsu_http::origins::Origins;
use bongsu_http::server::{self, SERVER_HOST};
use bongsu_kernel::settings::{Bad, Input, Kind, Setting, Values, load};
use bongsu_kernel::telemetry;
use bongsu_outbox::TableNames;
use bongsu_redis::REDIS_URL;
use bongsu_sql::{DATA_DIR, DATABASE_URL, Dialect};

use crate::roles::{ROLES, Roles};

const IDEMPOTENCY_MAX_KEYS: Setting = Setting::text(
    "storage",
    "IDEMPOTENCY_MAX_KEYS",
    "2000000",
    "Idempotency keys kept at most, of all rooms together and each for 24 hours; past it the oldest go early. A key costs about 200 bytes of disk, or 400 of Redis' memory.",
)
.whole(1_000, 1_000_000_000);

/// Whether what needs records is offered.
const RECORDS: Setting = Setting::text(
    "engines",
    "RECORDS",
    "on",
    "off: nothing is kept in SQL, and what needs records (registered rooms, the inbox, applications) answers 503. A fleet on Redis without DATABASE_URL runs this way.",
)
.kind(Kind::OneOf(&["on", "off"]));

/// Engines that are named in the configuration but are not part of this build.
const ENGINES: &[&Setting] = &[
    &Setting::text("engines", "AMQP_URL", "", "Not in this build yet: work queues on RabbitMQ.")
        .kind(Kind::Url),
    &Setting::text("engines", "KAFKA_BROKERS", "", "Not in this build yet: domain events on Kafka."),
];

/// Every setting, in the order of the reference.
pub(crate) fn all() -> Vec<&'static Setting> {
    let mut all: Vec<&'static Setting> = Vec::new();
    all.extend(server::SETTINGS);
    all.push(&ROLES);
    all.extend(identity::SETTINGS);
    all.extend([&DATA_DIR, &IDEMPOTENCY_MAX_KEYS]);
    all.extend(bongsu_live::SETTINGS);
    all.extend(bongsu_rooms::SETTINGS);
    all.extend(bongsu_presence::SETTINGS);
    all.extend(bongsu_inbox::SETTINGS);
    all.extend(bongsu_members::SETTINGS);
    all.extend(bongsu_outbox::SETTINGS);
    all.extend(bongsu_coordination::SETTINGS);
    all.push(&telemetry::RUST_LOG);
    all.extend(bongsu_redis::SETTINGS);
    all.extend(bongsu_sql::SETTINGS);
    all.push(&RECORDS);
    all.extend(ENGINES);
    all
}

/// The file of environment variables in the working directory.
const ENV_FILE: &str = ".env";

/// Flags over environment over `.env` over file over defaults.
pub(crate) fn gather(flags: BTreeMap<String, String>, file: Option<&str>) -> Result<Values, Bad> {
    let file = file
        .map(|path| {
            std::fs::read_to_string(path)
                .map_err(|error| Bad(format!("the configuration file {path:?} cannot be read: {error}")))
        })
        .transpose()?;
    let settings = all();
    let mut environment = BTreeMap::new();
    for setting in &settings {
        if let Some(value) = std::env::var_os(setting.name) {
            // Going on with the default instead would be worse than ending.
            let value =
                value.into_string().map_err(|_| Bad(format!("{} is not text in UTF-8", setting.name)))?;
            environment.insert(setting.name.to_owned(), value);
        }
    }
    load(&settings, &Input { flags, environment, env_file: read_env_file()?, file })
}

/// None when there is no such file. A folder of that name is another program's.
fn read_env_file() -> Result<Option<String>, Bad> {
    match std::fs::read_to_string(ENV_FILE) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory) => Ok(None),
        Err(error) => Err(Bad(format!("the file {ENV_FILE} cannot be read: {error}"))),
    }
}

/// What serving needs beyond single values, checked without touching anything.
pub(crate) struct Checked {
    pub(crate) host: IpAddr,
    pub(crate) roles: Roles,
    pub(crate) identity: identity::Options,
    pub(crate) origins: Origins,
    pub(crate) rooms: bongsu_rooms::Options,
    pub(crate) presence: bongsu_presence::Options,
    pub(crate) people: People,
    pub(crate) outbox: bongsu_outbox::Options,
    /// Nothing: everything is embedded.
    pub(crate) redis: Option<bongsu_redis::Options>,
    /// Nothing: records are kept in the data folder, if at all.
    pub(crate) database: Option<bongsu_sql::Options>,
    /// Settings whose secrets anybody knows; good enough for loopback only.
    pub(crate) weak: Vec<&'static str>,
}

/// What people are told, and how.
pub(crate) struct People {
    pub(crate) inbox: bongsu_inbox::Options,
    pub(crate) members: bongsu_members::Options,
    pub(crate) coordination: bongsu_coordination::Options,
}

impl People {
    fn from_settings(values: &Values) -> Result<Self, Bad> {
        Ok(Self {
            inbox: bongsu_inbox::Options::from_settings(values).map_err(Bad)?,
            members: bongsu_members::Options::from_settings(values),
            coordination: bongsu_coordination::Options::from_settings(values),
        })
    }
}

pub(crate) fn check(values: &Values) -> Result<Checked, Bad> {
    let host = match values.text(&SERVER_HOST) {
        "localhost" => IpAddr::from([127, 0, 0, 1]),
        given => given
            .parse()
            .map_err(|_| Bad::value(&SERVER_HOST, given, "an IP address such as 127.0.0.1 or 0.0.0.0"))?,
    };
    let roles = Roles::from_settings(values)?;
    check_engines(values)?;
    let identity = identity::Options::from_settings(values)?;
    let weak = identity.check_secrets(values, host)?;
    let (origins, rooms) = (Origins::from_settings(values)?, bongsu_rooms::Options::from_settings(values)?);
    let redis = bongsu_redis::Options::from_settings(values)?;
    let database = bongsu_sql::Options::from_settings(values)?;
    check_combination(values, redis.is_some(), database.is_some(), &rooms)?;
    let presence = bongsu_presence::Options::from_settings(values)?;
    let people = People::from_settings(values)?;
    let usual = bongsu_live::Options::from_settings(values).manner();
    let outbox = bongsu_outbox::Options::from_settings(values, usual)?;
    let dialect = database.as_ref().map_or(Dialect::Sqlite, |options| options.address.dialect());
    TableNames::from_settings(values, dialect)?;
    Ok(Checked { host, roles, identity, origins, rooms, presence, people, outbox, redis, database, weak })
}

/// Refuses an engine that this build does not have, instead of going on without it.
pub(crate) fn check_engines(values: &Values) -> Result<(), Bad> {
    match ENGINES.iter().find(|engine| values.given(engine).is_some()) {
        Some(engine) => Err(Bad(format!(
            "{} is set, but this build has no such engine: unset it to run embedded",
            engine.name
        ))),
        None => Ok(()),
    }
}

/// Whether there is a store of records.
pub(crate) fn keeps_records(values: &Values) -> bool {
    values.text(&RECORDS) == "on"
}

/// Whether anything is kept in the data folder: events without Redis, records without a database.
pub(crate) fn uses_folder(values: &Values) -> bool {
    let is_set = |setting| values.given(setting).is_some();
    !is_set(&REDIS_URL) || (keeps_records(values) && !is_set(&DATABASE_URL))
}

/// Refuses combinations that cannot work.
fn check_combination(
    values: &Values,
    on_redis: bool,
    on_database: bool,
    rooms: &bongsu_rooms::Options,
) -> Result<(), Bad> {
    if keeps_records(values) {
        return Ok(());
    }
    if on_database {
        return Err(Bad::value(&RECORDS, "off", "on while DATABASE_URL says where records are kept"));
    }
    if !on_redis {
        return Err(Bad::value(
            &RECORDS,
            "off",
            "on while events are kept in the data folder (REDIS_URL is unset)",
        ));
    }
    if rooms.mode == bongsu_rooms::Mode::Registered {
        return Err(Bad("ROOMS_MODE is registered, which needs records: set RECORDS to on".to_owned()));
    }
    Ok(())
}

/// How many idempotency keys are kept.
pub(crate) fn most_keys(values: &Values) -> u64 {
    values.whole(&IDEMPOTENCY_MAX_KEYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_allowed_and_every_name_is_given_once() {
        let settings = all();
        let defaults = settings
            .iter()
            .filter(|setting| !setting.default.is_empty())
            .map(|setting| (setting.name.to_owned(), setting.default.to_owned()))
            .collect();
        load(&settings, &Input { environment: defaults, ..Input::default() }).unwrap();
        let mut names: Vec<_> = settings.iter().map(|setting| setting.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), settings.len());
    }
}
