//! A database server that a fleet shares: PostgreSQL, or MariaDB and MySQL.
//!
//! Every transaction runs as a task of its own on the runtime that opened the server, so it is finished even if its
//! caller is dropped. Its time limit is five seconds. A connection returns to the pool only when it certainly has no
//! statement in progress.

mod connection;
mod durability;
mod listen_notify;
mod migrate;
mod mysql;
mod numeric;
mod pool;
mod postgres;
mod transact;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_kernel::findings::{Findings, Inspection};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, clock, lock, random};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use crate::{DatabaseAddress, DatabaseLock, Dialect, Error, Migrations, Options, Records, Result};
pub(crate) use connection::AccessMode;
use connection::{ServerConnection, ServerError};
pub(crate) use pool::Session;
use pool::{Pool, PoolKind};

/// How long a start tries to connect to the server.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a start, or a check after an outage, waits until another session releases the database lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3);
/// Time between two attempts to connect or to take the lock at a start.
const RETRY_DELAY: Duration = Duration::from_millis(250);
/// Time limit of one attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two checks of the server.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit of one check, with reconnecting.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

const OUTAGE: &str = "the database cannot be reached: requests that need it fail";

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Server(Arc<Inner>, PoolKind);

struct Inner {
    dialect: Dialect,
    pool: Pool,
    /// Runs the transactions: a connection works only as long as the runtime on which it was opened.
    runtime: Handle,
    findings: Findings,
    /// Used only by the check, so that a busy pool does not look like an outage. Holds the database lock.
    watch_connection: tokio::sync::Mutex<Option<ServerConnection>>,
    is_outage_logged: AtomicBool,
    /// The lock that this process holds, and the supervisor that ends this process when another one has taken
    /// the lock.
    lock: Option<(DatabaseLock, Supervisor)>,
    /// When the current series of refusals of the lock began. None if the last attempt was not refused.
    lock_refused_since: Mutex<Option<Instant>>,
}

/// A server that is locked and may be migrated. Neither making nor dropping this value changes the database.
pub struct PreparedServer {
    /// Holds the database lock, and the lock that keeps other hubs from migrating.
    connection: ServerConnection,
    options: Options,
    migrations: Migrations,
    lock: Option<DatabaseLock>,
    plan: migrate::MigrationPlan,
}

impl PreparedServer {
    /// Connects within ten seconds, takes the locks, and runs all checks that may refuse this process or its
    /// migrations.
    ///
    /// While this process runs, `lock` excludes processes with which it exchanges no messages. If another
    /// process takes the lock during an outage of the server, this process shuts down. On MariaDB and MySQL
    /// an exclusive lock is granted even while processes with a shared one run.
    pub async fn connect(
        options: &Options,
        migrations: &Migrations,
        lock: Option<DatabaseLock>,
    ) -> Result<Self> {
        let address = &options.address;
        let mut connection = connect_with_retries(address).await?;
        if let Some(lock) = lock {
            acquire_lock(&mut connection, lock, address).await?;
        }
        let plan = migrate::lock_and_plan(&mut connection, migrations, address).await?;
        Ok(Self { connection, options: options.clone(), migrations: migrations.clone(), lock, plan })
    }

    /// The id of this database, which does not depend on its address. [`PreparedServer::migrate`] stores the
    /// id in a database that has none.
    pub fn identity(&self) -> &str {
        &self.plan.identity
    }

    /// Brings the server to this version's schema.
    pub async fn migrate(mut self, supervisor: &Supervisor) -> Result<Records> {
        migrate::apply(&mut self.connection, &self.plan, &self.migrations, &self.options.address).await?;
        let lock = self.lock.map(|lock| (lock, supervisor.clone()));
        let server = Server::start(self.connection, &self.options, lock, supervisor).await;
        Ok(Records::on(server).with_names(self.migrations.names().clone()))
    }
}

impl Server {
    /// Connects within ten seconds, without migrating: refuses a schema that is not this version's.
    pub(crate) async fn open_as_is(
        options: &Options,
        migrations: &Migrations,
        supervisor: &Supervisor,
    ) -> Result<Self> {
        let mut connection = connect_with_retries(&options.address).await?;
        migrate::check_complete(&mut connection, migrations, &options.address).await?;
        Ok(Self::start(connection, options, None, supervisor).await)
    }

    async fn start(
        connection: ServerConnection,
        options: &Options,
        lock: Option<(DatabaseLock, Supervisor)>,
        supervisor: &Supervisor,
    ) -> Self {
        let inner = Arc::new(Inner {
            dialect: options.address.dialect(),
            pool: Pool::new(options),
            runtime: Handle::current(),
            findings: Findings::default(),
            watch_connection: tokio::sync::Mutex::new(Some(connection)),
            is_outage_logged: AtomicBool::new(false),
            lock,
            lock_refused_since: Mutex::default(),
        });
        let this = Self(inner, PoolKind::Shared);
        this.check().await;
        let check = |server: Self| async move { server.check().await };
        supervisor.every("database-watch", CHECK_INTERVAL, &this, check);
        this
    }

    /// The same server, with the connections that are reserved for a few loops.
    pub(crate) fn reserved_pool(&self) -> Self {
        Self(self.0.clone(), PoolKind::Reserved)
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.0.dialect
    }

