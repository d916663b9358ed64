//! The stream of an event's rows over HTTP.
//!
//! Rights are asked for twice: before the stream begins, and once it hears of rights that end.

use axum::extract::{FromRequestParts, State};
use axum::response::Response;
use bongsu_http::openapi::{ResumeParams, StreamParams};
use bongsu_http::request::text_id;
use bongsu_http::stream::{number, resumed};
use bongsu_http::{ApiError, Identity, RouteState, StreamLanguage, StreamPerson, request};
use bongsu_kernel::text::Text;
use bongsu_kernel::{Code, Id};
use bongsu_live::OpenError;
use bongsu_sql::Error;
use http::request::Parts;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::{Outbox, RightError, subject};

const STREAM: &str = "id: 16\nretry: 5000\n\nid: 17\ndata: {\"id\":17,\"event_type\":\"proposal.created.v1\",\
    \"payload\":{\"proposal_id\":3,\"proposal_type\":\"criteria\"},\
    \"created_at\":\"2026-02-16T10:30:00.000Z\"}\n\n: ping\n\n";

/// None when there is no outbox.
type OutboxState = RouteState<Option<Outbox>>;

/// The routes of this part, with their documents.
pub fn router(outbox: Option<Outbox>, identity: Identity) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(stream)).with_state(OutboxState { part: outbox, identity })
}

/// Where a stream begins: after this row, or from now on.
struct Resume(Option<i64>);

impl<S: Sync> FromRequestParts<S> for Resume {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        // A program may give rows any ids.
        let position = resumed(parts, "last_event_id", |text| number(text, i64::MIN))?;
        Ok(Self(position.map(|(id, _)| id)))
    }
}

request! {
    path EventPath {
        /// The event.
        event as "eventId": Id = text_id("42"),
    }
}

/// Follow an event
///
/// What was committed about the event, from now on; with a position, everything after it first. Only people whose
/// membership is ACCEPTED may follow it; the stream ends (3501) where that was withdrawn.
#[utoipa::path(
    get,
    path = "/events/{eventId}/stream",
    tag = "outbox",
    params(
        EventPath,
        ResumeParams,
        ("last_event_id" = Option<String>, Query, description = "The same, for clients that cannot send headers.", example = "17"),
        StreamParams,
    ),
    responses((status = 200, description = "The stream.", content_type = "text/event-stream", body = String, example = json!(STREAM))),
    security(("person" = [])),
)]
async fn stream(
    _: StreamLanguage,
    Resume(last): Resume,
    caller: StreamPerson,
    EventPath { event }: EventPath,
    State(state): State<OutboxState>,
) -> Result<Response, ApiError> {
    let OutboxState { part: outbox, identity } = state;
    let outbox = outbox.ok_or_else(|| {
        let text = Text::new(
            "아웃박스를 사용하지 않는 서버입니다.",
            "There is no outbox here: OUTBOX or RECORDS is off.",
        );
        ApiError::new(Code::Common503, text)
    })?;
    let person = caller.person().clone();
    outbox.admit(&event, &person.id).await.map_err(not_allowed)?;
    let position = match last {
        Some(id) => Some(outbox.position_of(&event, id).await.map_err(|error| unread(&error))?),
        None => None,
    };
    let manner = outbox.0.options.manner();
    let stream = outbox.0.hub.open_in(caller, subject(&event), position, manner).await;
    let stream = stream.map_err(not_opened)?;
    identity.check_revoked(&person).await?;
    // Again, now that it is subscribed: a right that ends from here on ends the stream.
    outbox.may_follow(&event, &person.id).await.map_err(not_allowed)?;
    Ok(bongsu_http::stream::answer(outbox.watched(stream, event, person.id)))
}

fn not_allowed(error: RightError) -> ApiError {
    match error {
        RightError::NoEvent => ApiError::not_found(),
        RightError::Stranger => ApiError::forbidden(
            "이 이벤트의 멤버가 아닙니다.",
            "You are not an accepted member of this event.",
        ),
        RightError::Unsettled => unavailable("a right that ended has no place yet"),
        RightError::Records(error) => unread(&error),
    }
}

fn not_opened(error: OpenError) -> ApiError {
    match error {
        OpenError::TooManyForPerson => ApiError::too_many(
            "열려 있는 연결이 너무 많습니다.",
            "You have too many streams open; close one first.",
        ),
        OpenError::TooMany => {
            ApiError::too_many("지금은 연결이 너무 많습니다.", "Too many streams are open right now.")
        }
        OpenError::Away(outage) => unavailable(&outage.0),
        OpenError::Log(error) => unavailable(&error.to_string()),
    }
}

fn unread(error: &Error) -> ApiError {
    if error.may_pass() {
        // That the database is away is in the log already, and in health.
        tracing::debug!(%error, "the outbox is away");
        let text =
            Text::new("지금은 데이터베이스를 사용할 수 없습니다.", "The database cannot be used right now.");
        return ApiError::new(Code::Common503, text);
    }
    tracing::error!(%error, "the outbox failed");
    ApiError::unexpected()
}

fn unavailable(error: &str) -> ApiError {
    tracing::error!(error, "a stream of an event could not be opened");
    let text = Text::new("지금은 실시간 연결을 할 수 없습니다.", "Live delivery is not available right now.");
    ApiError::new(Code::Sse5001, text)
}
