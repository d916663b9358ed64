//! The tables of this application, and all queries on them.

use bongsu_sql::{Error, Migration, Transaction, migration, queries, query};

/// The name of this application as a part, a role, and among migrations.
pub const PART: &str = "decisions";

pub const MIGRATIONS: &[Migration] = &[migration!(PART, 1, "0001_decisions")];

queries! {
    EVENT = query!("event");
    EVENT_ADD = query!("event_add");
    EVENT_REMOVE = query!("event_remove");
    IS_EVENT_ID_USED = query!("is_event_id_used");
    INSERTED_ID = query!("inserted_id", all);
    COUNTS = query!("counts");
    MEMBER = query!("member");
    MEMBER_LOCK = query!("member_lock");
    MEMBER_PUT = query!("member_put", mysql);
    PROPOSAL = query!("proposal");
    PROPOSAL_ADD = query!("proposal_add");
    PROPOSAL_LOCK = query!("proposal_lock");
    PROPOSAL_DECIDE = query!("proposal_decide");
    PROPOSALS = query!("proposals");
    VOTE = query!("vote");
    VOTE_ADD = query!("vote_add");
    VOTE_REMOVE = query!("vote_remove");
    TALLY = query!("tally");
    COMMENT_ADD = query!("comment_add");
    COMMENTS = query!("comments");
}

/// Returns the id of the row that the transaction inserted last.
pub(crate) async fn inserted_id(tx: &mut Transaction<'_>) -> Result<i64, Error> {
    let row = tx.row(&INSERTED_ID, &[]).await?;
    row.ok_or_else(|| Error::Failed("the database returned no id for an inserted row".to_owned()))?.int(0)
}
