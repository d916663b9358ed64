//! Requests, each declared once.
//!
//! The examples of proposals differ, so that trying them out one after the other works: what is decided takes no votes, and
//! what is approved cannot be rejected.

use bongsu_http::request;
use bongsu_http::request::{prose, text, text_id, whole, word};
use bongsu_kernel::Id;

use crate::{Membership, ProposalType};

/// Characters at most.
const MOST_TITLE: usize = 200;
const MOST_CONTENT: usize = 2_000;
/// How many of the members are enough where nothing is said, in percent.
const USUAL_PERCENT: u64 = 50;

request! {
    /// What is to be decided.
    pub(super) body EventBody {
        title: String = text(MOST_TITLE).example("Where to go in May"),
        /// A proposal is approved when so many percent of the accepted members voted for it.
        auto_approve_percent: u64 = whole(1, 100).or(USUAL_PERCENT),
    }

    /// Whether somebody takes part.
    pub(super) body MembershipBody {
        status: Membership = word(Membership::WORDS, Membership::named),
    }

    /// What is proposed.
    pub(super) body ProposalBody {
        proposal_type: ProposalType = word(ProposalType::WORDS, ProposalType::named),
        content: String = prose(MOST_CONTENT).example("No more than two hours by train"),
    }

    /// What is said.
    pub(super) body CommentBody {
        content: String = prose(MOST_CONTENT).example("Three would be fine, too."),
    }

    pub(super) path EventPath { event_id: Id = text_id("42"), }
    pub(super) path MemberPath { event_id: Id = text_id("42"), user_id: Id = text_id("1001"), }
    pub(super) path VotePath { event_id: Id = text_id("42"), proposal_id: Id = text_id("1"), }
    pub(super) path ApprovePath { event_id: Id = text_id("42"), proposal_id: Id = text_id("2"), }
    pub(super) path RejectPath { event_id: Id = text_id("42"), proposal_id: Id = text_id("3"), }
    pub(super) path CriterionPath { event_id: Id = text_id("42"), criterion_id: Id = text_id("1"), }
}
