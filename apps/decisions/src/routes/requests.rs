//! The bodies and paths of requests.
//!
//! The example ids of proposals differ between operations, so that all examples work one after the other: a decided
//! proposal takes no votes, and an approved one cannot be rejected.

use bongsu_http::request;
use bongsu_http::request::{multiline_text, one_of, text, text_id, whole};
use bongsu_kernel::Id;

use crate::{Membership, ProposalType};

/// Maximum number of characters of a title.
const MAX_TITLE_LEN: usize = 200;
/// Maximum number of characters of a proposal or comment.
const MAX_CONTENT_LEN: usize = 2_000;
const DEFAULT_AUTO_APPROVE_PERCENT: u64 = 50;

request! {
    /// An event to be created.
    pub(super) body EventBody {
        title: String = text(MAX_TITLE_LEN).example("Where to go in May"),
        /// The percentage of accepted members whose votes approve a proposal.
        auto_approve_percent: u64 = whole(1, 100).or(DEFAULT_AUTO_APPROVE_PERCENT),
    }

    /// The new status of a membership.
    pub(super) body MembershipBody {
        status: Membership = one_of(Membership::VALUES, Membership::parse),
    }

    /// A proposal to be created.
    pub(super) body ProposalBody {
        proposal_type: ProposalType = one_of(ProposalType::VALUES, ProposalType::parse),
        content: String = multiline_text(MAX_CONTENT_LEN).example("No more than two hours by train"),
    }

    /// A comment to be created.
    pub(super) body CommentBody {
        content: String = multiline_text(MAX_CONTENT_LEN).example("Three would be fine, too."),
    }

    pub(super) path EventPath { event_id: Id = text_id("42"), }
    pub(super) path MemberPath { event_id: Id = text_id("42"), user_id: Id = text_id("1001"), }
    pub(super) path VotePath { event_id: Id = text_id("42"), proposal_id: Id = text_id("1"), }
    pub(super) path ApprovePath { event_id: Id = text_id("42"), proposal_id: Id = text_id("2"), }
    pub(super) path RejectPath { event_id: Id = text_id("42"), proposal_id: Id = text_id("3"), }
    pub(super) path CriterionPath { event_id: Id = text_id("42"), criterion_id: Id = text_id("1"), }
}
