//! Decisions: members of an event propose, vote and comment, and all of them see each change at once.
//!
//! An example application of the outbox: each change and its outbox row are one transaction, and clients follow an
//! event by a stream of the outbox. Members are in the outbox's table `memberships`, which other programs may change as
//! well. Each operation has a file; [`access`] checks who may call it.

mod access;
mod approve;
mod comment;
mod create;
mod membership;
mod outbox_events;
mod part;
mod propose;
pub mod routes;
pub mod store;
mod text_enums;
mod view;
mod vote;

use bongsu_kernel::{Clock, Id};
use bongsu_sql::Records;

pub use access::DecisionEvent;
pub use approve::Decision;
pub use comment::{Comment, NewComment};
pub use create::NewEvent;
pub use membership::{Actor, MembershipChange};
pub use part::DECISIONS_PART;
pub use propose::NewProposal;
pub use text_enums::{Membership, ProposalType, Status};
pub use view::{EventCounts, EventDetails, ListPage, Proposal};
pub use vote::VoteResult;

/// The operations of this application. Cheap to clone.
#[derive(Clone)]
pub struct Decisions {
    records: Records,
    clock: Clock,
}

impl Decisions {
    pub fn new(records: Records, clock: Clock) -> Self {
        Self { records, clock }
    }
}

/// The outcome of an operation on the application.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed. A failed operation changes no row and records no outbox event.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no such event")]
    EventNotFound,
    #[error("the event has no such proposal")]
    ProposalNotFound,
    #[error("the event has no such criterion")]
    CriterionNotFound,
    #[error("not an accepted member of the event")]
    NotMember,
    #[error("not the creator of the event")]
    NotCreator,
    #[error("the creator of an event cannot end their own membership")]
    CreatorMustStay,
    #[error("the proposal has been decided already: {}", .0.as_str())]
    AlreadyDecided(Status),
    #[error(transparent)]
    Records(#[from] bongsu_sql::Error),
}

/// Parses the id of an event, proposal or comment: a positive integer in its usual form. None for any other id.
pub(crate) fn parse_number(id: &Id) -> Option<i64> {
    let number: i64 = id.as_str().parse().ok()?;
    (number > 0 && number.to_string() == id.as_str()).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_positive_integers_in_their_usual_form_are_numbers() {
        let number_of = |text: &str| parse_number(&Id::new(text).unwrap());
        assert_eq!((number_of("1"), number_of("9223372036854775807")), (Some(1), Some(i64::MAX)));
        for other in ["0", "-1", "01", "a", "1.0", "9223372036854775808"] {
            assert_eq!(number_of(other), None, "{other}");
        }
    }
}
