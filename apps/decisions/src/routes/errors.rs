//! Converts errors of operations to errors of the API.

use bongsu_http::ApiError;
use bongsu_kernel::Code;
use bongsu_kernel::text::Text;
use bongsu_sql::Error as RecordsError;

use crate::{Error, Status};

pub(super) fn api_error(error: Error) -> ApiError {
    match error {
        Error::EventNotFound => not_found("존재하지 않는 이벤트입니다.", "There is no such event."),
        Error::ProposalNotFound => not_found("존재하지 않는 제안입니다.", "There is no such proposal."),
        Error::CriterionNotFound => not_found("존재하지 않는 기준입니다.", "There is no such criterion."),
        Error::NotMember => ApiError::forbidden(
            "이 이벤트의 멤버가 아닙니다.",
            "You are not an accepted member of this event.",
        ),
        Error::NotCreator => ApiError::forbidden(
            "이벤트를 만든 사람만 할 수 있습니다.",
            "Only the creator of the event may do this.",
        ),
        Error::CreatorMustStay => ApiError::forbidden(
            "이벤트를 만든 사람은 스스로 멤버에서 빠질 수 없습니다.",
            "The creator of an event cannot end their own membership.",
        ),
        Error::AlreadyDecided(Status::Rejected) => {
            ApiError::conflict(Text::new("이미 기각된 제안입니다.", "The proposal was rejected already."))
        }
        Error::AlreadyDecided(_) => {
            ApiError::conflict(Text::new("이미 승인된 제안입니다.", "The proposal was approved already."))
        }
        Error::Records(error) => records_error(&error),
    }
}

fn not_found(ko: &'static str, en: &'static str) -> ApiError {
    ApiError::new(Code::Common404, Text::new(ko, en))
}

/// A refused statement is a bug and answers 500; an unavailable database answers 503.
fn records_error(error: &RecordsError) -> ApiError {
    if let RecordsError::Failed(_) = error {
        tracing::error!(%error, "failed to run a query of decisions; answering COMMON500");
        return ApiError::unexpected();
    }
    // Only at debug level, because this is logged for each request. The records log the outage once.
    tracing::debug!(%error, "the database of decisions is unavailable; answering COMMON503");
    ApiError::database_unavailable()
}
