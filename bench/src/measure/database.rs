//! The database with the records of a measurement: SQLite in the data folder, or a server together with a Redis server,
//! as a fleet has them. Both are as durable as in production: an acknowledged change is on the disk.

use crate::Result;
use crate::measure::progress;
use crate::measure::redis::RedisServer;
use crate::process::ScratchDir;
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::tier::missing_programs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Parent of the servers' folders: it is on a disk, unlike some folders for temporary files, and the user of PostgreSQL
/// may enter it.
const SERVER_PARENT_DIR: &str = "/var/tmp";
/// Name of the records' file in a data folder.
const DATABASE_FILE: &str = "bongsu.db";
/// How long a connection waits for the lock of the SQLite file.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy)]
pub(super) enum DatabaseKind {
    Embedded,
    Server(Flavour),
}

/// The address of a database for other programs than the hub.
#[derive(Clone)]
pub(super) enum DatabaseAddress {
    File(PathBuf),
    Server(Flavour, String),
}

pub(super) enum Database {
    Embedded(ScratchDir),
    Server { server: Box<Server>, url: String, redis: RedisServer },
}

impl DatabaseKind {
    pub(super) const ALL: [Self; 3] =
        [Self::Embedded, Self::Server(Flavour::Postgres), Self::Server(Flavour::MariaDb)];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Embedded => "SQLite",
            Self::Server(Flavour::Postgres) => "PostgreSQL",
            Self::Server(Flavour::MariaDb) => "MariaDB",
        }
    }
}

impl Database {
    pub(super) fn start(kind: DatabaseKind) -> Result<Self> {
        let DatabaseKind::Server(flavour) = kind else {
            return Ok(Self::Embedded(ScratchDir::new("records")?));
        };
        let missing = missing_programs(flavour.name());
        if !missing.is_empty() {
            let missing = missing.join(" and ");
            return Err(
                format!("no {missing} for the measurement: `cargo xtask services` installs it").into()
            );
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let server = runtime.block_on(Server::start_in(
            Path::new(SERVER_PARENT_DIR),
            flavour,
            memory_settings(flavour),
        ));
        progress(&format!("{}: {}, durable", flavour.name(), server.addr()));
        let url = server.database();
        Ok(Self::Server { server: Box::new(server), url, redis: RedisServer::start()? })
    }

    /// The settings of a hub that keeps its records in this database.
    pub(super) fn settings(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Embedded(folder) => vec![("DATA_DIR", folder.path().display().to_string())],
            Self::Server { url, redis, .. } => {
                vec![("DATABASE_URL", url.clone()), ("REDIS_URL", redis.url())]
            }
        }
    }

    /// Runs SQL over a connection of its own.
    pub(super) fn execute(&self, sql: &str) -> Result<()> {
        match self {
            Self::Embedded(folder) => {
                let file = rusqlite::Connection::open(folder.path().join(DATABASE_FILE))?;
                file.busy_timeout(BUSY_TIMEOUT)?;
                Ok(file.execute_batch(sql)?)
            }
            Self::Server { server, url, .. } => {
                server.try_execute(Server::database_name(url), sql)?;
                Ok(())
            }
        }
    }

    /// The address for other programs.
    pub(super) fn address(&self) -> DatabaseAddress {
        match self {
            Self::Embedded(folder) => DatabaseAddress::File(folder.path().join(DATABASE_FILE)),
            Self::Server { server, url, .. } => DatabaseAddress::Server(server.flavour(), url.clone()),
        }
    }

    /// The unit in which [`Database::processed_work`] counts.
    pub(super) fn work_unit(&self) -> &'static str {
        match self {
            Self::Server { server, .. } if server.flavour() == Flavour::MariaDb => "statements",
            Self::Embedded(_) | Self::Server { .. } => "transactions",
        }
    }

    /// The number of transactions or statements that the server has processed so far; None for SQLite. Processes of
    /// PostgreSQL report their transactions with a delay of up to ten seconds.
    pub(super) fn processed_work(&self) -> Result<Option<u64>> {
        let Self::Server { server, url, .. } = self else { return Ok(None) };
        let sql = match server.flavour() {
            Flavour::Postgres => format!(
                "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{}'",
                Server::database_name(url)
            ),
            Flavour::MariaDb => "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS \
                                 WHERE VARIABLE_NAME = 'QUESTIONS'"
                .to_owned(),
        };
        Ok(Some(server.try_execute("", &sql)?.trim().parse()?))
    }
}

/// Settings with more memory than the testkit's servers have, which would be too small for a million rows.
fn memory_settings(flavour: Flavour) -> &'static [&'static str] {
    match flavour {
        Flavour::Postgres => &["shared_buffers=256MB", "max_wal_size=1GB"],
        Flavour::MariaDb => &["innodb-buffer-pool-size=256M", "innodb-log-file-size=256M"],
    }
}
