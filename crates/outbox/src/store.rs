//! The tables of the outbox and every query on them.

use bongsu_sql::{Migration, migration, queries, query};

/// The name of this part in the table of applied migrations.
pub const PART: &str = "outbox";

/// The migration step that creates the membership table and its triggers.
pub const MEMBERSHIPS_STEP: u32 = 2;

pub const MIGRATIONS: &[Migration] =
    &[migration!(PART, 1, "0001_outbox"), migration!(PART, MEMBERSHIPS_STEP, "0002_memberships")];

queries! {
    HEAD = query!("head");
    LARGEST = query!("largest");
    RESTORE_PUT = query!("restore_put", mysql);
    HEAD_LOCK = query!("head_lock");
    HEAD_MOVE = query!("head_move", postgres);
    IS_UNSEQUENCED = query!("is_unsequenced", sqlite);
    POSITION_RESET = query!("position_reset");
    UNSEQUENCED = query!("unsequenced", mysql);
    UNSEQUENCED_LOCK = query!("unsequenced_lock", mysql);
    SEQUENCE = query!("sequence", all);
    TAIL = query!("tail", mysql);
    AFTER = query!("after", mysql);
    HEADS = query!("heads");
    AT_POSITION = query!("at_position");
    POSITION_OF = query!("position_of");
    MEMBERSHIP = query!("membership", mysql);
    MEMBERSHIP_BY_QUERY = query!("membership_by_query");
    MISSING_MEMBERSHIP = query!("missing_membership", all);
    MISSING_MEMBERSHIP_BY_QUERY = query!("missing_membership_by_query", all);
    RECORD = query!("record");
    UNTARGETED = query!("untargeted");
    SCAN_PAGE = query!("scan_page");
    UNFINISHED = query!("unfinished", mysql);
    REDRIVEN = query!("redriven");
    REDRIVEN_PUT = query!("redriven_put", mysql);
    REDRIVEN_REMOVE = query!("redriven_remove", mysql);
    CLAIM_LOCK = query!("claim_lock", mysql);
    CLAIM = query!("claim", mysql);
    CLAIM_DONE = query!("claim_done", mysql);
    CLAIM_END = query!("claim_end");
    FAULT_MARK = query!("fault_mark", mysql);
    FAILURE_PUT = query!("failure_put", mysql);
    FAILURE_REMOVE = query!("failure_remove", mysql);
    EXPLAIN = query!("explain", mysql);
    FAILED = query!("failed", mysql);
    FAILED_COUNT = query!("failed_count");
    FAILED_DROP = query!("failed_drop");
    REDRIVE = query!("redrive", mysql);
    OVERDUE_COUNT = query!("overdue_count");
    TIMES_ADD = query!("times_add", mysql);
    TIMES_BEFORE = query!("times_before");
    TIMES_REMOVE = query!("times_remove");
    EXPIRED = query!("expired", mysql);
    EXPIRED_REMOVE = query!("expired_remove", mysql);
    GONE_PUT = query!("gone_put", mysql);
}

/// The longest failure reason that is stored, in characters.
pub(crate) const MAX_REASON_LEN: usize = 1_000;

/// The PostgreSQL channel on which the sequencer notifies tails of new positions.
pub(crate) const CHANNEL: &str = "bongsu_outbox";

/// Encodes values as a JSON array, the form of a list argument of a query.
pub(crate) fn list<T: serde::Serialize>(values: &[T]) -> Result<String, bongsu_sql::Error> {
    serde_json::to_string(values).map_err(|error| bongsu_sql::Error::Failed(error.to_string()))
}
