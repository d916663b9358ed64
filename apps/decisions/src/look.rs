//! Looking: an event, its proposals, what was said about a criterion. For members only, each answer as of one moment.

use bongsu_http::Page;
use bongsu_kernel::{Id, Millis};
use bongsu_sql::{Row, Transaction};

use crate::enter::{criterion, look_in};
use crate::words::kept;
use crate::{Comment, Decisions, Error, Event, ProposalType, Status, store};

/// How much there is in an event. Members are those who are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub members: u64,
    pub proposals: u64,
    pub comments: u64,
}

/// An event with what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub event: Event,
    pub counts: Counts,
}

/// A proposal, as somebody sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    pub number: i64,
    pub proposal_type: ProposalType,
    pub status: Status,
    pub content: String,
    pub proposer: Id,
    pub created_at: Millis,
    pub decided_at: Option<Millis>,
    /// Of people who are members now.
    pub votes: u64,
    /// Whether who looks has voted for it.
    pub voted: bool,
}

/// A part of a list, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T> {
    pub items: Vec<T>,
    /// Whether there are older ones.
    pub more: bool,
}

impl Decisions {
    pub async fn event(&self, event: Id, person: Id) -> Result<Shown, Error> {
        self.records.read((event, person), show).await
    }

    pub async fn proposals(&self, event: Id, person: Id, page: Page) -> Result<List<Proposal>, Error> {
        self.records.read((event, person, page), proposals).await
    }

    pub async fn comments(
        &self,
        event: Id,
        criterion: Id,
        person: Id,
        page: Page,
    ) -> Result<List<Comment>, Error> {
        self.records.read((event, criterion, person, page), comments).await
    }
}

async fn show((event, person): &(Id, Id), tx: &mut Transaction<'_>) -> Result<Shown, Error> {
    let event = look_in(tx, event, person).await?;
    let arguments = [("event", event.number.into()), ("target", (&event.id).into())];
    let row = tx.row(&store::COUNTS, &arguments).await?;
    let row = row.ok_or_else(|| bongsu_sql::Error::Failed("nothing can be counted".to_owned()))?;
    let counts = Counts { members: row.count(0)?, proposals: row.count(1)?, comments: row.count(2)? };
    Ok(Shown { event, counts })
}

async fn proposals(
    (event, person, page): &(Id, Id, Page),
    tx: &mut Transaction<'_>,
) -> Result<List<Proposal>, Error> {
    let event = look_in(tx, event, person).await?;
    let [before, limit] = bounds(*page);
    let arguments = [
        ("event", event.number.into()),
        ("target", (&event.id).into()),
        ("person", person.into()),
        before,
        limit,
    ];
    let rows = tx.rows(&store::PROPOSALS, &arguments).await?;
    list(&rows, *page, |row| {
        Ok(Proposal {
            number: row.int(0)?,
            proposal_type: kept(row.text(1)?, ProposalType::named)?,
            status: kept(row.text(2)?, Status::named)?,
            content: row.text(3)?.to_owned(),
            proposer: row.id(4)?,
            created_at: row.count(5)?,
            decided_at: row.maybe_count(6)?,
            votes: row.count(7)?,
            voted: row.int(8)? != 0,
        })
    })
}

async fn comments(
    (event, wanted, person, page): &(Id, Id, Id, Page),
    tx: &mut Transaction<'_>,
) -> Result<List<Comment>, Error> {
    let event = look_in(tx, event, person).await?;
    let criterion = criterion(tx, &event, wanted).await?;
    let [before, limit] = bounds(*page);
    let rows = tx.rows(&store::COMMENTS, &[("criterion", criterion.into()), before, limit]).await?;
    list(&rows, *page, |row| {
        Ok(Comment {
            number: row.int(0)?,
            criterion,
            author: row.id(1)?,
            content: row.text(2)?.to_owned(),
            created_at: row.count(3)?,
        })
    })
}

/// What a page asks the database for: one more than wanted tells whether there are more.
fn bounds(page: Page) -> [(&'static str, bongsu_sql::Value); 2] {
    [("before", page.before.unwrap_or(u64::MAX).into()), ("limit", (page.limit + 1).into())]
}

fn list<T>(
    rows: &[Row],
    page: Page,
    read: impl Fn(&Row) -> Result<T, bongsu_sql::Error>,
) -> Result<List<T>, Error> {
    let items = rows.iter().take(page.limit).map(read).collect::<Result<_, _>>()?;
    Ok(List { items, more: rows.len() > page.limit })
}
