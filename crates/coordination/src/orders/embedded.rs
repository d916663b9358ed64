//! Orders of one process: carried out at once; revocations are kept in the embedded file.
//!
//! As long as all revocations fit into memory nobody waits for the file to learn that there is none. Past that, those
//! which are not in memory are looked up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id, Millis};
use bongsu_sql::rusqlite::{Connection, OptionalExtension};
use bongsu_sql::{Job, Migration, Readers, Writer};
use tokio::sync::oneshot;

use super::{Apply, Order, Orders, REVOCATION_LIFE};
use crate::{Boxed, Error};

pub const MIGRATIONS: &[Migration] = &[bongsu_sql::migration!("coordination", 1, "0001_revocations")];

/// So many revocations are held in memory.
const MOST: usize = 100_000;
/// Revocations that ran out are looked for so often, and removed so many at a time.
const SWEEP: Duration = Duration::from_secs(60);
const STEP: i64 = 1_000;
/// A caller that has waited so long is told; the order may still be carried out.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the module.
pub struct EmbeddedOrders {
    writer: Writer,
    readers: Readers,
    clock: Clock,
    applied: Arc<Applied>,
}

/// What is known and who is told: one lock, so that orders are carried out one at a time.
struct Applied {
    revoked: Mutex<Revoked>,
    apply: Arc<dyn Apply>,
}

struct Revoked {
    before: HashMap<Id, Millis>,
    /// Whether the file has no others.
    complete: bool,
}

impl EmbeddedOrders {
    /// Reads what is still revoked. The writer and the readers are those of the database that has [`MIGRATIONS`].
    pub async fn open(
        writer: Writer,
        readers: Readers,
        clock: Clock,
        apply: Arc<dyn Apply>,
        supervisor: &Supervisor,
    ) -> Result<Self, Error> {
        let now = signed(clock.now());
        let rows = readers.read(move |connection| load(connection, now)).await?;
        let complete = rows.len() <= MOST;
        let readable = |(user, before): (String, i64)| Some((Id::new(&user).ok()?, unsigned(before)));
        let before = rows.into_iter().take(MOST).filter_map(readable).collect();
        let applied = Arc::new(Applied { revoked: Mutex::new(Revoked { before, complete }), apply });
        let (sweeper, swept_by) = (writer.clone(), clock.clone());
        supervisor.every("revocation-sweep", SWEEP, move || {
            let (writer, sweep) = (sweeper.clone(), Sweep(swept_by.clone()));
            async move {
                // A writer that takes no more jobs is about to end with everything else.
                let _ = writer.submit(Box::new(sweep)).await;
            }
        });
        Ok(Self { writer, readers, clock, applied })
    }

    async fn revoke(&self, user: Id, issued_before: Millis) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        let (clock, applied) = (self.clock.clone(), self.applied.clone());
        let job = Box::new(Revoke { user, issued_before, clock, applied, reply });
        let revoked = async {
            self.writer.submit(job).await?;
            answer.await.unwrap_or(Err(bongsu_sql::Error::Closed))
        };
        match tokio::time::timeout(PATIENCE, revoked).await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Err(Error::Unanswered("the database did not answer in time".to_owned())),
        }
    }
}

impl Orders for EmbeddedOrders {
    fn give(&self, order: Order) -> Boxed<'_, Result<(), Error>> {
        Box::pin(async move {
            match order {
                // What is open ends with the process, so there is nothing to keep.
                Order::Disconnect { .. } => {
                    let _one_at_a_time = self.applied.revoked();
                    self.applied.apply.apply(&order);
                    Ok(())
                }
                Order::Revoke { user, issued_before } => self.revoke(user, issued_before).await,
            }
        })
    }

    fn is_current(&self) -> bool {
        true
    }

    fn catch_up(&self) -> Boxed<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    fn revoked_before<'a>(&'a self, user: &'a Id) -> Boxed<'a, Result<Option<Millis>, Error>> {
        Box::pin(async move {
            {
                let revoked = self.applied.revoked();
                let known = revoked.before.get(user).copied();
                if known.is_some() || revoked.complete {
                    return Ok(known);
                }
            }
            let (user, now) = (user.clone(), signed(self.clock.now()));
            let stored = self.readers.read(move |connection| look_up(connection, user.as_str(), now)).await?;
            Ok(stored.map(unsigned))
        })
    }
}

impl Applied {
    fn revoked(&self) -> MutexGuard<'_, Revoked> {
        self.revoked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn revoke(&self, user: &Id, issued_before: Millis) {
        let mut revoked = self.revoked();
        let room = revoked.before.len() < MOST;
        match revoked.before.get_mut(user) {
            Some(before) => *before = issued_before.max(*before),
            None if room => drop(revoked.before.insert(user.clone(), issued_before)),
            None => revoked.complete = false,
        }
        self.apply.apply(&Order::Revoke { user: user.clone(), issued_before });
    }
}

struct Revoke {
    user: Id,
    issued_before: Millis,
    clock: Clock,
    applied: Arc<Applied>,
    reply: oneshot::Sender<Result<(), bongsu_sql::Error>>,
}

impl Job for Revoke {
    fn apply(&mut self, connection: &mut Connection) -> Result<(), bongsu_sql::Error> {
        let life = u64::try_from(REVOCATION_LIFE.as_millis()).unwrap_or(u64::MAX);
        let expires_at = self.clock.now().saturating_add(life);
        connection
            .prepare_cached(
                "INSERT INTO bongsu_revocations (user_id, issued_before, expires_at) VALUES (?1, ?2, ?3)
                 ON CONFLICT (user_id) DO UPDATE SET
                     issued_before = max(issued_before, excluded.issued_before),
                     expires_at = max(expires_at, excluded.expires_at)",
            )?
            .execute((self.user.as_str(), signed(self.issued_before), signed(expires_at)))?;
        Ok(())
    }

    fn committed(self: Box<Self>) {
        self.applied.revoke(&self.user, self.issued_before);
        let _ = self.reply.send(Ok(()));
    }

    fn failed(self: Box<Self>, error: &bongsu_sql::Error) {
        let _ = self.reply.send(Err(error.clone()));
    }
}

/// Removes from the file what ran out. In memory it does no harm, and is gone after the next start.
struct Sweep(Clock);

impl Job for Sweep {
    fn apply(&mut self, connection: &mut Connection) -> Result<(), bongsu_sql::Error> {
        connection
            .prepare_cached(
                "DELETE FROM bongsu_revocations WHERE user_id IN
                     (SELECT user_id FROM bongsu_revocations WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)",
            )?
            .execute([signed(self.0.now()), STEP])?;
        Ok(())
    }

    fn committed(self: Box<Self>) {}

    fn failed(self: Box<Self>, _: &bongsu_sql::Error) {
        // The writer has told of it, and the next turn tries again.
    }
}

/// One more than fits tells that there are more.
fn load(connection: &Connection, now: i64) -> Result<Vec<(String, i64)>, bongsu_sql::rusqlite::Error> {
    connection
        .prepare("SELECT user_id, issued_before FROM bongsu_revocations WHERE expires_at > ?1 LIMIT ?2")?
        .query_map([now, signed(MOST as u64 + 1)], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

fn look_up(
    connection: &Connection,
    user: &str,
    now: i64,
) -> Result<Option<i64>, bongsu_sql::rusqlite::Error> {
    connection
        .prepare_cached(
            "SELECT issued_before FROM bongsu_revocations WHERE user_id = ?1 AND expires_at > ?2",
        )?
        .query_row((user, now), |row| row.get(0))
        .optional()
}

/// SQLite's integers are signed.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
