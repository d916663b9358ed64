//! The tables of queues, every query on them, and the JSON form of their list arguments.

use bongsu_sql::{Error, Migration, migration, queries, query};
use serde::Serialize;

pub const MIGRATIONS: &[Migration] = &[migration!("queue", 1, "0001_queue")];

queries! {
    MESSAGE_ADD = query!("message_add", mysql);
    FENCE = query!("fence");
    FENCE_RAISE = query!("fence_raise", mysql);
    DUE = query!("due");
    MAKE_READY = query!("make_ready", mysql);
    HOLD = query!("hold", mysql);
    READY = query!("ready");
    WAITING = query!("waiting");
    WAITING_IDS = query!("waiting_ids");
    MESSAGES = query!("messages", mysql);
    FINISH = query!("finish", mysql);
    PARK = query!("park");
    DEAD_LETTER_ADD = query!("dead_letter_add");
    DEAD_LETTERS = query!("dead_letters");
    DEAD_LETTER_COUNT = query!("dead_letter_count");
    DEAD_LETTER_LOCK = query!("dead_letter_lock");
    DEAD_LETTER_REDRIVE = query!("dead_letter_redrive");
    DEAD_LETTER_REMOVE = query!("dead_letter_remove");
    DEPTH = query!("depth");
}

/// A list as JSON text, for a query argument.
pub(crate) fn list(items: &(impl Serialize + ?Sized)) -> Result<String, Error> {
    serde_json::to_string(items).map_err(|error| Error::Failed(error.to_string()))
}
