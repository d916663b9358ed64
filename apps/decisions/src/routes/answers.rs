//! The response bodies, with their OpenAPI schemas. `requests` declares the request bodies.
//!
//! `bongsu_http::openapi` adds the common envelope to each body in the OpenAPI document.

#![allow(unused_qualifications, reason = "the derive writes its types with their paths")]

use bongsu_http::openapi::IdSchema;
use bongsu_kernel::Id;
use bongsu_kernel::clock::rfc3339;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    Comment, Decision, DecisionEvent, EventCounts, ListPage, Membership, Proposal, ProposalType, Status,
    VoteResult,
};

/// An event with its counts and the caller's membership.
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
    /// The caller's own membership.
    membership_status: Membership,
    counts: CountsAnswer,
}

#[derive(Serialize, ToSchema)]
struct CountsAnswer {
    /// The number of accepted members.
    members: u64,
    proposals: u64,
    comments: u64,
}

impl EventAnswer {
    /// The answer to a member. Only accepted members can read an event.
    pub(super) fn new(event: DecisionEvent, counts: EventCounts) -> Self {
        let EventCounts { members, proposals, comments } = counts;
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

    /// The answer to the creator. A new event has one member, its creator, and no proposals or comments.
    pub(super) fn created(event: DecisionEvent) -> Self {
        Self::new(event, EventCounts { members: 1, proposals: 0, comments: 0 })
    }
}

/// The membership of a person.
#[derive(Serialize, ToSchema)]
pub(super) struct MembershipAnswer {
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
    /// The number of votes of people who are accepted members now.
    votes: u64,
    /// Whether the caller has voted for the proposal.
    voted: bool,
    #[schema(example = "2026-02-16T10:30:00.000Z")]
    created_at: String,
    /// Null while the proposal is PENDING.
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
            voted: proposal.has_voted,
            created_at: rfc3339(proposal.created_at),
            decided_at: proposal.decided_at.map(rfc3339),
        }
    }
}

/// A page of proposals.
#[derive(Serialize, ToSchema)]
pub(super) struct Proposals {
    items: Vec<ProposalItem>,
    /// The `cursor` of the next page; null on the last page.
    #[schema(example = "3")]
    next_cursor: Option<String>,
}

impl From<ListPage<Proposal>> for Proposals {
    fn from(list: ListPage<Proposal>) -> Self {
        let next_cursor = list.items.last().filter(|_| list.has_more).map(|last| last.number.to_string());
        Self { items: list.items.into_iter().map(ProposalItem::from).collect(), next_cursor }
    }
}

/// A proposal after a vote was added or withdrawn.
#[derive(Serialize, ToSchema)]
pub(super) struct VoteAnswer {
    #[schema(value_type = IdSchema, example = 3)]
    proposal_id: Id,
    proposal_type: ProposalType,
    status: Status,
    /// The number of votes of people who are accepted members now.
    votes: u64,
    /// Whether the caller has voted for the proposal.
    voted: bool,
}

impl From<VoteResult> for VoteAnswer {
    fn from(result: VoteResult) -> Self {
        let VoteResult { proposal, proposal_type, status, votes, has_voted } = result;
        Self { proposal_id: proposal.into(), proposal_type, status, votes, voted: has_voted }
    }
}

/// A proposal that has been approved or rejected.
#[derive(Serialize, ToSchema)]
pub(super) struct DecisionAnswer {
    #[schema(value_type = IdSchema, example = 3)]
    proposal_id: Id,
    proposal_type: ProposalType,
    status: Status,
}

impl From<Decision> for DecisionAnswer {
    fn from(decision: Decision) -> Self {
        let Decision { proposal, proposal_type, status } = decision;
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
    /// The `cursor` of the next page; null on the last page.
    #[schema(example = "5")]
    next_cursor: Option<String>,
}

impl From<ListPage<Comment>> for Comments {
    fn from(list: ListPage<Comment>) -> Self {
        let next_cursor = list.items.last().filter(|_| list.has_more).map(|last| last.number.to_string());
        Self { items: list.items.into_iter().map(CommentItem::from).collect(), next_cursor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_above_2_to_the_53_are_strings() {
        const ABOVE_2_POW_53: i64 = (1 << 53) + 1;
        let decision = Decision {
            proposal: ABOVE_2_POW_53,
            proposal_type: ProposalType::Criteria,
            status: Status::Approved,
        };
        let decision = serde_json::to_value(DecisionAnswer::from(decision)).unwrap();
        assert_eq!(decision["proposal_id"], "9007199254740993");
        let author = Id::new("7").unwrap();
        let comment =
            Comment { number: ABOVE_2_POW_53, criterion: 3, author, content: String::new(), created_at: 0 };
        let comment = serde_json::to_value(CommentItem::from(comment)).unwrap();
        assert_eq!(comment["comment_id"], "9007199254740993");
        assert_eq!(comment["criterion_id"], 3);
    }
}
