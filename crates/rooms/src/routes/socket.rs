//! Rooms and the inbox over a WebSocket.

use std::future::ready;

use axum::extract::State;
use axum::response::Response;
use bongsu_http::openapi::StreamParams;
use bongsu_http::websocket::Upgrade;
use bongsu_http::{ApiError, Identity, Observes, StreamLanguage, StreamPerson};
use bongsu_kernel::{Code, Id};
use bongsu_live::log::Boxed;
use bongsu_live::{Ender, SocketPolicy, SubjectName, SubscriptionGuard, Target};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::RoomsState;
use super::refusals::{not_allowed, not_opened};
use crate::{MOST_ROOMS, Rooms, subject};

pub(super) fn router() -> OpenApiRouter<RoomsState> {
    OpenApiRouter::new().routes(routes!(socket))
}

/// Follow rooms and the inbox over a WebSocket
///
/// The client sends `{"op":"subscribe","room":42,"since":"0-0"}` and `{"op":"unsubscribe","room":42}`, and gets
/// `{"event","id","room","data"}`; the first event after `system.subscribed` is a `presence.update` with who is there now.
/// With `"inbox":true` instead of a room it follows the personal stream, and gets `{"event","id","inbox","data"}`.
/// Refusals are `{"event":"error","code","room"}` or `{"event":"error","code","inbox"}`. It ends with a close code from 3000
/// on; below 3500 the client comes back.
#[utoipa::path(
    get,
    path = "/api/v1/ws",
    params(StreamParams),
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
    let policy = RoomSockets { user: person.id.clone(), observes, rooms: rooms.clone() };
    let socket = rooms.0.hub.open_socket(caller, Box::new(policy)).await.map_err(not_opened)?;
    identity.check_revoked(&person).await?;
    Ok(upgrade.answer(socket))
}

struct RoomSockets {
    user: Id,
    observes: Observes,
    rooms: Rooms,
}

impl SocketPolicy for RoomSockets {
    fn subject(&self, target: &Target) -> Result<SubjectName, Code> {
        match target {
            Target::Room(room) => Ok(subject(room)),
            Target::Inbox => match self.rooms.0.hub.personal() {
                Some(personal) => Ok(personal.subject(&self.user)),
                None => Err(ApiError::no_records().code),
            },
        }
    }

    fn may_read(&self, target: &Target) -> Boxed<'static, Result<(), Code>> {
        let (rooms, user) = (self.rooms.clone(), self.user.clone());
        match target.clone() {
            Target::Room(room) => Box::pin(async move {
                rooms.may_read(&room, &user).await.map_err(|error| not_allowed(error).code)
            }),
            Target::Inbox => Box::pin(ready(Ok(()))),
        }
    }

    fn joined(
        &self,
        target: &Target,
        ender: Ender,
    ) -> Boxed<'static, Result<Box<dyn SubscriptionGuard>, Code>> {
        let (rooms, user, observes) = (self.rooms.clone(), self.user.clone(), self.observes);
        let target = target.clone();
        Box::pin(async move {
            match target {
                Target::Room(room) => {
                    Ok(Box::new(rooms.join(&room, &user, observes).await) as Box<dyn SubscriptionGuard>)
                }
                Target::Inbox => {
                    let personal = rooms.0.hub.personal().ok_or(ApiError::no_records().code)?;
                    personal.join(&user, ender).await.map_err(|error| error.code)
                }
            }
        })
    }

    fn max_rooms(&self) -> usize {
        MOST_ROOMS
    }
}
