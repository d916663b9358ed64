//! What of the outbox goes on to rooms: each row one event, in the order of its target.

use bongsu_kernel::json::Object;
use bongsu_kernel::{EventType, Id, crash_point};
use bongsu_rooms::Rooms;
use bongsu_rooms::publish::{Publish, PublishError};
use bongsu_sql::Boxed;

use crate::worker::{Failed, Handler};
use crate::{Relay, Row, To};

/// Publishes rows to rooms.
pub(crate) struct ToRooms {
    pub(crate) rooms: Rooms,
    pub(crate) relay: Relay,
}

impl Handler for ToRooms {
    fn wants(&self, event_type: &str) -> bool {
        self.relay.of(event_type).is_some()
    }

    fn handle<'a>(&'a self, row: &'a Row) -> Boxed<'a, Result<(), Failed>> {
        Box::pin(async move {
            let event = self.event(row).map_err(|reason| Failed::Hopeless(reason.to_owned()))?;
            match self.rooms.publish(event).await {
                Ok(_) => {
                    crash_point!("after-relay-append");
                    Ok(())
                }
                Err(error) if is_away(&error) => Err(Failed::Away(error.to_string())),
                Err(error) => Err(Failed::Refused(error.to_string())),
            }
        })
    }
}

impl ToRooms {
    fn event(&self, row: &Row) -> Result<Publish, &'static str> {
        let own = || Id::new(&row.target).map_err(|_| "target_event_id is no room");
        let room = match self.relay.of(&row.event_type).ok_or("nobody relays this type")? {
            To::OwnRoom => own()?,
            To::Room(room) => room.clone(),
        };
        let event_type = EventType::new(&row.event_type).map_err(|_| "event_type is none of a room")?;
        let payload = row.payload.as_deref().ok_or("payload is too large")?;
        let payload = serde_json::from_str(payload).map_err(|_| "payload is no JSON")?;
        let data =
            Object::parse(payload, "").map_err(|_| "payload is no object, as events of rooms have it")?;
        // A row that was published by a worker that died before it said so is not published again. An id alone does not name
        // a row for ever: a database that was restored gives it again.
        let key = Some(format!("outbox:{}:{}", row.id, row.created_at));
        Ok(Publish { room, event_type, data, publisher: None, key, recipients: None, trace: row.trace })
    }
}

/// Nobody's fault but an engine's: it costs a row no try.
fn is_away(error: &PublishError) -> bool {
    match error {
        PublishError::Store(error) => error.may_pass(),
        PublishError::Log(bongsu_live::LogError::Full) => true,
        PublishError::Log(error) => error.may_pass(),
        _ => false,
    }
}
