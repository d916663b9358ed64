//! Records: the one way to read and change what may be kept in the process or on a server.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::transaction::Inner;
use crate::{Dialect, Error, Job, Store, Transaction};

/// A future that a function can give.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What is done within a transaction. It may be called again, after everything that the first call did was undone, so
/// it changes nothing but the records; and it waits for nothing but them.
pub type Change<A, T, E> = for<'t> fn(&'t A, &'t mut Transaction<'_>) -> Boxed<'t, Result<T, E>>;

/// Where records are kept. Cheap to clone.
#[derive(Clone)]
pub struct Records(Engine);

#[derive(Clone)]
enum Engine {
    Sqlite(Store),
}

impl Records {
    /// In the embedded file.
    pub fn embedded(store: Store) -> Self {
        Self(Engine::Sqlite(store))
    }

    pub fn dialect(&self) -> Dialect {
        match &self.0 {
            Engine::Sqlite(_) => Dialect::Sqlite,
        }
    }

    /// What is wrong right now, if anything. Of the embedded file its own writer tells.
    pub fn trouble(&self) -> Option<&'static str> {
        None
    }

    /// Changes something, all or nothing, and returns when it is durable. An error of the change's own undoes it.
    pub async fn write<A, T, E>(&self, given: A, change: Change<A, T, E>) -> Result<T, E>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        match &self.0 {
            Engine::Sqlite(store) => {
                let (reply, answer) = oneshot::channel();
                let work = Work { given, change, outcome: None, reply };
                store.writer().submit(Box::new(work)).await.map_err(E::from)?;
                answer.await.unwrap_or_else(|_| Err(Error::Closed.into()))
            }
        }
    }

    /// Reads, and sees all that was durable before.
    pub async fn read<A, T, E>(&self, given: A, question: Change<A, T, E>) -> Result<T, E>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        match &self.0 {
            Engine::Sqlite(store) => {
                let read = store.readers().read(move |connection| {
                    // One snapshot for all that is asked.
                    connection.execute_batch("BEGIN")?;
                    let answer = at_once(question(&given, &mut Transaction(Inner::Sqlite(connection))));
                    connection.execute_batch("ROLLBACK")?;
                    Ok(answer)
                });
                read.await.map_err(E::from)?
            }
        }
    }
}

/// A change on its way through the embedded writer.
struct Work<A, T, E> {
    given: A,
    change: Change<A, T, E>,
    outcome: Option<Result<T, E>>,
    reply: oneshot::Sender<Result<T, E>>,
}

impl<A: Send + Sync, T: Send, E: From<Error> + Send> Job for Work<A, T, E> {
    fn apply(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let outcome = at_once((self.change)(&self.given, &mut Transaction(Inner::Sqlite(connection))));
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

/// Runs what waits for nothing but the embedded database, which answers at once.
fn at_once<T, E: From<Error>>(work: Boxed<'_, Result<T, E>>) -> Result<T, E> {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err(Error::Failed("a change waited for something else".to_owned()).into()),
    }
}
