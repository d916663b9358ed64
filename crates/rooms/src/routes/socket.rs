//! Rooms over a WebSocket.

use axum::extract::State;
use axum::response::Response;
use bongsu_http::websocket::Upgrade;
use bongsu_http::{ApiError, Identity, Observes, StreamLanguage, StreamPerson};
use bongsu_kernel::{Code, Id};
use bongsu_live::log::Boxed;
use bongsu_live::{Desk, SubjectName, SubscriptionGuard};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::RoomsState;
use super::refusals::{not_allowed, not_opened};
use crate::{MOST_ROOMS, Rooms, subject};

pub(super) fn router() -> OpenApiRouter<RoomsState> {
    OpenApiRouter::new().routes(routes!(socket))
}

/// Follow rooms over a WebSocket
///
/// The client sends `{"op":"subscribe","room":42,"since":"0-0"}` and `{"op":"unsubscribe","room":42}`, and gets
/// `{"event","id","room","data"}`; the first event after `system.subscribed` is a `presence.update` with who is there now.
/// Refusals are `{"event":"error","code","room"}`. It ends with a close code from 3000
/// on; below 3500 the client comes back.
#[utoipa::path(
    get,
    path = "/api/v1/ws",
    tag = "rooms",
    params(
        ("ticket" = Option<String>, Query, description = "A stream ticket, instead of a header or cookie."),
        ("token" = Option<String>, Query, description = "A JWT; prefer a ticket, because URLs end up in logs."),
        ("lang" = Option<String>, Query, description = "The language of texts: ko or en; wins over Accept-Language.", example = "en"),
    ),
    responses(
        (status = 101, description = "The WebSocket."),
        (status = 426, description = "Another version than 13."),
    ),
    security(("person" = [])),
)]
async fn socket(
    _: StreamLanguage,
    upgrade: Upgrade,
    caller: StreamPerson,
    observes: Observes,
    State(rooms): State<Rooms>,
    State(identity): State<Identity>,
) -> Result<Response, ApiError> {
    let person = caller.person().clone();
    let desk = RoomDesk { user: person.id.clone(), observes, rooms: rooms.clone() };
    let socket = rooms.0.hub.open_socket(caller, Box::new(desk)).await.map_err(not_opened)?;
    identity.check_revoked(&person).await?;
    Ok(upgrade.answer(socket))
}

struct RoomDesk {
    user: Id,
    observes: Observes,
    rooms: Rooms,
}

impl Desk for RoomDesk {
    fn subject(&self, room: &Id) -> SubjectName {
        subject(room)
    }

    fn may_read(&self, room: &Id) -> Boxed<'static, Result<(), Code>> {
        let (rooms, room, user) = (self.rooms.clone(), room.clone(), self.user.clone());
        Box::pin(async move { rooms.may_read(&room, &user).await.map_err(|error| not_allowed(error).code) })
    }

    fn joined(&self, room: &Id) -> Boxed<'static, Box<dyn SubscriptionGuard>> {
        let (rooms, room) = (self.rooms.clone(), room.clone());
        let (user, observes) = (self.user.clone(), self.observes);
        Box::pin(
            async move { Box::new(rooms.join(&room, &user, observes).await) as Box<dyn SubscriptionGuard> },
        )
    }

    fn most_rooms(&self) -> usize {
        MOST_ROOMS
    }
}
