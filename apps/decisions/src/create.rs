//! Creates events. The creator becomes the first member.

use bongsu_kernel::{Id, Millis};
use bongsu_sql::Transaction;

use crate::{DecisionEvent, Decisions, Membership, Result, store};

/// Ids that are tried for one event. An id is skipped if another program uses it.
const MAX_ID_ATTEMPTS: u32 = 1_000;

/// An event to be created, with its creator.
#[derive(Clone, Debug)]
pub struct NewEvent {
    pub title: String,
    pub auto_approve_percent: u64,
    pub creator: Id,
}

impl Decisions {
    pub async fn create(&self, event: NewEvent) -> Result<DecisionEvent> {
        let input = (event, self.clock.now());
        for _ in 0..MAX_ID_ATTEMPTS {
            if let Some(event) = self.records.write(input.clone(), create).await? {
                return Ok(event);
            }
        }
        let text = format!("other programs use the next {MAX_ID_ATTEMPTS} event ids");
        Err(bongsu_sql::Error::Failed(text).into())
    }
}

/// Inserts an event and its creator's membership. Returns None if another program uses the new id: its members and rows
/// must not become those of this event. The transaction is committed then, so that the next call gets another id.
async fn create((new, now): &(NewEvent, Millis), tx: &mut Transaction<'_>) -> Result<Option<DecisionEvent>> {
    let arguments = [
        ("title", new.title.as_str().into()),
        ("percent", new.auto_approve_percent.into()),
        ("creator", (&new.creator).into()),
        ("now", (*now).into()),
    ];
    tx.run(&store::EVENT_ADD, &arguments).await?;
    let number = store::inserted_id(tx).await?;
    let invalid = |_| bongsu_sql::Error::Failed(format!("the inserted id {number} is not a valid id"));
    let id = Id::new(&number.to_string()).map_err(invalid)?;
    let is_used = tx.row(&store::IS_EVENT_ID_USED, &[("target", (&id).into())]).await?;
    if is_used.map_or(Ok(0), |row| row.int(0))? != 0 {
        tx.run(&store::EVENT_REMOVE, &[("event", number.into())]).await?;
        return Ok(None);
    }
    let member = [
        ("target", (&id).into()),
        ("person", (&new.creator).into()),
        ("status", Membership::Accepted.as_str().into()),
    ];
    tx.run(&store::MEMBER_PUT, &member).await?;
    Ok(Some(DecisionEvent {
        id,
        number,
        title: new.title.clone(),
        auto_approve_percent: new.auto_approve_percent,
        creator: new.creator.clone(),
        created_at: *now,
    }))
}