    pub(crate) fn outage(&self) -> Option<&'static str> {
        self.0.pool.is_unavailable().then_some(OUTAGE)
    }

    pub(crate) fn warnings(&self) -> Vec<&'static str> {
        self.0.findings.warnings()
    }

    /// Opens the connection that checks the server, and takes the database lock again on it. A refused lock
    /// counts as an outage for [`LOCK_TIMEOUT`], because the server may not have released the lock of the
    /// lost connection yet.
    async fn open_watch_connection(&self) -> Result<ServerConnection, ServerError> {
        let first_refusal = || lock(&self.0.lock_refused_since);
        // Cleared before connecting, so that a failed connection ends the series of refusals: a server that
        // could not be reached may have kept the lock of the lost connection until now.
        let refused_since = first_refusal().take();
        let mut connection = ServerConnection::connect(self.0.pool.address()).await?;
        let Some((lock, supervisor)) = &self.0.lock else { return Ok(connection) };
        if connection.try_lock(*lock).await? {
            return Ok(connection);
        }
        let refused_since = *first_refusal().insert(refused_since.unwrap_or_else(Instant::now));
        if refused_since.elapsed() > LOCK_TIMEOUT {
            tracing::error!("another process has taken the database lock; shutting down");
            supervisor.fail("database-claim");
        }
        Err(ServerError::Conflict("another session holds the database lock".to_owned()))
    }

    async fn check_connection(&self, connection: &mut ServerConnection) -> Result<(), ServerError> {
        connection.query_raw("SELECT 1").await?;
        durability::check(&self.0.findings, connection).await
    }

    /// Checks whether the server answers, and whether its settings are safe.
    async fn check(&self) {
        let inner = &self.0;
        let mut watch_connection = inner.watch_connection.lock().await;
        let checked = timeout(CHECK_TIMEOUT, async {
            if let Some(mut connection) = watch_connection.take() {
                if self.check_connection(&mut connection).await.is_ok() {
                    *watch_connection = Some(connection);
                    return Ok(());
                }
                // A closed connection does not mean that the server is down: a server that accepts a new one is up. The
                // next check takes the lock again, after the server has released the lock of the closed connection.
                let mut probe = ServerConnection::connect(inner.pool.address()).await?;
                return self.check_connection(&mut probe).await;
            }
            let mut connection = self.open_watch_connection().await?;
            self.check_connection(&mut connection).await?;
            *watch_connection = Some(connection);
            Ok::<_, ServerError>(())
        });
        let timed_out = || ServerError::Broken(format!("no answer within {} s", CHECK_TIMEOUT.as_secs()));
        match checked.await.unwrap_or_else(|_| Err(timed_out())) {
            Ok(()) => {
                inner.pool.mark_available();
                if inner.is_outage_logged.swap(false, Ordering::AcqRel) {
                    tracing::info!("the database can be reached again");
                }
            }
            Err(error) => {
                inner.pool.mark_unavailable(&error);
                inner.findings.invalidate();
                if !inner.is_outage_logged.swap(true, Ordering::AcqRel) {
                    tracing::error!(%error, "failed to reach the database; retrying");
                }
            }
        }
    }
}

/// Inspects a server for `bongsu doctor`, without changing it: whether this program may use it, its unsafe settings, and
/// the skew of its clock.
pub async fn inspect_server(address: &DatabaseAddress, migrations: &Migrations) -> Result<Inspection> {
    let mut connection = connect_with_retries(address).await?;
    migrate::check(&mut connection, migrations, address).await?;
    let findings = Findings::default();
    let unusable = |error: ServerError| unusable(address, &error);
    durability::check(&findings, &mut connection).await.map_err(unusable)?;
    let clock = Clock::system();
    let before = clock.now();
    let time = connection.time().await.map_err(unusable)?;
    let clock_skew_ms = clock::skew_ms(before, time, clock.now());
    Ok(Inspection { warnings: findings.warnings(), clock_skew_ms })
}

/// Takes the database lock. It belongs to the session of this connection, so the server releases it when the process
/// ends.
async fn acquire_lock(
    connection: &mut ServerConnection,
    lock: DatabaseLock,
    address: &DatabaseAddress,
) -> Result<()> {
    let started = Instant::now();
    while !connection.try_lock(lock).await.map_err(|error| unusable(address, &error))? {
        // The server may not yet have released the lock of a process that was just killed.
        if started.elapsed() > LOCK_TIMEOUT {
            return Err(Error::DatabaseInUse(address.to_string()));
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
    Ok(())
}

/// Opens the first connection of a start. Retries until `STARTUP_TIMEOUT`, but not after a refused login.
async fn connect_with_retries(address: &DatabaseAddress) -> Result<ServerConnection> {
    let deadline = Instant::now() + STARTUP_TIMEOUT;
    loop {
        let error = match timeout(CONNECT_TIMEOUT, ServerConnection::connect(address)).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => error,
            Err(_) => ServerError::Broken(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs())),
        };
        if matches!(error, ServerError::AccessDenied(_)) || Instant::now() >= deadline {
            return Err(unusable(address, &error));
        }
        let jitter = Duration::from_millis(random::between(0, 100));
        tokio::time::sleep(RETRY_DELAY + jitter).await;
    }
}

fn unusable(address: &DatabaseAddress, error: &ServerError) -> Error {
    Error::ServerUnusable(address.to_string(), error.to_string())
}
