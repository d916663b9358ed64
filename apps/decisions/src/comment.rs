//! Comments on criteria. A criterion is a proposal of type `criteria`; a rejected one takes no comments.

use bongsu_kernel::{Id, Millis};
use bongsu_sql::Transaction;

use crate::access::{lock_criterion, lock_membership};
use crate::outbox_events::{COMMENTED, CommentPayload, record_event};
use crate::{Decisions, Error, Result, Status, store};

/// A comment to be created, with its author.
#[derive(Clone, Debug)]
pub struct NewComment {
    pub event: Id,
    pub criterion: Id,
    pub person: Id,
    pub content: String,
}

/// A stored comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment {
    pub number: i64,
    pub criterion: i64,
    pub author: Id,
    pub content: String,
    pub created_at: Millis,
}

impl Decisions {
    pub async fn comment(&self, comment: NewComment) -> Result<Comment> {
        self.records.write((comment, self.clock.now()), comment_on).await
    }
}

async fn comment_on((new, now): &(NewComment, Millis), tx: &mut Transaction<'_>) -> Result<Comment> {
    let event = lock_membership(tx, &new.event, &new.person).await?;
    let criterion = lock_criterion(tx, &event, &new.criterion).await?;
    if criterion.status == Status::Rejected {
        return Err(Error::AlreadyDecided(Status::Rejected));
    }
    let arguments = [
        ("event", event.number.into()),
        ("criterion", criterion.number.into()),
        ("person", (&new.person).into()),
        ("content", new.content.as_str().into()),
        ("now", (*now).into()),
    ];
    tx.run(&store::COMMENT_ADD, &arguments).await?;
    let number = store::inserted_id(tx).await?;
    let payload = CommentPayload { comment_id: number.into(), criterion_id: criterion.number.into() };
    record_event(tx, &event, COMMENTED, &payload).await?;
    Ok(Comment {
        number,
        criterion: criterion.number,
        author: new.person.clone(),
        content: new.content.clone(),
        created_at: *now,
    })
}
