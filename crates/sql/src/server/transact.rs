//! A transaction from its beginning to its end: run again after a conflict, bounded in time, and told truly.
//!
//! As long as COMMIT was not sent nothing is kept, whatever goes wrong. From then on only the server knows, unless it
//! says so itself.

use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::{random, trace};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::link::{Begin, Fault};
use super::{Server, Session};
use crate::transaction::Inner;
use crate::{Boxed, Change, Error, Names, Transaction};

/// All that a transaction may take: waiting for a connection, every statement, every repetition.
const PATIENCE: Duration = Duration::from_secs(5);
/// So often it is run, with a pause between of this and at most so much more for each time before.
const TRIES: u64 = 10;
const PAUSE_MS: u64 = 5;
const SPREAD_MS: u64 = 20;

const SLOW: &str = "it took longer than 5 s";

/// How running it once ended.
enum Turn<T, E> {
    Done(Result<T, E>),
    /// Another one was in the way.
    Again,
}

impl Server {
    /// Runs a transaction. Whoever asked may go away meanwhile.
    pub(crate) async fn transact<A, T, E, C>(
        &self,
        how: Begin,
        names: Arc<Names>,
        given: A,
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
            server.until_done(how, &names, &given, change, reply).await;
            let kind = if how == Begin::Write { "write" } else { "read" };
            metrics::histogram!("sql_transaction_duration_seconds", "kind" => kind)
                .record(started.elapsed().as_secs_f64());
        };
        // Bounded by its own patience; whoever waits for it, waits for the answer.
        self.0.home.spawn(trace::scope(trace::current(), task));
        // No answer: it panicked, or the process is shutting down.
        answer.await.unwrap_or_else(|_| Err(Error::Closed.into()))
    }

    async fn until_done<A: Sync, T: Send, E: From<Error>>(
        &self,
        how: Begin,
        names: &Names,
        given: &A,
        change: impl for<'t, 'c> Change<&'t A, &'t mut Transaction<'c>, T, E>,
        reply: oneshot::Sender<Result<T, E>>,
    ) {
        let deadline = Instant::now() + PATIENCE;
        let mut tries = 1;
        loop {
            let mut session = match self.0.pool.begin(how, self.1, deadline).await {
                Ok(session) => session,
                Err(error) => return answer(reply, Err(error.into())),
            };
            let turn = timeout_at(deadline, session.turn(how, names, given, change)).await;
            let done = match turn {
                Ok(Turn::Again) if tries < TRIES => {
                    self.give_back(session, deadline).await;
                    let pause = PAUSE_MS + random::between(0, SPREAD_MS * tries);
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                    tries += 1;
                    continue;
                }
                Ok(Turn::Again) => Err(Error::Away("other changes were in the way".to_owned()).into()),
                Ok(Turn::Done(done)) => done,
                Err(_) => {
                    session.fault = Some(Fault::Broken(SLOW.to_owned()));
                    let told = if session.commit_sent { Error::Unanswered } else { Error::Away };
                    Err(told(SLOW.to_owned()).into())
                }
            };
            // What is left to do with the connection is nothing that anybody has to wait for.
            answer(reply, done);
            return self.give_back(session, deadline + PATIENCE).await;
        }
    }

    /// Puts a connection back on which nothing is under way any more, or closes it.
    async fn give_back(&self, mut session: Session, deadline: Instant) {
        let is_clear = match (session.commit_sent, &session.fault) {
            (_, Some(Fault::Broken(_))) => false,
            // Committed, and answered.
            (true, None) => true,
            // The answer to COMMIT is missing.
            (true, Some(_)) => false,
            (false, _) => {
                timeout_at(deadline, session.link.say("ROLLBACK")).await.is_ok_and(|done| done.is_ok())
            }
        };
        if is_clear {
            self.0.pool.put_back(session);
        }
    }
}

fn answer<T, E>(reply: oneshot::Sender<Result<T, E>>, done: Result<T, E>) {
    // A caller that went away does not need it.
    let _ = reply.send(done);
}

impl Session {
    async fn turn<A: Sync, T: Send, E: From<Error>>(
        &mut self,
        how: Begin,
        names: &Names,
        given: &A,
        change: impl for<'t, 'c> Change<&'t A, &'t mut Transaction<'c>, T, E>,
    ) -> Turn<T, E> {
        let mut transaction = Transaction::new(Inner::Server(self), names);
        // Boxed: whoever spawns this has to know that it can be sent, whatever the lifetimes are.
        let work: Boxed<'_, Result<T, E>> = Box::pin(change(given, &mut transaction));
        let outcome = work.await;
        let outcome = transaction.finish(outcome);
        match (outcome, &self.fault) {
            // Whatever the change made of it: the server has undone it.
            (_, Some(Fault::Conflict(_))) => Turn::Again,
            (Ok(given), _) if how == Begin::Write => self.commit(given).await,
            (outcome, _) => Turn::Done(outcome),
        }
    }

    async fn commit<T, E: From<Error>>(&mut self, given: T) -> Turn<T, E> {
        self.commit_sent = true;
        match self.link.say("COMMIT").await {
            Ok(()) => Turn::Done(Ok(given)),
            // The server says itself that nothing is kept.
            Err(Fault::Conflict(_)) => {
                self.commit_sent = false;
                Turn::Again
            }
            Err(Fault::Refused(why)) if self.link.undoes_what_it_refuses() => {
                self.commit_sent = false;
                Turn::Done(Err(Error::Failed(why).into()))
            }
            Err(fault) => {
                let why = fault.to_string();
                self.fault = Some(fault);
                Turn::Done(Err(Error::Unanswered(why).into()))
            }
        }
    }
}
