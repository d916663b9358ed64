//! Records: reads and changes data that is stored either in the embedded file or on a server.
//!
//! This module runs a change on the embedded file, as a job of its writer; `server/transact.rs` runs it on a server.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::trace::{self, TraceParent};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::server::{AccessMode, PreparedServer, Server};
use crate::transaction::Inner;
use crate::{Dialect, Error, Job, Migrations, Names, Options, Query, Readers, Result, Store, Transaction};

/// A function that runs in a transaction: an `async fn(&A, &mut Transaction<'_>) -> Result<T, E>`, so `Input` is `&A`
/// and `Tx` is `&mut Transaction<'_>`. It may be called again after the first call was rolled back, so it must have no
/// side effect outside the transaction. It may await only the transaction.
pub trait Change<Input, Tx, T, E>:
    Fn(Input, Tx) -> <Self as Change<Input, Tx, T, E>>::Future + Copy + Send + Sync + 'static
{
    type Future: Future<Output = Result<T, E>> + Send;
}

impl<F, R, Input, Tx, T, E> Change<Input, Tx, T, E> for F
where
    F: Fn(Input, Tx) -> R + Copy + Send + Sync + 'static,
    R: Future<Output = Result<T, E>> + Send,
{
    type Future = R;
}

/// The lock that a process holds on a database server while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseLock {
    /// For a hub without Redis: it announces its changes to no other process, so no other hub may use the database.
    Exclusive,
    /// For a hub of a fleet: the hubs announce their changes to each other.
    Shared,
}

/// A handle on the store of records. Cheap to clone.
#[derive(Clone)]
pub struct Records {
    engine: Engine,
    names: Arc<Names>,
}

#[derive(Clone)]
enum Engine {
    Sqlite(Store),
    /// A file that another process may have open.
    ReadOnly(Readers),
    Server(Server),
}

impl From<Engine> for Records {
    fn from(engine: Engine) -> Self {
        Self { engine, names: Arc::default() }
    }
}

impl Records {
    /// Records in the embedded file.
    pub fn embedded(store: Store) -> Self {
        Engine::Sqlite(store).into()
    }

    /// Records in a file that is opened for reading only.
    pub fn read_only(readers: Readers) -> Self {
        Engine::ReadOnly(readers).into()
    }

    /// Records on a server, without migrating it: refuses a schema that is not this version's.
    pub async fn connect_as_is(
        options: &Options,
        migrations: &Migrations,
        supervisor: &Supervisor,
    ) -> Result<Self> {
        let server = Server::open_as_is(options, migrations, supervisor).await?;
        Ok(Self::on(server).with_names(migrations.names().clone()))
    }

    /// Records on a server, without a database lock. Waits up to ten seconds for the server, and brings it to this
    /// version's schema.
    pub async fn connect(
        options: &Options,
        migrations: &Migrations,
        supervisor: &Supervisor,
    ) -> Result<Self> {
        PreparedServer::connect(options, migrations, None).await?.migrate(supervisor).await
    }

    pub(crate) fn on(server: Server) -> Self {
        Engine::Server(server).into()
    }

    /// The same records, with these names filled into queries.
    #[must_use]
    pub fn with_names(self, names: Arc<Names>) -> Self {
        Self { names, ..self }
    }

    /// The same records, on connections that requests cannot use up: for the few loops that all streams depend on.
    #[must_use]
    pub fn reserved_pool(&self) -> Self {
        let engine = match &self.engine {
            Engine::Server(server) => Engine::Server(server.reserved_pool()),
            // The embedded file has one writer, which runs all jobs in order.
            other => other.clone(),
        };
        Self { engine, names: self.names.clone() }
    }

    pub fn dialect(&self) -> Dialect {
        match &self.engine {
            Engine::Sqlite(_) | Engine::ReadOnly(_) => Dialect::Sqlite,
            Engine::Server(server) => server.dialect(),
        }
    }

    /// Calls `on_notify` after a process, also this one, has notified a channel of the server, and when a notification
    /// may have been lost. Returns false when the store has no notifications, so that the caller has to poll.
    pub fn listen_notify(
        &self,
        channel: &'static str,
        supervisor: &Supervisor,
        on_notify: impl Fn() + Clone + Send + Sync + 'static,
    ) -> bool {
        match &self.engine {
            Engine::Sqlite(_) | Engine::ReadOnly(_) => false,
            Engine::Server(server) => server.listen_notify(channel, supervisor, on_notify),
        }
    }

