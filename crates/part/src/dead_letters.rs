//! Dead letters: what was given up, wherever it waits. Operators see it with the reason, have it tried again, or let it go.
//!
//! Each place that gives things up is a queue with a name; the routes know no more of it than this.

use bongsu_kernel::Millis;
use bongsu_sql::Error;

use crate::Boxed;

/// How many ids one request may name, and how many letters are read at once.
pub const MOST_LETTERS: usize = 100;

/// Something that was given up.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    pub id: i64,
    /// What it is about: letters of one key had an order.
    pub key: String,
    pub kind: String,
    /// As it was written; nothing when it is too large to be shown.
    pub payload: Option<String>,
    pub attempts: u64,
    pub reason: String,
    pub created_at: Millis,
}

/// Somewhere that things are given up.
pub trait DeadLetters: Send + Sync {
    fn name(&self) -> &'static str;

    fn depth(&self) -> Boxed<'_, Result<u64, Error>>;

    /// At most [`MOST_LETTERS`] after an id, by their ids.
    fn after(&self, id: i64, most: usize) -> Boxed<'_, Result<Vec<DeadLetter>, Error>>;

    /// Those of these that are there are tried again, outside the order of their keys: how many. What can never work stays.
    fn redrive(&self, ids: Vec<i64>) -> Boxed<'_, Result<u64, Error>>;

    /// Nobody does anything about it any more. False when it was not there.
    fn discard(&self, id: i64) -> Boxed<'_, Result<bool, Error>>;
}
