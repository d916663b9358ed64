//! The tables of decisions and every query on them.

use bongsu_sql::{Error, Migration, Transaction, migration, queries, query};

/// The name of this application among migrations.
pub const PART: &str = "decisions";

pub const MIGRATIONS: &[Migration] = &[migration!(PART, 1, "0001_decisions")];

queries! {
    EVENT = query!("event");
    EVENT_ADD = query!("event_add");
    EVENT_REMOVE = query!("event_remove");
    IS_TAKEN = query!("is_taken");
    GIVEN_ID = query!("given_id", all);
    COUNTS = query!("counts");
    MEMBER = query!("member");
    MEMBER_HOLD = query!("member_hold");
    MEMBER_PUT = query!("member_put", mysql);
    PROPOSAL = query!("proposal");
    PROPOSAL_ADD = query!("proposal_add");
    PROPOSAL_HOLD = query!("proposal_hold");
    PROPOSAL_SETTLE = query!("proposal_settle");
    PROPOSALS = query!("proposals");
    VOTE = query!("vote");
    VOTE_ADD = query!("vote_add");
    VOTE_REMOVE = query!("vote_remove");
    TALLY = query!("tally");
    COMMENT_ADD = query!("comment_add");
    COMMENTS = query!("comments");
}

/// The id of the row that was just inserted.
pub(crate) async fn given_id(tx: &mut Transaction<'_>) -> Result<i64, Error> {
    let row = tx.row(&GIVEN_ID, &[]).await?;
    row.ok_or_else(|| Error::Failed("a new row has no id".to_owned()))?.int(0)
}
