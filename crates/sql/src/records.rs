//! Records: the one way to read and change what may be kept in the process or on a server.
//!
//! Here a change runs on the embedded file, as a job of its writer; `server/transact.rs` runs it on a server.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::trace::{self, TraceParent};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::server::{Begin, PreparedServer, Server};
use crate::transaction::Inner;
use crate::{Dialect, Error, Job, Migrations, Names, Options, Query, Readers, Store, Transaction};

/// What is done within a transaction: an `async fn(&A, &mut Transaction<'_>) -> Result<T, E>`, so `Given` is `&A` and `Tx`
/// is `&mut Transaction<'_>`. It may be called again, after everything that the first call did was undone, so it changes
/// nothing but the records; and it waits for nothing but them.
pub trait Change<Given, Tx, T, E>:
    Fn(Given, Tx) -> <Self as Change<Given, Tx, T, E>>::Work + Copy + Send + Sync + 'static
{
    type Work: Future<Output = Result<T, E>> + Send;
}

impl<F, W, Given, Tx, T, E> Change<Given, Tx, T, E> for F
where
    F: Fn(Given, Tx) -> W + Copy + Send + Sync + 'static,
    W: Future<Output = Result<T, E>> + Send,
{
    type Work = W;
}

/// How a process means to use a database server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nobody else does: what it changes it tells nobody.
    Alone,
    /// With others who hear of what it does.
    Shared,
}

/// Where records are kept. Cheap to clone.
#[derive(Clone)]
pub struct Records {
    engine: Engine,
    names: Arc<Names>,
}

#[derive(Clone)]
enum Engine {
    Sqlite(Store),
    /// The file of another process, or of none.
    Looked(Readers),
    Server(Server),
}

impl From<Engine> for Records {
    fn from(engine: Engine) -> Self {
        Self { engine, names: Arc::default() }
    }
}

impl Records {
    /// In the embedded file.
    pub fn embedded(store: Store) -> Self {
        Engine::Sqlite(store).into()
    }

    /// In a file that is only looked at: nothing can be changed.
    pub fn looked_at(readers: Readers) -> Self {
        Engine::Looked(readers).into()
    }

    /// On a server of this version's schema, which is left as it is.
    pub async fn connect_as_is(
        options: &Options,
        migrations: &Migrations,
        supervisor: &Supervisor,
    ) -> Result<Self, Error> {
        let server = Server::open_as_is(options, migrations, supervisor).await?;
        Ok(Self::on(server).named(migrations.names().clone()))
    }

    /// On a server that others may share. Waits up to ten seconds for it, and brings it to this version's schema.
    pub async fn connect(
        options: &Options,
        migrations: &Migrations,
        supervisor: &Supervisor,
    ) -> Result<Self, Error> {
        PreparedServer::prepare(options, migrations, None).await?.migrate(supervisor).await
    }

    pub(crate) fn on(server: Server) -> Self {
        Engine::Server(server).into()
    }

    /// The same records, with these names in the places of those that queries mark.
    #[must_use]
    pub fn named(self, names: Arc<Names>) -> Self {
        Self { names, ..self }
    }

    /// The same records, by connections that requests cannot use up: for the few loops that everybody waits for.
    #[must_use]
    pub fn own_lane(&self) -> Self {
        let engine = match &self.engine {
            Engine::Server(server) => Engine::Server(server.own_lane()),
            // One writer does everything in turn.
            other => other.clone(),
        };
        Self { engine, names: self.names.clone() }
    }

    pub fn dialect(&self) -> Dialect {
        match &self.engine {
            Engine::Sqlite(_) | Engine::Looked(_) => Dialect::Sqlite,
            Engine::Server(server) => server.dialect(),
        }
    }

    /// Calls when another process, or this one, has notified a channel of the server, and when that may have been missed.
    /// False where nobody tells: then it is to be looked for.
    pub fn heed(
        &self,
        channel: &'static str,
        supervisor: &Supervisor,
        heard: impl Fn() + Clone + Send + Sync + 'static,
    ) -> bool {
        match &self.engine {
            Engine::Sqlite(_) | Engine::Looked(_) => false,
            Engine::Server(server) => server.heed(channel, supervisor, heard),
        }
    }

