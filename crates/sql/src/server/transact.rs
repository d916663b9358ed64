//! Runs a transaction from BEGIN to COMMIT: repeats it after a conflict, limits its time, and reports its outcome
//! exactly.
//!
//! Before COMMIT is sent, a failure means that no change is stored. Afterwards only the server knows whether
//! the changes are stored, until it answers that the transaction was committed or rolled back.

use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::{random, trace};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::connection::{AccessMode, ServerError};
use super::{Server, Session};
use crate::transaction::Inner;
use crate::{BoxFuture, Change, Error, Names, Transaction};

/// Time limit of a transaction: waiting for a connection, all statements, all attempts.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_ATTEMPTS: u64 = 10;
/// Fixed part of the delay before the next attempt, to which a random jitter is added.
const RETRY_DELAY_MS: u64 = 5;
/// The largest jitter after the first attempt; after attempt n it is n times as large.
const RETRY_JITTER_MS: u64 = 20;

const TIMED_OUT: &str = "the transaction took longer than 5 s";

/// How one attempt ended.
enum AttemptOutcome<T, E> {
    Done(Result<T, E>),
    /// Rolled back because of a conflict with another transaction.
    Retry,
}

impl Server {
    /// Runs a transaction, to its end even if the caller is dropped.
    pub(crate) async fn transact<A, T, E, C>(
        &self,
        mode: AccessMode,
        names: Arc<Names>,
        input: A,
        change: C,
    ) -> Result<T, E>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        C: for<'t, 'c> Change<&'t A, &'t mut Transaction<'c>, T, E>,
    {
        let (reply, answer) = oneshot::channel();
        let server = self.clone();
        let task = async move {
            let started = Instant::now();
            server.run_with_retries(mode, &names, &input, change, reply).await;
            let kind = if mode == AccessMode::Write { "write" } else { "read" };
            metrics::histogram!("sql_transaction_duration_seconds", "kind" => kind)
                .record(started.elapsed().as_secs_f64());
        };
        // Not supervised: the task ends by its own timeout, and the caller waits for the answer.
        self.0.runtime.spawn(trace::scope(trace::current(), task));
        // Without an answer the task panicked, or the process is shutting down.
        answer.await.unwrap_or_else(|_| Err(Error::Closed.into()))
    }

    async fn run_with_retries<A: Sync, T: Send, E: From<Error>>(
        &self,
        mode: AccessMode,
        names: &Names,
        input: &A,
        change: impl for<'t, 'c> Change<&'t A, &'t mut Transaction<'c>, T, E>,
        reply: oneshot::Sender<Result<T, E>>,
    ) {
        let deadline = Instant::now() + TRANSACTION_TIMEOUT;
        let mut attempt = 1;
        loop {
            let mut session = match self.0.pool.begin(mode, self.1, deadline).await {
                Ok(session) => session,
                Err(error) => return send_reply(reply, Err(error.into())),
            };
            let outcome = timeout_at(deadline, session.run_once(mode, names, input, change)).await;
            let result = match outcome {
                Ok(AttemptOutcome::Retry) if attempt < MAX_ATTEMPTS => {
                    self.release(session, deadline).await;
                    let delay = RETRY_DELAY_MS + random::between(0, RETRY_JITTER_MS * attempt);
                    tokio::time::sleep(Duration::from_millis(delay)).await;
                    attempt += 1;
                    continue;
                }
                Ok(AttemptOutcome::Retry) => {
                    let why = format!("the transaction conflicted with others {MAX_ATTEMPTS} times");
                    Err(Error::Unavailable(why).into())
                }
                Ok(AttemptOutcome::Done(result)) => result,
                Err(_) => {
                    session.error = Some(ServerError::Broken(TIMED_OUT.to_owned()));
                    let error = if session.commit_sent { Error::Unanswered } else { Error::Unavailable };
                    Err(error(TIMED_OUT.to_owned()).into())
                }
            };
            // The caller does not have to wait for the connection's return to the pool.
            send_reply(reply, result);
            return self.release(session, deadline + TRANSACTION_TIMEOUT).await;
        }
    }

    /// Returns a connection to the pool once no statement is under way on it, or closes it.
    async fn release(&self, mut session: Session, deadline: Instant) {
        let is_clean = match (session.commit_sent, &session.error) {
            (_, Some(ServerError::Broken(_))) => false,
            // Committed, and answered.
            (true, None) => true,
            // The answer to COMMIT is missing.
            (true, Some(_)) => false,
            (false, _) => timeout_at(deadline, session.connection.execute_raw("ROLLBACK"))
                .await
                .is_ok_and(|result| result.is_ok()),
        };
        if is_clean {
            self.0.pool.put_back(session);
        }
    }
}

fn send_reply<T, E>(reply: oneshot::Sender<Result<T, E>>, result: Result<T, E>) {
    // An error means that the caller was dropped.
    let _ = reply.send(result);
}

impl Session {
    async fn run_once<A: Sync, T: Send, E: From<Error>>(
        &mut self,
        mode: AccessMode,
        names: &Names,
        input: &A,
        change: impl for<'t, 'c> Change<&'t A, &'t mut Transaction<'c>, T, E>,
    ) -> AttemptOutcome<T, E> {
        let mut transaction = Transaction::new(Inner::Server(self), names);
        // Boxed, because the compiler cannot prove for all lifetimes that the future itself is Send.
        let work: BoxFuture<'_, Result<T, E>> = Box::pin(change(input, &mut transaction));
        let result = work.await;
        let result = transaction.finish(result);
        match (result, &self.error) {
            // The server has rolled the transaction back, whatever the change returned.
            (_, Some(ServerError::Conflict(_))) => AttemptOutcome::Retry,
            (Ok(value), _) if mode == AccessMode::Write => self.commit(value).await,
            (result, _) => AttemptOutcome::Done(result),
        }
    }

    async fn commit<T, E: From<Error>>(&mut self, value: T) -> AttemptOutcome<T, E> {
        self.commit_sent = true;
        match self.connection.execute_raw("COMMIT").await {
            Ok(()) => AttemptOutcome::Done(Ok(value)),
            // The answer itself says that nothing is stored.
            Err(ServerError::Conflict(_)) => {
                self.commit_sent = false;
                AttemptOutcome::Retry
            }
            Err(ServerError::Rejected(why)) if self.connection.rolls_back_rejected_commit() => {
                self.commit_sent = false;
                AttemptOutcome::Done(Err(Error::Failed(why).into()))
            }
            Err(error) => {
                let why = error.to_string();
                self.error = Some(error);
                AttemptOutcome::Done(Err(Error::Unanswered(why).into()))
            }
        }
    }
}
