//! Access commands of one process: carried out at once. Revocations are kept in the embedded file.
//!
//! As long as all revocations fit into memory, a lookup never waits for the file. When there are more, persons without a
//! revocation in memory are looked up in the file.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id, Millis, lock};
use bongsu_sql::rusqlite::{Connection, OptionalExtension};
use bongsu_sql::{Job, Migration, Store, migration};
use tokio::sync::oneshot;

use super::{AccessCommand, AccessCommandHandler, AccessCommands, REVOCATION_RETENTION};
use crate::{BoxFuture, Error};

pub const MIGRATIONS: &[Migration] = &[migration!("coordination", 1, "0001_revocations")];

/// Maximum number of revocations held in memory.
const MAX_CACHED_REVOCATIONS: usize = 100_000;
/// Time between two deletions of expired revocations from the file.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(60);
/// Expired revocations deleted by one statement.
const CLEANUP_BATCH_SIZE: i64 = 1_000;
/// A caller whose revocation was not written after this time gets an error; the revocation may still be written.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Access commands of one process.
pub struct EmbeddedAccessCommands {
    store: Store,
    clock: Clock,
    state: Arc<SharedState>,
}

/// The known revocations and the handler. Commands are carried out under the lock of the revocations, one at a time.
struct SharedState {
    revocations: Mutex<RevocationCache>,
    handler: Arc<dyn AccessCommandHandler>,
}

struct RevocationCache {
    issued_before: HashMap<Id, Millis>,
    /// Whether the file holds no further revocations.
    is_complete: bool,
}

impl EmbeddedAccessCommands {
    /// Reads the revocations that are still in force. `store` belongs to the database that has [`MIGRATIONS`].
    pub async fn open(
        store: Store,
        clock: Clock,
        handler: Arc<dyn AccessCommandHandler>,
        supervisor: &Supervisor,
    ) -> Result<Self, Error> {
        let now = to_signed(clock.now());
        let rows = store.readers().read(move |connection| load(connection, now)).await?;
        let is_complete = rows.len() <= MAX_CACHED_REVOCATIONS;
        let parse = |(user, before): (String, i64)| Some((Id::new(&user).ok()?, to_unsigned(before)));
        let issued_before = rows.into_iter().take(MAX_CACHED_REVOCATIONS).filter_map(parse).collect();
        let revocations = Mutex::new(RevocationCache { issued_before, is_complete });
        let state = Arc::new(SharedState { revocations, handler });
        let cleanup = (store.clone(), clock.clone());
        supervisor.every("revocation-sweep", CLEANUP_INTERVAL, &cleanup, |(store, clock)| async move {
            // The writer has logged a failure, and the next run of this loop retries.
            let _ = store.write(move |connection| delete_expired(connection, to_signed(clock.now()))).await;
        });
        Ok(Self { store, clock, state })
    }

    async fn revoke(&self, user: Id, issued_before: Millis) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        let (clock, state) = (self.clock.clone(), self.state.clone());
        let job = Box::new(Revoke { user, issued_before, clock, state, reply });
        let revoked = async {
            self.store.writer().submit(job).await?;
            answer.await.unwrap_or(Err(bongsu_sql::Error::Closed))
        };
        match tokio::time::timeout(WRITE_TIMEOUT, revoked).await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Err(Error::Unanswered("the database did not answer in time".to_owned())),
        }
    }
}