    /// What is wrong with the database right now, if anything.
    pub fn trouble(&self) -> Option<&'static str> {
        match &self.engine {
            Engine::Sqlite(store) => store.writer().trouble(),
            Engine::Looked(_) => None,
            Engine::Server(server) => server.trouble(),
        }
    }

    /// What an operator should know: settings by which the server may lose what it acknowledged.
    pub fn warnings(&self) -> Vec<&'static str> {
        match &self.engine {
            Engine::Sqlite(_) | Engine::Looked(_) => Vec::new(),
            Engine::Server(server) => server.warnings(),
        }
    }

    /// Changes something, all or nothing, and returns when it is durable. An error of the change's own undoes it, and so
    /// does a query that failed, also when the change goes on without it.
    ///
    /// On a server it runs at READ COMMITTED, again after a deadlock or the like, for five seconds in all. Then, or when
    /// the connection breaks, the error is [`Error::Away`] when nothing is kept, and [`Error::Unanswered`] when only the
    /// server knows.
    pub async fn write<A, T, E, C>(&self, given: A, change: C) -> Result<T, E>
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
                let work = Work { names, given, change, trace: trace::current(), outcome: None, reply };
                store.writer().submit(Box::new(work)).await.map_err(E::from)?;
                answer.await.unwrap_or_else(|_| Err(Error::Closed.into()))
            }
            Engine::Looked(_) => Err(Error::Failed("it was opened for reading only".to_owned()).into()),
            Engine::Server(server) => server.transact(Begin::Write, self.names.clone(), given, change).await,
        }
    }

    /// Reads, and sees all that was durable before, all of it as it was at one moment.
    pub async fn read<A, T, E, C>(&self, given: A, question: C) -> Result<T, E>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        C: for<'t, 'c> Change<&'t A, &'t mut Transaction<'c>, T, E>,
    {
        let readers = match &self.engine {
            Engine::Sqlite(store) => store.readers(),
            Engine::Looked(readers) => readers,
            Engine::Server(server) => {
                return server.transact(Begin::Read, self.names.clone(), given, question).await;
            }
        };
        let names = self.names.clone();
        let read = readers.read(move |connection| {
            connection.execute_batch("BEGIN")?;
            let answer = on_connection(connection, &names, &given, question);
            connection.execute_batch("ROLLBACK")?;
            Ok(answer)
        });
        read.await.map_err(E::from)?
    }

    /// Reads a query that counts something, and has no arguments.
    pub async fn count(&self, query: &'static Query) -> Result<u64, Error> {
        self.read(query, count).await
    }
}

async fn count(query: &&'static Query, tx: &mut Transaction<'_>) -> Result<u64, Error> {
    let counted = tx.row(query, &[]).await?;
    counted.map_or(Ok(0), |row| row.count(0))
}

/// A change on its way through the embedded writer.
struct Work<A, T, E, C> {
    names: Arc<Names>,
    given: A,
    change: C,
    /// Of whoever asked for it.
    trace: Option<TraceParent>,
    outcome: Option<Result<T, E>>,
    reply: oneshot::Sender<Result<T, E>>,
}

impl<A, T, E, C> Job for Work<A, T, E, C>
where
    A: Send + Sync + 'static,
    T: Send + 'static,
    E: From<Error> + Send + 'static,
    C: for<'t, 'c> Change<&'t A, &'t mut Transaction<'c>, T, E>,
{
    fn apply(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let outcome = trace::sync_scope(self.trace, || {
            on_connection(connection, &self.names, &self.given, self.change)
        });
        let kept = outcome.is_ok();
        self.outcome = Some(outcome);
        if kept { Ok(()) } else { Err(Error::Undone) }
    }

    fn committed(self: Box<Self>) {
        // A caller that went away does not need the answer.
        let _ = self.reply.send(self.outcome.unwrap_or_else(|| Err(Error::Closed.into())));
    }

    fn failed(self: Box<Self>, error: &Error) {
        let own = self.outcome.filter(Result::is_err);
        let _ = self.reply.send(own.unwrap_or_else(|| Err(error.clone().into())));
    }
}

fn on_connection<A, T, E: From<Error>>(
    connection: &mut Connection,
    names: &Names,
    given: &A,
    change: impl for<'t, 'c> Change<&'t A, &'t mut Transaction<'c>, T, E>,
) -> Result<T, E> {
    let mut transaction = Transaction::new(Inner::Sqlite(connection), names);
    let outcome = at_once(change(given, &mut transaction));
    transaction.finish(outcome)
}

/// Runs what waits for nothing but the embedded database, which answers at once.
fn at_once<T, E: From<Error>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err(Error::Failed("a change waited for something else".to_owned()).into()),
    }
}
