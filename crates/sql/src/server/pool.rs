//! A pool of connections, with a maximum number in use.
//!
//! A [`Session`] has a connection of the pool. Only [`Pool::put_back`] returns the connection. When the session is
//! dropped instead, by an error, a timeout or a panic, the connection is closed and the server rolls back the
//! transaction. While the server is unavailable, [`Pool::begin`] fails at once, and only the periodic check tries to
//! connect. A few connections are reserved for loops that all streams depend on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bongsu_kernel::lock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::CONNECT_TIMEOUT;
use super::connection::{AccessMode, ServerConnection, ServerError};
use crate::query::RenderedQuery;
use crate::{DatabaseAddress, Error, Options, Result, Row, Value};

/// Connections beyond the configured maximum, for the few loops that use [`PoolKind::Reserved`].
const RESERVED_CONNECTIONS: usize = 3;

/// Which connections a transaction may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolKind {
    /// The connections of requests and of most loops.
    Shared,
    /// The connections that requests cannot use up.
    Reserved,
}

pub(crate) struct Pool {
    address: DatabaseAddress,
    permits: Arc<Semaphore>,
    reserved_permits: Arc<Semaphore>,
    idle: Mutex<Vec<ServerConnection>>,
    is_unavailable: AtomicBool,
    /// Why the server is unavailable.
    outage_reason: Mutex<String>,
}

/// A connection with an open transaction.
pub(crate) struct Session {
    pub(crate) connection: ServerConnection,
    /// The last error of a statement, if any.
    pub(crate) error: Option<ServerError>,
    /// COMMIT was sent: only the server knows whether the change is stored.
    pub(crate) commit_sent: bool,
    _permit: OwnedSemaphorePermit,
}

impl Session {
    pub(crate) async fn run(&mut self, query: &RenderedQuery, values: &[&Value]) -> Result<u64> {
        let result = self.connection.run(query, values).await;
        result.map_err(|error| self.remember(error))
    }

    pub(crate) async fn rows(&mut self, query: &RenderedQuery, values: &[&Value]) -> Result<Vec<Row>> {
        let result = self.connection.rows(query, values).await;
        result.map_err(|error| self.remember(error))
    }

    fn remember(&mut self, error: ServerError) -> Error {
        self.error = Some(error.clone());
        error.into()
    }
}

impl Pool {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            address: options.address.clone(),
            permits: Arc::new(Semaphore::new(options.max_connections)),
            reserved_permits: Arc::new(Semaphore::new(RESERVED_CONNECTIONS)),
            idle: Mutex::default(),
            is_unavailable: AtomicBool::new(false),
            outage_reason: Mutex::default(),
        }
    }

    pub(crate) fn address(&self) -> &DatabaseAddress {
        &self.address
    }

    pub(crate) fn is_unavailable(&self) -> bool {
        self.is_unavailable.load(Ordering::Acquire)
    }

    pub(crate) fn mark_available(&self) {
        self.is_unavailable.store(false, Ordering::Release);
    }

    /// Also closes the idle connections: the server has closed them, or does not answer on them.
    pub(crate) fn mark_unavailable(&self, error: &ServerError) {
        *lock(&self.outage_reason) = error.to_string();
        self.is_unavailable.store(true, Ordering::Release);
        lock(&self.idle).clear();
    }

    /// Returns a connection on which a transaction has begun.
    pub(crate) async fn begin(&self, mode: AccessMode, kind: PoolKind, deadline: Instant) -> Result<Session> {
        if self.is_unavailable() {
            let reason = lock(&self.outage_reason).clone();
            return Err(Error::Unavailable(reason));
        }
        let begun = timeout_at(deadline, async {
            let permits = if kind == PoolKind::Reserved { &self.reserved_permits } else { &self.permits };
            let permit = permits.clone().acquire_owned().await.map_err(|_| Error::Closed)?;
            let session =
                |connection| Session { connection, error: None, commit_sent: false, _permit: permit };
            // The server may have closed idle connections. Their BEGIN fails before any work is sent, so the
            // next connection is tried.
            while let Some(mut connection) = self.next_idle() {
                if connection.begin(mode).await.is_ok() {
                    return Ok(session(connection));
                }
            }
            let mut connection = self.connect().await?;
            connection.begin(mode).await.map_err(Error::from)?;
            Ok(session(connection))
        });
        begun.await.unwrap_or_else(|_| {
            Err(Error::Unavailable("timed out waiting for a free connection or for BEGIN".to_owned()))
        })
    }

    pub(crate) fn put_back(&self, session: Session) {
        if !self.is_unavailable() {
            lock(&self.idle).push(session.connection);
        }
    }

    fn next_idle(&self) -> Option<ServerConnection> {
        lock(&self.idle).pop()
    }

    async fn connect(&self) -> Result<ServerConnection> {
        let timed_out = || ServerError::Broken(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()));
        let connected = timeout(CONNECT_TIMEOUT, async {
            let mut connection = ServerConnection::connect(&self.address).await?;
            connection.set_limits().await?;
            Ok(connection)
        });
        match connected.await.unwrap_or_else(|_| Err(timed_out())) {
            Ok(connection) => Ok(connection),
            Err(error) => {
                // A server with too many connections, or one that denies the login, is up: open connections still work.
                if matches!(error, ServerError::Broken(_)) {
                    self.mark_unavailable(&error);
                }
                Err(Error::Unavailable(error.to_string()))
            }
        }
    }
}
