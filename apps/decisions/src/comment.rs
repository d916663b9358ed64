//! Saying something about a criterion: a proposal of that type that was not rejected.

use bongsu_kernel::{Id, Millis};
use bongsu_sql::Transaction;

use crate::enter::{enter, hold_criterion};
use crate::tell::{COMMENTED, OfComment, tell};
use crate::{Decisions, Error, Status, store};

/// What is said, and by whom.
#[derive(Clone, Debug)]
pub struct NewComment {
    pub event: Id,
    pub criterion: Id,
    pub person: Id,
    pub content: String,
}

/// What was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment {
    pub number: i64,
    pub criterion: i64,
    pub author: Id,
    pub content: String,
    pub created_at: Millis,
}

impl Decisions {
    pub async fn comment(&self, comment: NewComment) -> Result<Comment, Error> {
        self.records.write((comment, self.clock.now()), comment_on).await
    }
}

async fn comment_on((new, now): &(NewComment, Millis), tx: &mut Transaction<'_>) -> Result<Comment, Error> {
    let event = enter(tx, &new.event, &new.person).await?;
    let criterion = hold_criterion(tx, &event, &new.criterion).await?;
    if criterion.status == Status::Rejected {
        return Err(Error::Decided(Status::Rejected));
    }
    let arguments = [
        ("event", event.number.into()),
        ("criterion", criterion.number.into()),
        ("person", (&new.person).into()),
        ("content", new.content.as_str().into()),
        ("now", (*now).into()),
    ];
    tx.run(&store::COMMENT_ADD, &arguments).await?;
    let number = store::given_id(tx).await?;
    let payload = OfComment { comment_id: number.into(), criterion_id: criterion.number.into() };
    tell(tx, &event, COMMENTED, &payload).await?;
    Ok(Comment {
        number,
        criterion: criterion.number,
        author: new.person.clone(),
        content: new.content.clone(),
        created_at: *now,
    })
}
