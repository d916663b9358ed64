//! The personal stream over HTTP.

use axum::extract::{FromRequestParts, State};
use axum::response::Response;
use bongsu_http::openapi::{ResumeParams, StreamParams};
use bongsu_http::stream::{number, resumed};
use bongsu_http::{ApiError, Identity, RouteState, StreamLanguage, StreamPerson};
use bongsu_kernel::StreamId;
use bongsu_live::PersonalFeed;
use http::request::Parts;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Members;

const STREAM: &str = "retry: 2140\n\nid: 17\nevent: notification\ndata: {\"id\":17,\"eventId\":\"0b3f\",\
    \"type\":\"POST_LIKE\",\"message\":\"...\",\"refId\":100,\"unread\":3,\"version\":21}\n\nevent: ping\ndata: {}\n\n";

/// None when nothing is recorded.
type MembersState = RouteState<Option<Members>>;

/// The routes of this part, with their documents.
pub fn router(members: Option<Members>, identity: Identity) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(stream)).with_state(MembersState { part: members, identity })
}

/// Where a stream begins: after this number of the person's inbox, or with the newest that are unread.
struct Resume(Option<StreamId>);

impl<S: Sync> FromRequestParts<S> for Resume {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let position = resumed(parts, "lastEventId", |text| number(text, 0))?;
        let number = position.map(|(number, _)| number.unsigned_abs());
        Ok(Self(number.map(|number| if number == 0 { StreamId::EMPTY } else { StreamId::new(number, 0) })))
    }
}

/// The personal stream
///
/// Notifications as they are saved, and what was read on other devices. With a position, what was saved after it first
/// (100 at most, then `system.reset`); without, the 10 newest that are unread. A fourth connection of a person ends the
/// oldest, for good. `GET /api/v1/stream?inbox=1` is the same, and carries rooms as well where they are named.
#[utoipa::path(
    get,
    path = "/api/notifications/stream",
    tag = "members",
    params(
        ResumeParams,
        ("lastEventId" = Option<String>, Query, description = "The same, for clients that cannot send headers.", example = "17"),
        StreamParams,
    ),
    responses((status = 200, description = "The stream.", content_type = "text/event-stream", body = String, example = json!(STREAM))),
    security(("person" = [])),
)]
async fn stream(
    _: StreamLanguage,
    Resume(position): Resume,
    caller: StreamPerson,
    State(state): State<MembersState>,
) -> Result<Response, ApiError> {
    Ok(bongsu_http::stream::answer(state.get()?.open(caller, position).await?))
}
