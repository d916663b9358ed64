//! Creating an event. Whoever does is its first member.

use bongsu_kernel::{Id, Millis};
use bongsu_sql::Transaction;

use crate::{Decisions, Error, Event, Membership, store};

/// So many numbers that other programs use already are passed over for one event.
const PASSED_OVER: u32 = 1_000;

/// What is to be decided, and by whom.
#[derive(Clone, Debug)]
pub struct NewEvent {
    pub title: String,
    pub auto_approve_percent: u64,
    pub creator: Id,
}

impl Decisions {
    pub async fn create(&self, event: NewEvent) -> Result<Event, Error> {
        let given = (event, self.clock.now());
        for _ in 0..PASSED_OVER {
            if let Some(event) = self.records.write(given.clone(), create).await? {
                return Ok(event);
            }
        }
        Err(bongsu_sql::Error::Failed("other programs use all ids for events of their own".to_owned()).into())
    }
}

/// Nothing when another program has an event of this number: its members and its rows are not to become ours. The number
/// counts as given then, and the next one is tried.
async fn create((new, now): &(NewEvent, Millis), tx: &mut Transaction<'_>) -> Result<Option<Event>, Error> {
    let arguments = [
        ("title", new.title.as_str().into()),
        ("percent", new.auto_approve_percent.into()),
        ("creator", (&new.creator).into()),
        ("now", (*now).into()),
    ];
    tx.run(&store::EVENT_ADD, &arguments).await?;
    let number = store::given_id(tx).await?;
    let unnamed = |_| bongsu_sql::Error::Failed("a number is no id".to_owned());
    let id = Id::new(&number.to_string()).map_err(unnamed)?;
    let taken = tx.row(&store::IS_TAKEN, &[("target", (&id).into())]).await?;
    if taken.map_or(Ok(0), |row| row.int(0))? != 0 {
        tx.run(&store::EVENT_REMOVE, &[("event", number.into())]).await?;
        return Ok(None);
    }
    let member = [
        ("target", (&id).into()),
        ("person", (&new.creator).into()),
        ("status", Membership::Accepted.as_str().into()),
    ];
    tx.run(&store::MEMBER_PUT, &member).await?;
    Ok(Some(Event {
        id,
        number,
        title: new.title.clone(),
        auto_approve_percent: new.auto_approve_percent,
        creator: new.creator.clone(),
        created_at: *now,
    }))
}
