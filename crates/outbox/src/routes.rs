//! The HTTP route of the stream of an event's rows.
//!
//! The membership is checked before the stream opens, and again after the stream has subscribed, so that no removal in
//! between is missed.

use axum::extract::{FromRequestParts, State};
use axum::response::Response;
use bongsu_http::openapi::{ResumeParams, StreamParams};
use bongsu_http::request::text_id;
use bongsu_http::stream::{parse_number, resume_position};
use bongsu_http::{ApiError, Identity, RouteState, StreamLanguage, StreamPerson, request};
use bongsu_kernel::text::Text;
use bongsu_kernel::{Code, Id};
use bongsu_live::OpenError;
use bongsu_sql::Error;
use http::request::Parts;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::{MembershipError, Outbox, subject};

/// The example of the OpenAPI documentation.
const STREAM_EXAMPLE: &str = "id: 16\nretry: 5000\n\nid: 17\ndata: {\"id\":17,\"event_type\":\"proposal.created.v1\",\
    \"payload\":{\"proposal_id\":3,\"proposal_type\":\"criteria\"},\
    \"created_at\":\"2026-02-16T10:30:00.000Z\"}\n\n: ping\n\n";

/// None when OUTBOX or RECORDS is off.
type OutboxState = RouteState<Option<Outbox>>;

/// The routes of this part, with their OpenAPI documentation.
pub fn router(outbox: Option<Outbox>, identity: Identity) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(stream)).with_state(OutboxState { part: outbox, identity })
}

/// The row id after which a stream begins. None begins with the next row.
struct ResumeAfter(Option<i64>);

impl<S: Sync> FromRequestParts<S> for ResumeAfter {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        // Row ids may be negative, because programs may choose them.
        let position = resume_position(parts, "last_event_id", |text| parse_number(text, i64::MIN))?;
        Ok(Self(position.map(|(id, _)| id)))
    }
}

request! {
    path EventPath {
        /// The id of the event.
        event as "eventId": Id = text_id("42"),
    }
}

/// Follow the rows of an event
///
/// Receive every row of the event that is committed from now on; with a position, first the rows after
/// the position. Requires an ACCEPTED membership; when the membership ends, the stream sends the rows before
/// that change and closes with 3501.
#[utoipa::path(
    get,
    path = "/events/{eventId}/stream",
    tag = "outbox",
    params(
        EventPath,
        ResumeParams,
        ("last_event_id" = Option<String>, Query, description = "The same as the header `Last-Event-ID`, for clients that cannot send headers.", example = "17"),
        StreamParams,
    ),
    responses((status = 200, description = "The stream of the event's rows, which stays open.", content_type = "text/event-stream", body = String, example = json!(STREAM_EXAMPLE))),
    security(("person" = [])),
)]
async fn stream(
    _: StreamLanguage,
    ResumeAfter(last): ResumeAfter,
    caller: StreamPerson,
    EventPath { event }: EventPath,
    State(state): State<OutboxState>,
) -> Result<Response, ApiError> {
    let OutboxState { part: outbox, identity } = state;
    let outbox = outbox.ok_or_else(|| {
        let text = Text::new(
            "아웃박스를 사용하지 않는 서버입니다.",
            "The outbox is not in use on this server: OUTBOX or RECORDS is off.",
        );
        ApiError::new(Code::Common503, text)
    })?;
    let person = caller.person().clone();
    outbox.admit_stream(&event, &person.id).await.map_err(membership_error)?;
    let position = match last {
        Some(id) => Some(outbox.position_of(&event, id).await.map_err(records_error)?),
        None => None,
    };
    let config = outbox.0.options.stream_config();
    let stream = outbox.0.hub.open_with(caller, subject(&event), position, config).await;
    let stream = stream.map_err(open_error)?;
    identity.check_revoked(&person).await?;
    // Checked again, because a removal before the subscription does not close the stream.
    outbox.check_membership(&event, &person.id).await.map_err(membership_error)?;
    Ok(bongsu_http::stream::response(outbox.with_membership_check(stream, event, person.id)))
}

fn membership_error(error: MembershipError) -> ApiError {
    match error {
        MembershipError::UnknownEvent => ApiError::not_found(),
        MembershipError::NotAMember => ApiError::forbidden(
            "이 이벤트의 멤버가 아닙니다.",
            "You are not an accepted member of this event.",
        ),
        MembershipError::RemovalPending => {
            unavailable("the tail has not passed a removal row of the event in time")
        }
        MembershipError::Records(error) => records_error(error),
    }
}

fn open_error(error: OpenError) -> ApiError {
    match error {
        OpenError::TooManyForPerson => ApiError::too_many(
            "열려 있는 연결이 너무 많습니다.",
            "You have too many streams open; close one first.",
        ),
        OpenError::TooMany => {
            ApiError::too_many("지금은 연결이 너무 많습니다.", "Too many streams are open right now.")
        }
        OpenError::Unavailable(outage) => unavailable(&outage.0),
        OpenError::Log(error) => unavailable(&error.to_string()),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "passed to map_err")]
fn records_error(error: Error) -> ApiError {
    if error.is_transient() {
        // At level debug, because this happens for every request; the records log the outage once.
        tracing::debug!(%error, "the database of the outbox is unavailable; answering COMMON503");
        return ApiError::database_unavailable();
    }
    tracing::error!(%error, "failed to run a query of the outbox; answering COMMON500");
    ApiError::unexpected()
}

fn unavailable(error: &str) -> ApiError {
    tracing::error!(error, "failed to open an outbox stream; answering SSE5001");
    let text = Text::new("지금은 실시간 연결을 할 수 없습니다.", "Live delivery is not available right now.");
    ApiError::new(Code::Sse5001, text)
}
