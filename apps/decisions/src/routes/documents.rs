//! The shapes of answers. Those of requests are declared in `requests`.
//!
//! The document shows each in the envelope that every answer has: `bongsu_http::openapi` adds it.

#![allow(unused_qualifications, reason = "the derive writes its types with their paths")]

use bongsu_http::openapi::IdSchema;
use bongsu_kernel::Id;
use bongsu_kernel::clock::rfc3339;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{Comment, Counts, Decided, Event, List, Membership, Proposal, ProposalType, Status, Voted};

/// An event, as a member sees it.
#[derive(Serialize, ToSchema)]
pub(super) struct EventAnswer {
    #[schema(value_type = IdSchema)]
    event_id: Id,
    title: String,
    #[schema(minimum = 1, maximum = 100)]
    auto_approve_percent: u64,
    #[schema(value_type = IdSchema)]
    creator_id: Id,
    #[schema(example = "2026-02-16T10:30:00.000Z")]
    created_at: String,
    /// The caller's own.
    membership_status: Membership,
    counts: CountsAnswer,
}

#[derive(Serialize, ToSchema)]
struct CountsAnswer {
    /// Those who are accepted.
    members: u64,
    proposals: u64,
    comments: u64,
}

impl EventAnswer {
    /// Only members see it.
    pub(super) fn new(event: Event, counts: Counts) -> Self {
        let Counts { members, proposals, comments } = counts;
        Self {
            event_id: event.id,
            title: event.title,
            auto_approve_percent: event.auto_approve_percent,
            creator_id: event.creator,
            created_at: rfc3339(event.created_at),
            membership_status: Membership::Accepted,
            counts: CountsAnswer { members, proposals, comments },
        }
    }

    /// With its creator in it and nothing else.
    pub(super) fn created(event: Event) -> Self {
        Self::new(event, Counts { members: 1, proposals: 0, comments: 0 })
    }
}

/// Somebody's membership.
#[derive(Serialize, ToSchema)]
pub(super) struct Admitted {
    #[schema(value_type = IdSchema)]
    pub(super) event_id: Id,
    #[schema(value_type = IdSchema)]
    pub(super) user_id: Id,
    pub(super) status: Membership,
}

/// One proposal.
#[derive(Serialize, ToSchema)]
pub(super) struct ProposalItem {
    #[schema(value_type = IdSchema, example = 3)]
    proposal_id: Id,
    proposal_type: ProposalType,
    status: Status,
    content: String,
    #[schema(value_type = IdSchema)]
    proposer_id: Id,
    /// Of people who are members now.
    votes: u64,
    /// Whether the caller voted for it.
    voted: bool,
    #[schema(example = "2026-02-16T10:30:00.000Z")]
    created_at: String,
    /// Null while it is PENDING.
    decided_at: Option<String>,
}

impl From<Proposal> for ProposalItem {
    fn from(proposal: Proposal) -> Self {
        Self {
            proposal_id: proposal.number.into(),
            proposal_type: proposal.proposal_type,
            status: proposal.status,
            content: proposal.content,
            proposer_id: proposal.proposer,
            votes: proposal.votes,
            voted: proposal.voted,
            created_at: rfc3339(proposal.created_at),
            decided_at: proposal.decided_at.map(rfc3339),
        }
    }
}

/// A page of proposals.
#[derive(Serialize, ToSchema)]
pub(super) struct Proposals {
    items: Vec<ProposalItem>,
    /// Null when there are no older ones.
    #[schema(example = "3")]
    next_cursor: Option<String>,
}

impl From<List<Proposal>> for Proposals {
    fn from(list: List<Proposal>) -> Self {
        let next_cursor = list.items.last().filter(|_| list.more).map(|last| last.number.to_string());
        Self { items: list.items.into_iter().map(ProposalItem::from).collect(), next_cursor }
    }
}

/// A proposal after a vote.
#[derive(Serialize, ToSchema)]
pub(super) struct VotedAnswer {
    #[schema(value_type = IdSchema, example = 3)]
    proposal_id: Id,
    proposal_type: ProposalType,
    status: Status,
    /// Of people who are members now.
    votes: u64,
    /// Whether the caller has a vote.
    voted: bool,
}

impl From<Voted> for VotedAnswer {
    fn from(voted: Voted) -> Self {
        let Voted { proposal, proposal_type, status, votes, voted } = voted;
        Self { proposal_id: proposal.into(), proposal_type, status, votes, voted }
    }
}

/// A proposal that is decided.
#[derive(Serialize, ToSchema)]
pub(super) struct DecidedAnswer {
    #[schema(value_type = IdSchema, example = 3)]
    proposal_id: Id,
    proposal_type: ProposalType,
    status: Status,
}

impl From<Decided> for DecidedAnswer {
    fn from(decided: Decided) -> Self {
        let Decided { proposal, proposal_type, status } = decided;
        Self { proposal_id: proposal.into(), proposal_type, status }
    }
}

/// One comment.
#[derive(Serialize, ToSchema)]
pub(super) struct CommentItem {
    #[schema(value_type = IdSchema, example = 5)]
    comment_id: Id,
    #[schema(value_type = IdSchema, example = 3)]
    criterion_id: Id,
    #[schema(value_type = IdSchema)]
    author_id: Id,
    content: String,
    #[schema(example = "2026-02-16T10:30:00.000Z")]
    created_at: String,
}

impl From<Comment> for CommentItem {
    fn from(comment: Comment) -> Self {
        Self {
            comment_id: comment.number.into(),
            criterion_id: comment.criterion.into(),
            author_id: comment.author,
            content: comment.content,
            created_at: rfc3339(comment.created_at),
        }
    }
}

/// A page of comments.
#[derive(Serialize, ToSchema)]
pub(super) struct Comments {
    items: Vec<CommentItem>,
    /// Null when there are no older ones.
    #[schema(example = "5")]
    next_cursor: Option<String>,
}

impl From<List<Comment>> for Comments {
    fn from(list: List<Comment>) -> Self {
        let next_cursor = list.items.last().filter(|_| list.more).map(|last| last.number.to_string());
        Self { items: list.items.into_iter().map(CommentItem::from).collect(), next_cursor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_past_2_to_the_53_are_text() {
        const LARGE: i64 = (1 << 53) + 1;
        let decided =
            Decided { proposal: LARGE, proposal_type: ProposalType::Criteria, status: Status::Approved };
        let decided = serde_json::to_value(DecidedAnswer::from(decided)).unwrap();
        assert_eq!(decided["proposal_id"], "9007199254740993");
        let author = Id::new("7").unwrap();
        let comment = Comment { number: LARGE, criterion: 3, author, content: String::new(), created_at: 0 };
        let comment = serde_json::to_value(CommentItem::from(comment)).unwrap();
        assert_eq!(comment["comment_id"], "9007199254740993");
        assert_eq!(comment["criterion_id"], 3);
    }
}
