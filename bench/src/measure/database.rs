//! Where the records of a measurement are: the data folder, or a server with a Redis beside it, as a fleet has them.
//! Both are as durable as in production: an acknowledged change is on the disk.

use crate::Result;
use crate::measure::progress;
use crate::measure::redis::RedisServer;
use crate::process::ScratchDir;
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::tier::missing_programs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// On a disk, which the usual folder for temporary files need not be; and PostgreSQL's own user may enter it.
const FOLDER: &str = "/var/tmp";
/// The records in a data folder, and how long one waits who is not alone there.
const FILE: &str = "bongsu.db";
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Embedded,
    Server(Flavour),
}

/// Where a database is for other programs.
#[derive(Clone)]
pub(super) enum Place {
    File(PathBuf),
    Server(Flavour, String),
}

pub(super) enum Database {
    Embedded(ScratchDir),
    Server { server: Box<Server>, url: String, redis: RedisServer },
}

impl Kind {
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
    pub(super) fn start(kind: Kind) -> Result<Self> {
        let Kind::Server(flavour) = kind else { return Ok(Self::Embedded(ScratchDir::new("records")?)) };
        let missing = missing_programs(flavour.name());
        if !missing.is_empty() {
            let missing = missing.join(" and ");
            return Err(
                format!("no {missing} for the measurement: `cargo xtask services` installs it").into()
            );
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let server = runtime.block_on(Server::start_in(Path::new(FOLDER), flavour, memory(flavour)));
        progress(&format!("{}: {}, durable", flavour.name(), server.addr()));
        let url = server.database();
        Ok(Self::Server { server: Box::new(server), url, redis: RedisServer::start()? })
    }

    /// Of a hub that keeps its records here.
    pub(super) fn settings(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Embedded(folder) => vec![("DATA_DIR", folder.path().display().to_string())],
            Self::Server { url, redis, .. } => {
                vec![("DATABASE_URL", url.clone()), ("REDIS_URL", redis.url())]
            }
        }
    }

    /// Runs SQL as another program does.
    pub(super) fn execute(&self, sql: &str) -> Result<()> {
        match self {
            Self::Embedded(folder) => {
                let file = rusqlite::Connection::open(folder.path().join(FILE))?;
                file.busy_timeout(PATIENCE)?;
                Ok(file.execute_batch(sql)?)
            }
            Self::Server { server, url, .. } => {
                server.try_execute(Server::name_in(url), sql)?;
                Ok(())
            }
        }
    }

    /// How another program reaches it.
    pub(super) fn place(&self) -> Place {
        match self {
            Self::Embedded(folder) => Place::File(folder.path().join(FILE)),
            Self::Server { server, url, .. } => Place::Server(server.flavour(), url.clone()),
        }
    }

    /// What [`Database::work`] counts.
    pub(super) fn unit(&self) -> &'static str {
        match self {
            Self::Server { server, .. } if server.flavour() == Flavour::MariaDb => "statements",
            Self::Embedded(_) | Self::Server { .. } => "transactions",
        }
    }

    /// How much the hubs have asked of the server so far; nothing where there is none. PostgreSQL's processes tell what
    /// they did within ten seconds.
    pub(super) fn work(&self) -> Result<Option<u64>> {
        let Self::Server { server, url, .. } = self else { return Ok(None) };
        let sql = match server.flavour() {
            Flavour::Postgres => format!(
                "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{}'",
                Server::name_in(url)
            ),
            Flavour::MariaDb => "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS \
                                 WHERE VARIABLE_NAME = 'QUESTIONS'"
                .to_owned(),
        };
        Ok(Some(server.try_execute("", &sql)?.trim().parse()?))
    }
}

/// The testkit's servers are small, because many tests have one of their own; a million rows would not fit.
fn memory(flavour: Flavour) -> &'static [&'static str] {
    match flavour {
        Flavour::Postgres => &["shared_buffers=256MB", "max_wal_size=1GB"],
        Flavour::MariaDb => &["innodb-buffer-pool-size=256M", "innodb-log-file-size=256M"],
    }
}
