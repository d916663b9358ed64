//! Why something was not done, as people read it.

use bongsu_http::ApiError;
use bongsu_kernel::Code;
use bongsu_kernel::text::Text;
use bongsu_sql::Error as RecordsError;

use crate::{Error, Status};

pub(super) fn refused(error: Error) -> ApiError {
    match error {
        Error::NoEvent => not_there("존재하지 않는 이벤트입니다.", "There is no such event."),
        Error::NoProposal => not_there("존재하지 않는 제안입니다.", "There is no such proposal."),
        Error::NoCriterion => not_there("존재하지 않는 기준입니다.", "There is no such criterion."),
        Error::Stranger => ApiError::forbidden(
            "이 이벤트의 멤버가 아닙니다.",
            "You are not an accepted member of this event.",
        ),
        Error::NotCreator => ApiError::forbidden(
            "이벤트를 만든 사람만 할 수 있습니다.",
            "Only the creator of the event may do this.",
        ),
        Error::CreatorStays => ApiError::forbidden(
            "이벤트를 만든 사람은 스스로 멤버에서 빠질 수 없습니다.",
            "The creator of an event cannot end their own membership.",
        ),
        Error::Decided(Status::Rejected) => {
            ApiError::conflict(Text::new("이미 기각된 제안입니다.", "The proposal was rejected already."))
        }
        Error::Decided(_) => {
            ApiError::conflict(Text::new("이미 승인된 제안입니다.", "The proposal was approved already."))
        }
        Error::Records(error) => away(&error),
    }
}

fn not_there(ko: &'static str, en: &'static str) -> ApiError {
    ApiError::new(Code::Common404, Text::new(ko, en))
}

/// The records cannot be asked, or refuse what was asked.
fn away(error: &RecordsError) -> ApiError {
    if let RecordsError::Failed(_) = error {
        tracing::error!(%error, "the records refuse what decisions ask");
        return ApiError::unexpected();
    }
    // For every request: that the database is away is said elsewhere, once.
    tracing::debug!(%error, "decisions cannot be used");
    let text =
        Text::new("지금은 데이터베이스를 사용할 수 없습니다.", "The database cannot be used right now.");
    ApiError::new(Code::Common503, text)
}