    /// Why the database cannot be used at the moment. None while it works.
    pub fn outage(&self) -> Option<&'static str> {
        match &self.engine {
            Engine::Sqlite(store) => store.writer().outage(),
            Engine::ReadOnly(_) => None,
            Engine::Server(server) => server.outage(),
        }
    }

    /// Warnings for the operator: settings with which the server may lose acknowledged changes.
    pub fn warnings(&self) -> Vec<&'static str> {
        match &self.engine {
            Engine::Sqlite(_) | Engine::ReadOnly(_) => Vec::new(),
            Engine::Server(server) => server.warnings(),
        }
    }

    /// Runs a change in a transaction, and returns when it is durable. An error of the change rolls the transaction
    /// back, and so does a failed query, also when the change ignores its error.
    ///
    /// On a server the change runs at READ COMMITTED, and again after a conflict such as a deadlock, up to
    /// ten times within five seconds. After that, or when the connection breaks, the error is
    /// [`Error::Unavailable`] if no change is stored, and [`Error::Unanswered`] if only the server knows
    /// whether the change is stored.
    pub async fn write<A, T, E, C>(&self, input: A, change: C) -> Result<T, E>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        C: for<'t, 'c> Change<&'t A, &'t mut Transaction<'c>, T, E>,
    {
        match &self.engine {
            Engine::Sqlite(store) => {
                let (reply, answer) = oneshot::channel();
                let names = self.names.clone();
                let job = WriteJob { names, input, change, trace: trace::current(), outcome: None, reply };
                store.writer().submit(Box::new(job)).await.map_err(E::from)?;
                answer.await.unwrap_or_else(|_| Err(Error::Closed.into()))
            }
            Engine::ReadOnly(_) => {
                Err(Error::Failed("the database is opened for reading only".to_owned()).into())
            }
            Engine::Server(server) => {
                server.transact(AccessMode::Write, self.names.clone(), input, change).await
            }
        }
    }

    /// Runs a read-only function on one snapshot, which contains every change that was durable before the call.
    pub async fn read<A, T, E, C>(&self, input: A, function: C) -> Result<T, E>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        C: for<'t, 'c> Change<&'t A, &'t mut Transaction<'c>, T, E>,
    {
        let readers = match &self.engine {
            Engine::Sqlite(store) => store.readers(),
            Engine::ReadOnly(readers) => readers,
            Engine::Server(server) => {
                return server.transact(AccessMode::Read, self.names.clone(), input, function).await;
            }
        };
        let names = self.names.clone();
        let read = readers.read(move |connection| {
            connection.execute_batch("BEGIN")?;
            let result = run_on_connection(connection, &names, &input, function);
            connection.execute_batch("ROLLBACK")?;
            Ok(result)
        });
        read.await.map_err(E::from)?
    }

    /// Runs a query that returns one count and has no arguments.
    pub async fn count(&self, query: &'static Query) -> Result<u64> {
        self.read(query, count).await
    }
}

async fn count(query: &&'static Query, tx: &mut Transaction<'_>) -> Result<u64> {
    let row = tx.row(query, &[]).await?;
    row.map_or(Ok(0), |row| row.count(0))
}

/// A change in the queue of the embedded writer.
struct WriteJob<A, T, E, C> {
    names: Arc<Names>,
    input: A,
    change: C,
    /// The trace of the caller.
    trace: Option<TraceParent>,
    outcome: Option<Result<T, E>>,
    reply: oneshot::Sender<Result<T, E>>,
}

impl<A, T, E, C> Job for WriteJob<A, T, E, C>
where
    A: Send + Sync + 'static,
    T: Send + 'static,
    E: From<Error> + Send + 'static,
    C: for<'t, 'c> Change<&'t A, &'t mut Transaction<'c>, T, E>,
{
    fn apply(&mut self, connection: &mut Connection) -> Result<()> {
        let outcome = trace::sync_scope(self.trace, || {
            run_on_connection(connection, &self.names, &self.input, self.change)
        });
        let is_ok = outcome.is_ok();
        self.outcome = Some(outcome);
        if is_ok { Ok(()) } else { Err(Error::RolledBack) }
    }

    fn committed(self: Box<Self>) {
        // An error means that the caller was dropped.
        let _ = self.reply.send(self.outcome.unwrap_or_else(|| Err(Error::Closed.into())));
    }

    fn failed(self: Box<Self>, error: &Error) {
        let own_error = self.outcome.filter(Result::is_err);
        let _ = self.reply.send(own_error.unwrap_or_else(|| Err(error.clone().into())));
    }
}

fn run_on_connection<A, T, E: From<Error>>(
    connection: &mut Connection,
    names: &Names,
    input: &A,
    change: impl for<'t, 'c> Change<&'t A, &'t mut Transaction<'c>, T, E>,
) -> Result<T, E> {
    let mut transaction = Transaction::new(Inner::Sqlite(connection), names);
    let outcome = poll_once(change(input, &mut transaction));
    transaction.finish(outcome)
}

/// Polls a change to its end. One poll is enough, because queries on the embedded database complete without waiting.
fn poll_once<T, E: From<Error>>(change: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    match pin!(change).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => {
            Err(Error::Failed("a change awaited something other than its transaction".to_owned()).into())
        }
    }
}
