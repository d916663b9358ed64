//! The shapes of answers, and of requests for the OpenAPI document.
//!
//! Requests are read field by field in `requests`, so that an error names its field; their shapes here only describe them.

#![allow(unused_qualifications, reason = "the derive writes its types with their paths")]

use bongsu_http::envelope_document;
use bongsu_http::openapi::IdSchema;
use bongsu_kernel::Id;
use bongsu_kernel::clock::rfc3339;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::{Comment, Counts, Decided, Event, List, Membership, Proposal, ProposalType, Status, Voted};

envelope_document!(pub(super) struct EventEnvelope(EventAnswer));
envelope_document!(pub(super) struct AdmittedEnvelope(Admitted));
envelope_document!(pub(super) struct ProposalEnvelope(ProposalItem));
envelope_document!(pub(super) struct ProposalsEnvelope(Proposals));
envelope_document!(pub(super) struct VotedEnvelope(VotedAnswer));
envelope_document!(pub(super) struct DecidedEnvelope(DecidedAnswer));
envelope_document!(pub(super) struct CommentEnvelope(CommentItem));
envelope_document!(pub(super) struct CommentsEnvelope(Comments));

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

/// A refusal, as everywhere.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = DecisionConflict)]
#[expect(dead_code, reason = "describes the answer")]
pub(super) struct Conflict {
    #[schema(example = false)]
    is_success: bool,
    #[schema(example = "COMMON409")]
    code: String,
    /// For people, in Korean or English by `Accept-Language`, else by `DEFAULT_LANGUAGE`.
    message: String,
    /// Always null.
    result: Option<String>,
}

/// What is to be decided.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the request")]
pub(super) struct EventBody {
    #[schema(
        min_length = 1,
        max_length = 200,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$",
        example = "Where to go in May"
    )]
    title: String,
    /// A proposal is approved when so many percent of the accepted members voted for it; 50 where nothing is said.
    #[schema(minimum = 1, maximum = 100)]
    auto_approve_percent: Option<u64>,
}

/// Whether somebody takes part.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the request")]
pub(super) struct MembershipBody {
    status: Membership,
}

/// What is proposed.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the request")]
pub(super) struct ProposalBody {
    proposal_type: ProposalType,
    #[schema(
        min_length = 1,
        max_length = 2000,
        pattern = "^[^\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f]+$",
        example = "No more than two hours by train"
    )]
    content: String,
}

/// What is said.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the request")]
pub(super) struct CommentBody {
    #[schema(
        min_length = 1,
        max_length = 2000,
        pattern = "^[^\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f]+$",
        example = "Three would be fine, too."
    )]
    content: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the request")]
pub(super) struct EventParam {
    #[param(example = "42", pattern = "^[A-Za-z0-9._@:-]{1,128}$")]
    event_id: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the request")]
pub(super) struct MemberParams {
    #[param(example = "42", pattern = "^[A-Za-z0-9._@:-]{1,128}$")]
    event_id: String,
    #[param(example = "1001", pattern = "^[A-Za-z0-9._@:-]{1,128}$")]
    user_id: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the request")]
pub(super) struct PageParams {
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// 20 where nothing is said.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

/// The parameters of what is done to a proposal. The examples differ, so that trying them out one after the other works:
/// what is decided takes no votes, and what is approved cannot be rejected.
macro_rules! of_proposal {
    ($($name:ident: $field:ident = $example:literal;)*) => {
        $(
            #[derive(IntoParams)]
            #[into_params(parameter_in = Path)]
            #[expect(dead_code, reason = "describes the request")]
            pub(super) struct $name {
                #[param(example = "42", pattern = "^[A-Za-z0-9._@:-]{1,128}$")]
                event_id: String,
                #[param(example = $example, pattern = "^[A-Za-z0-9._@:-]{1,128}$")]
                $field: String,
            }
        )*
    };
}

of_proposal! {
    VoteParams: proposal_id = "1";
    ApproveParams: proposal_id = "2";
    RejectParams: proposal_id = "3";
    CriterionParams: criterion_id = "1";
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
