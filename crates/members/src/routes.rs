//! The personal stream over HTTP.

use axum::extract::{FromRef, FromRequestParts, State};
use axum::response::Response;
use bongsu_http::frame::language;
use bongsu_http::stream::resumed;
use bongsu_http::{ApiError, Identity, StreamLanguage, StreamPerson};
use bongsu_kernel::text::Text;
use bongsu_kernel::{Close, Code, StreamId};
use bongsu_live::OpenError;
use http::request::Parts;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Members;
use crate::dress::dress;

const STREAM: &str = "retry: 2140\n\nid: 17\nevent: notification\ndata: {\"id\":17,\"eventId\":\"0b3f\",\
    \"type\":\"POST_LIKE\",\"message\":\"...\",\"refId\":100,\"unread\":3,\"version\":21}\n\nevent: ping\ndata: {}\n\n";

/// Nothing when nothing is recorded.
#[derive(Clone)]
struct MembersState {
    members: Option<Members>,
    identity: Identity,
}

impl FromRef<MembersState> for Identity {
    fn from_ref(state: &MembersState) -> Self {
        state.identity.clone()
    }
}

/// The routes of this part, with their documents.
pub fn router(members: Option<Members>, identity: Identity) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(stream)).with_state(MembersState { members, identity })
}

/// Where a stream begins: after this number of the person's inbox, or with the newest that are unread.
struct Resume(Option<StreamId>);

impl<S: Sync> FromRequestParts<S> for Resume {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let number = resumed(parts, "lastEventId", 0)?.map(i64::unsigned_abs);
        Ok(Self(number.map(|number| if number == 0 { StreamId::EMPTY } else { StreamId::new(number, 0) })))
    }
}

/// The personal stream
///
/// Notifications as they are saved, and what was read on other devices. With a position, what was saved after it first
/// (100 at most, then `system.reset`); without, the 10 newest that are unread. A fourth connection of a person ends the
/// oldest, for good.
#[utoipa::path(
    get,
    path = "/api/notifications/stream",
    tag = "members",
    params(
        ("Last-Event-ID" = Option<String>, Header, description = "The last id that the client had; wins over lastEventId."),
        ("lastEventId" = Option<String>, Query, description = "The same, for clients that cannot send headers.", example = "17"),
        ("ticket" = Option<String>, Query, description = "A stream ticket, instead of a header or cookie."),
        ("token" = Option<String>, Query, description = "A JWT; prefer a ticket, because URLs end up in logs."),
        ("lang" = Option<String>, Query, description = "The language of texts: ko or en; wins over Accept-Language.", example = "en"),
    ),
    responses(
        (status = 200, description = "The stream.", content_type = "text/event-stream", body = String, example = json!(STREAM)),
        (status = 204, description = "The stream ended for good; a plain EventSource stops on this."),
    ),
    security(("person" = [])),
)]
async fn stream(
    _: StreamLanguage,
    Resume(position): Resume,
    caller: StreamPerson,
    State(state): State<MembersState>,
) -> Result<Response, ApiError> {
    let MembersState { members, identity } = state;
    let members = members.ok_or_else(ApiError::no_records)?;
    let person = caller.person().clone();
    let (inner, user) = (&members.0, person.id.clone());
    let subject = bongsu_inbox::subject(&user);
    let stream = inner.hub.open_in(caller, subject, position, inner.options.manner()).await;
    let stream = stream.map_err(not_opened)?;
    if stream.is_ending() {
        return Ok(bongsu_http::stream::answer(stream));
    }
    identity.check_revoked(&person).await?;
    let ender = stream.ender();
    let place = inner.connections.enter(&user, Box::new(move || ender.end(Close::Replaced))).await;
    let place = place.map_err(|refused| unavailable(&refused.to_string()))?;
    let (templates, language) = (inner.inbox.templates().clone(), language());
    let stream = stream.holding(place).dressed(move |frames| dress(&templates, language, frames));
    Ok(bongsu_http::stream::answer(stream))
}

fn not_opened(error: OpenError) -> ApiError {
    match error {
        OpenError::TooManyForPerson | OpenError::TooMany => {
            ApiError::too_many("지금은 연결이 너무 많습니다.", "Too many streams are open right now.")
        }
        OpenError::Away(error) => unavailable(&error),
        OpenError::Log(error) => unavailable(&error.to_string()),
    }
}

fn unavailable(error: &str) -> ApiError {
    tracing::error!(error, "a personal stream could not be opened");
    let text = Text::new(
        "지금은 실시간 알림을 받을 수 없습니다. 알림함을 이용해 주세요.",
        "Live delivery is not available right now; use the inbox.",
    );
    ApiError::new(Code::Sse5001, text)
}
