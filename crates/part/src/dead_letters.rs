//! Dead letters: rows and records that were given up. Operators list them with their reasons, redrive them, or discard
//! them.
//!
//! Each part that gives up rows or records implements [`DeadLetters`], a queue with a name. The admin routes use only
//! this trait.

use bongsu_kernel::Millis;
use bongsu_queue::{GivenUpMessage, Queues};
use bongsu_sql::Error;

use crate::BoxFuture;

/// Maximum number of ids in one request, and of dead letters on one page.
pub const MAX_DEAD_LETTERS: usize = 100;

/// A row or record that was given up.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    pub id: i64,
    /// The target or person that the row or record is about. Rows with the same key were handled in order.
    pub key: String,
    pub kind: String,
    /// The payload as stored; None when it is too large to be shown.
    pub payload: Option<String>,
    pub attempts: u64,
    pub reason: String,
    pub created_at: Millis,
}

/// A queue of dead letters.
pub trait DeadLetters: Send + Sync {
    fn name(&self) -> &'static str;

    fn depth(&self) -> BoxFuture<'_, Result<u64, Error>>;

    /// Reads dead letters with ids greater than `id`, in the order of their ids. `limit` is at most
    /// [`MAX_DEAD_LETTERS`] + 1.
    fn list_after(&self, id: i64, limit: usize) -> BoxFuture<'_, Result<Vec<DeadLetter>, Error>>;

    /// Redrives the dead letters that have one of these ids, in any order even for the same key, and returns
    /// how many it redrove. Dead letters that can never succeed stay.
    fn redrive(&self, ids: Vec<i64>) -> BoxFuture<'_, Result<u64, Error>>;

    /// Removes a dead letter from the queue for good. Returns false if the queue has none with this id.
    fn discard(&self, id: i64) -> BoxFuture<'_, Result<bool, Error>>;
}

/// The dead letters of a queue of [`Queues`].
pub(crate) struct QueueDeadLetters {
    pub(crate) queues: Queues,
    pub(crate) queue: &'static str,
}

impl DeadLetters for QueueDeadLetters {
    fn name(&self) -> &'static str {
        self.queue
    }

    fn depth(&self) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(self.queues.dead_letter_count(self.queue))
    }

    fn list_after(&self, id: i64, limit: usize) -> BoxFuture<'_, Result<Vec<DeadLetter>, Error>> {
        Box::pin(async move {
            let letters = self.queues.dead_letters(self.queue, id, limit).await?;
            let letter = |letter: GivenUpMessage| DeadLetter {
                id: letter.id,
                key: letter.key,
                kind: letter.topic,
                payload: Some(String::from_utf8_lossy(&letter.payload).into_owned()),
                attempts: letter.attempts,
                reason: letter.reason,
                created_at: letter.published_at,
            };
            Ok(letters.into_iter().map(letter).collect())
        })
    }

    fn redrive(&self, ids: Vec<i64>) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(self.queues.redrive(self.queue, ids))
    }

    fn discard(&self, id: i64) -> BoxFuture<'_, Result<bool, Error>> {
        Box::pin(self.queues.discard(self.queue, id))
    }
}
