//! The HTTP route of the personal stream.

use axum::extract::{FromRequestParts, State};
use axum::response::Response;
use bongsu_http::openapi::{ResumeParams, StreamParams};
use bongsu_http::stream::{parse_number, resume_position};
use bongsu_http::{ApiError, Identity, RouteState, StreamLanguage, StreamPerson};
use bongsu_kernel::StreamId;
use bongsu_live::PersonalStreams;
use http::request::Parts;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Members;

const STREAM: &str = "retry: 2140\n\nid: 17\nevent: notification\ndata: {\"id\":17,\"eventId\":\"0b3f\",\
    \"type\":\"POST_LIKE\",\"message\":\"...\",\"refId\":100,\"unread\":3,\"version\":21}\n\nevent: ping\ndata: {}\n\n";

/// None when RECORDS is off.
type MembersState = RouteState<Option<Members>>;

/// The routes of this part, with their OpenAPI descriptions.
pub fn router(members: Option<Members>, identity: Identity) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(stream)).with_state(MembersState { part: members, identity })
}

/// The inbox sequence after which a stream begins; None: the stream begins with the newest unread entries.
struct Resume(Option<StreamId>);

impl<S: Sync> FromRequestParts<S> for Resume {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let position = resume_position(parts, "lastEventId", |text| parse_number(text, 0))?;
        let sequence = position.map(|(sequence, _)| sequence.unsigned_abs());
        Ok(Self(sequence.map(|sequence| match sequence {
            0 => StreamId::EMPTY_SUBJECT,
            sequence => StreamId::new(sequence, 0),
        })))
    }
}

/// Follow the personal stream
///
/// Receive the person's inbox entries when they are stored, and changes that the person's other devices made.
/// With a position, the stream begins with the entries after it (the first 100, then `system.reset`); without
/// a position, with the 10 newest unread entries. A connection beyond `MEMBER_MAX_CONNECTIONS` (default: 3)
/// closes the person's oldest one for good (3500). `GET /api/v1/stream?inbox=1` sends the same, and can
/// include rooms.
#[utoipa::path(
    get,
    path = "/api/notifications/stream",
    tag = "members",
    params(
        ResumeParams,
        ("lastEventId" = Option<String>, Query, description = "The id of the last event that the client received, for clients that cannot set headers.", example = "17"),
        StreamParams,
    ),
    responses((status = 200, description = "The personal stream, which stays open.", content_type = "text/event-stream", body = String, example = json!(STREAM))),
    security(("person" = [])),
)]
async fn stream(
    _: StreamLanguage,
    Resume(position): Resume,
    caller: StreamPerson,
    State(state): State<MembersState>,
) -> Result<Response, ApiError> {
    Ok(bongsu_http::stream::response(state.get()?.open(caller, position).await?))
}
