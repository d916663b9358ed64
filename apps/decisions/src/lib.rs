//! Decisions: people propose, vote and comment on what is to be decided, and everybody who takes part sees it at once.
//!
//! An application that shows the outbox in use: every change and the row that tells of it are one transaction, and the
//! stream of an event is the outbox's. Who may take part is in its table `memberships`, which other programs may change,
//! too. Rules are in files named after what people do; [`enter`] says who may.

mod admit;
mod approve;
mod comment;
mod create;
mod enter;
mod look;
mod part;
mod propose;
pub mod routes;
pub mod store;
mod tell;
mod vote;
mod words;

use bongsu_kernel::{Clock, Id};
use bongsu_sql::Records;

pub use admit::{Admission, By};
pub use approve::Decided;
pub use comment::{Comment, NewComment};
pub use create::NewEvent;
pub use enter::Event;
pub use look::{Counts, List, Proposal, Shown};
pub use part::DECISIONS_PART;
pub use propose::NewProposal;
pub use vote::Voted;
pub use words::{Membership, ProposalType, Status};

/// Cheap to clone.
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

/// Why something was not done. Nothing was changed then, and nobody was told anything.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no such event")]
    NoEvent,
    #[error("the event has no such proposal")]
    NoProposal,
    #[error("the event has no such criterion")]
    NoCriterion,
    #[error("not an accepted member of the event")]
    Stranger,
    #[error("not the creator of the event")]
    NotCreator,
    #[error("the creator of an event stays its member")]
    CreatorStays,
    #[error("it was decided already: {}", .0.as_str())]
    Decided(Status),
    #[error(transparent)]
    Records(#[from] bongsu_sql::Error),
}

/// The number that the database gave something: other ids name nothing here.
pub(crate) fn number(id: &Id) -> Option<i64> {
    let number: i64 = id.as_str().parse().ok()?;
    (number > 0 && number.to_string() == id.as_str()).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_as_we_write_them_name_something() {
        let number_of = |text: &str| number(&Id::new(text).unwrap());
        assert_eq!((number_of("1"), number_of("9223372036854775807")), (Some(1), Some(i64::MAX)));
        for other in ["0", "-1", "01", "a", "1.0", "9223372036854775808"] {
            assert_eq!(number_of(other), None, "{other}");
        }
    }
}
