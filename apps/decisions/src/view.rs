//! Reads events, their proposals, and the comments on a criterion. For members only; each answer is read in one
//! transaction.

use bongsu_http::Page;
use bongsu_kernel::{Id, Millis};
use bongsu_sql::{Row, Transaction};

use crate::access::{check_membership, find_criterion};
use crate::text_enums::parse_stored;
use crate::{Comment, DecisionEvent, Decisions, ProposalType, Result, Status, store};

/// The number of accepted members, proposals and comments of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventCounts {
    pub members: u64,
    pub proposals: u64,
    pub comments: u64,
}

/// An event with its counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDetails {
    pub event: DecisionEvent,
    pub counts: EventCounts,
}

/// A proposal, with the caller's own vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    pub number: i64,
    pub proposal_type: ProposalType,
    pub status: Status,
    pub content: String,
    pub proposer: Id,
    pub created_at: Millis,
    pub decided_at: Option<Millis>,
    /// Votes of people who are members now.
    pub votes: u64,
    /// The caller has voted for the proposal.
    pub has_voted: bool,
}

/// A page of a list, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage<T> {
    pub items: Vec<T>,
    /// Older items exist.
    pub has_more: bool,
}

impl Decisions {
    pub async fn event(&self, event: Id, person: Id) -> Result<EventDetails> {
        self.records.read((event, person), read_event).await
    }

    pub async fn proposals(&self, event: Id, person: Id, page: Page) -> Result<ListPage<Proposal>> {
        self.records.read((event, person, page), read_proposals).await
    }

    pub async fn comments(
        &self,
        event: Id,
        criterion: Id,
        person: Id,
        page: Page,
    ) -> Result<ListPage<Comment>> {
        self.records.read((event, criterion, person, page), read_comments).await
    }
}

async fn read_event((event, person): &(Id, Id), tx: &mut Transaction<'_>) -> Result<EventDetails> {
    let event = check_membership(tx, event, person).await?;
    let arguments = [("event", event.number.into()), ("target", (&event.id).into())];
    let row = tx.row(&store::COUNTS, &arguments).await?;
    let no_row = || bongsu_sql::Error::Failed("the query that counts members returned no row".to_owned());
    let row = row.ok_or_else(no_row)?;
    let counts = EventCounts { members: row.count(0)?, proposals: row.count(1)?, comments: row.count(2)? };
    Ok(EventDetails { event, counts })
}

async fn read_proposals(
    (event, person, page): &(Id, Id, Page),
    tx: &mut Transaction<'_>,
) -> Result<ListPage<Proposal>> {
    let event = check_membership(tx, event, person).await?;
    let [before, limit] = page_arguments(*page);
    let arguments = [
        ("event", event.number.into()),
        ("target", (&event.id).into()),
        ("person", person.into()),
        before,
        limit,
    ];
    let rows = tx.rows(&store::PROPOSALS, &arguments).await?;
    list_page(&rows, *page, |row| {
        Ok(Proposal {
            number: row.int(0)?,
            proposal_type: parse_stored(row.text(1)?, ProposalType::parse)?,
            status: parse_stored(row.text(2)?, Status::parse)?,
            content: row.text(3)?.to_owned(),
            proposer: row.id(4)?,
            created_at: row.count(5)?,
            decided_at: row.maybe_count(6)?,
            votes: row.count(7)?,
            has_voted: row.int(8)? != 0,
        })
    })
}

async fn read_comments(
    (event, criterion, person, page): &(Id, Id, Id, Page),
    tx: &mut Transaction<'_>,
) -> Result<ListPage<Comment>> {
    let event = check_membership(tx, event, person).await?;
    let criterion = find_criterion(tx, &event, criterion).await?;
    let [before, limit] = page_arguments(*page);
    let rows = tx.rows(&store::COMMENTS, &[("criterion", criterion.into()), before, limit]).await?;
    list_page(&rows, *page, |row| {
        Ok(Comment {
            number: row.int(0)?,
            criterion,
            author: row.id(1)?,
            content: row.text(2)?.to_owned(),
            created_at: row.count(3)?,
        })
    })
}

/// The arguments of a query for a page. The limit is one more than the page holds, to find out whether older items
/// exist.
fn page_arguments(page: Page) -> [(&'static str, bongsu_sql::Value); 2] {
    [("before", page.before.unwrap_or(u64::MAX).into()), ("limit", (page.limit + 1).into())]
}

fn list_page<T>(
    rows: &[Row],
    page: Page,
    read_row: impl Fn(&Row) -> Result<T, bongsu_sql::Error>,
) -> Result<ListPage<T>> {
    let items = rows.iter().take(page.limit).map(read_row).collect::<Result<_, _>>()?;
    Ok(ListPage { items, has_more: rows.len() > page.limit })
}
