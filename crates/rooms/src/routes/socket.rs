//! The WebSocket route, which follows rooms and the personal stream.

use std::future::ready;

use axum::extract::State;
use axum::response::Response;
use bongsu_http::openapi::StreamParams;
use bongsu_http::websocket::Upgrade;
use bongsu_http::{ApiError, Identity, ObserverFlag, StreamLanguage, StreamPerson};
use bongsu_kernel::{Code, Id};
use bongsu_live::{BoxedGuard, CloseHandle, PolicyFuture, SocketPolicy, SubjectName, Target};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::RoomsState;
use super::errors::{access_error, open_error};
use crate::{MAX_ROOMS_PER_STREAM, Rooms, subject};

pub(super) fn router() -> OpenApiRouter<RoomsState> {
    OpenApiRouter::new().routes(routes!(socket))
}

/// Follow rooms and the inbox over a WebSocket
///
/// Send `{"op":"subscribe","room":42,"since":"0-0"}` or `{"op":"unsubscribe","room":42}`, and receive
/// `{"event","id","room","data"}`. The first event after `system.subscribed` is a `presence.update` with the people in
/// the room. Send `"inbox":true` instead of a room to follow the personal stream, and receive
/// `{"event","id","inbox","data"}`. A refused operation is answered with `{"event":"error","code","room"}` or
/// `{"event":"error","code","inbox"}`. The hub closes the WebSocket with a code of 3000 or above; reconnect after a
/// code below 3500.
#[utoipa::path(
    get,
    path = "/api/v1/ws",
    params(StreamParams),
    responses(
        (status = 101, description = "The connection becomes a WebSocket."),
        (status = 426, description = "The WebSocket version is not 13."),
    ),
    security(("person" = [])),
)]
async fn socket(
    _: StreamLanguage,
    upgrade: Upgrade,
    caller: StreamPerson,
    observer: ObserverFlag,
    State(rooms): State<Rooms>,
    State(identity): State<Identity>,
) -> Result<Response, ApiError> {
    let person = caller.person().clone();
    let policy = RoomSocketPolicy { user: person.id.clone(), observer, rooms: rooms.clone() };
    let socket = rooms.0.hub.open_socket(caller, Box::new(policy)).await.map_err(open_error)?;
    identity.check_revoked(&person).await?;
    Ok(upgrade.answer(socket))
}

struct RoomSocketPolicy {
    user: Id,
    observer: ObserverFlag,
    rooms: Rooms,
}

impl SocketPolicy for RoomSocketPolicy {
    fn subject(&self, target: &Target) -> Result<SubjectName, Code> {
        match target {
            Target::Room(room) => Ok(subject(room)),
            Target::Inbox => match self.rooms.0.hub.personal_streams() {
                Some(personal) => Ok(personal.subject(&self.user)),
                None => Err(ApiError::no_records().code),
            },
        }
    }

    fn may_read(&self, target: &Target) -> PolicyFuture<()> {
        let (rooms, user) = (self.rooms.clone(), self.user.clone());
        match target.clone() {
            Target::Room(room) => Box::pin(async move {
                rooms.may_read(&room, &user).await.map_err(|error| access_error(error).code)
            }),
            Target::Inbox => Box::pin(ready(Ok(()))),
        }
    }

    fn on_subscribed(&self, target: &Target, close_handle: CloseHandle) -> PolicyFuture<BoxedGuard> {
        let (rooms, user, observer) = (self.rooms.clone(), self.user.clone(), self.observer);
        let target = target.clone();
        Box::pin(async move {
            match target {
                Target::Room(room) => Ok(Box::new(rooms.join(&room, &user, observer).await) as BoxedGuard),
                Target::Inbox => {
                    let personal = rooms.0.hub.personal_streams().ok_or(ApiError::no_records().code)?;
                    personal.join(&user, close_handle).await.map_err(|error| error.code)
                }
            }
        })
    }

    fn max_rooms(&self) -> usize {
        MAX_ROOMS_PER_STREAM
    }
}
