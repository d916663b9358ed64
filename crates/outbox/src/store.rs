//! The tables of the outbox and every query on them.

use bongsu_sql::{Migration, migration, queries, query};

/// The name of this part among migrations.
pub const PART: &str = "outbox";

/// The step that makes the table of memberships and its triggers.
pub const MEMBERSHIPS_STEP: u32 = 2;

pub const MIGRATIONS: &[Migration] =
    &[migration!(PART, 1, "0001_outbox"), migration!(PART, MEMBERSHIPS_STEP, "0002_memberships")];

queries! {
    HEAD = query!("head");
    LARGEST = query!("largest");
    AGAIN_PUT = query!("again_put", mysql);
    HEAD_HOLD = query!("head_hold");
    HEAD_MOVE = query!("head_move", postgres);
    IS_UNSEQUENCED = query!("is_unsequenced", sqlite);
    UNPLACE = query!("unplace");
    UNSEQUENCED = query!("unsequenced", mysql);
    UNSEQUENCED_HOLD = query!("unsequenced_hold", mysql);
    SEQUENCE = query!("sequence", all);
    TAIL = query!("tail", mysql);
    AFTER = query!("after", mysql);
    HEADS = query!("heads");
    AT_POSITION = query!("at_position");
    POSITION_OF = query!("position_of");
    RIGHT = query!("right", mysql);
    RIGHT_BY_QUERY = query!("right_by_query");
    WITHOUT_RIGHT = query!("without_right", all);
    WITHOUT_RIGHT_BY_QUERY = query!("without_right_by_query", all);
    RECORD = query!("record");
    UNTARGETED = query!("untargeted");
    WINDOW = query!("window");
    UNDONE = query!("undone", mysql);
    REDRIVEN = query!("redriven");
    REDRIVEN_PUT = query!("redriven_put", mysql);
    REDRIVEN_REMOVE = query!("redriven_remove", mysql);
    CLAIM_HOLD = query!("claim_hold", mysql);
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
    WAITING_OLD = query!("waiting_old");
    TIMES_ADD = query!("times_add", mysql);
    TIMES_BEFORE = query!("times_before");
    TIMES_REMOVE = query!("times_remove");
    OLD = query!("old", mysql);
    OLD_REMOVE = query!("old_remove", mysql);
    GONE_PUT = query!("gone_put", mysql);
}

/// Characters of a reason that are kept.
pub(crate) const REASON: usize = 1_000;

/// What PostgreSQL tells whoever listens when rows have got positions.
pub(crate) const CHANNEL: &str = "bongsu_outbox";

/// A list for a query.
pub(crate) fn list<T: serde::Serialize>(values: &[T]) -> Result<String, bongsu_sql::Error> {
    serde_json::to_string(values).map_err(|error| bongsu_sql::Error::Failed(error.to_string()))
}