impl AccessCommands for EmbeddedAccessCommands {
    fn issue(&self, command: AccessCommand) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            match command {
                // Not stored: a stream does not outlive the process.
                AccessCommand::Disconnect { .. } => {
                    let _one_at_a_time = lock(&self.state.revocations);
                    self.state.handler.apply(&command);
                    Ok(())
                }
                AccessCommand::Revoke { user, issued_before } => self.revoke(user, issued_before).await,
            }
        })
    }

    fn is_current(&self) -> bool {
        true
    }

    fn catch_up(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    fn revoked_before<'a>(&'a self, user: &'a Id) -> BoxFuture<'a, Result<Option<Millis>, Error>> {
        Box::pin(async move {
            {
                let revocations = lock(&self.state.revocations);
                let cached = revocations.issued_before.get(user).copied();
                if cached.is_some() || revocations.is_complete {
                    return Ok(cached);
                }
            }
            let (user, now) = (user.clone(), to_signed(self.clock.now()));
            let stored = self.store.readers().read(move |connection| find(connection, user.as_str(), now));
            Ok(stored.await?.map(to_unsigned))
        })
    }
}

impl SharedState {
    fn revoke(&self, user: &Id, issued_before: Millis) {
        let mut revocations = lock(&self.revocations);
        let has_room = revocations.issued_before.len() < MAX_CACHED_REVOCATIONS;
        match revocations.issued_before.get_mut(user) {
            Some(before) => *before = issued_before.max(*before),
            None if has_room => drop(revocations.issued_before.insert(user.clone(), issued_before)),
            None => revocations.is_complete = false,
        }
        self.handler.apply(&AccessCommand::Revoke { user: user.clone(), issued_before });
    }
}

/// Writes a revocation, and carries it out once it is committed.
struct Revoke {
    user: Id,
    issued_before: Millis,
    clock: Clock,
    state: Arc<SharedState>,
    reply: oneshot::Sender<Result<(), bongsu_sql::Error>>,
}

impl Job for Revoke {
    fn apply(&mut self, connection: &mut Connection) -> Result<(), bongsu_sql::Error> {
        let retention = u64::try_from(REVOCATION_RETENTION.as_millis()).unwrap_or(u64::MAX);
        let expires_at = self.clock.now().saturating_add(retention);
        connection
            .prepare_cached(
                "INSERT INTO bongsu_revocations (user_id, issued_before, expires_at) VALUES (?1, ?2, ?3)
                 ON CONFLICT (user_id) DO UPDATE SET
                     issued_before = max(issued_before, excluded.issued_before),
                     expires_at = max(expires_at, excluded.expires_at)",
            )?
            .execute((self.user.as_str(), to_signed(self.issued_before), to_signed(expires_at)))?;
        Ok(())
    }

    fn committed(self: Box<Self>) {
        self.state.revoke(&self.user, self.issued_before);
        let _ = self.reply.send(Ok(()));
    }

    fn failed(self: Box<Self>, error: &bongsu_sql::Error) {
        let _ = self.reply.send(Err(error.clone()));
    }
}

/// Deletes expired revocations from the file. The cache keeps them until the next start, which does no harm:
/// the tokens that they reject have expired.
fn delete_expired(connection: &Connection, now: i64) -> Result<usize, bongsu_sql::Error> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM bongsu_revocations WHERE user_id IN
             (SELECT user_id FROM bongsu_revocations WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)",
    )?;
    Ok(statement.execute([now, CLEANUP_BATCH_SIZE])?)
}

/// Reads one revocation more than the cache holds: its presence means that the cache is not complete.
fn load(connection: &Connection, now: i64) -> Result<Vec<(String, i64)>, bongsu_sql::rusqlite::Error> {
    connection
        .prepare("SELECT user_id, issued_before FROM bongsu_revocations WHERE expires_at > ?1 LIMIT ?2")?
        .query_map([now, to_signed(MAX_CACHED_REVOCATIONS as u64 + 1)], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

fn find(connection: &Connection, user: &str, now: i64) -> Result<Option<i64>, bongsu_sql::rusqlite::Error> {
    connection
        .prepare_cached(
            "SELECT issued_before FROM bongsu_revocations WHERE user_id = ?1 AND expires_at > ?2",
        )?
        .query_row((user, now), |row| row.get(0))
        .optional()
}

/// SQLite's integers are signed.
fn to_signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn to_unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
