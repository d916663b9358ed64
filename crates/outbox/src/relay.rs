//! Publishes outbox rows to rooms: each row as one event, in the order of its target.

use bongsu_kernel::json::Object;
use bongsu_kernel::{EventType, Id, crash_point};
use bongsu_rooms::Rooms;
use bongsu_rooms::publish::{PublishError, PublishRequest};
use bongsu_sql::BoxFuture;

use crate::worker::{Handler, HandlerError};
use crate::{OutboxRow, Relay, RelayTarget};

/// The handler that publishes rows to rooms.
pub(crate) struct RoomRelay {
    pub(crate) rooms: Rooms,
    pub(crate) relay: Relay,
}

impl Handler for RoomRelay {
    fn handles(&self, event_type: &str) -> bool {
        self.relay.target(event_type).is_some()
    }

    fn handle<'a>(&'a self, row: &'a OutboxRow) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(async move {
            let event = self.event(row).map_err(|reason| HandlerError::Permanent(reason.to_owned()))?;
            match self.rooms.publish(event).await {
                Ok(_) => {
                    crash_point!("after-relay-append");
                    Ok(())
                }
                Err(error) if is_unavailable(&error) => Err(HandlerError::Unavailable(error.to_string())),
                Err(error) => Err(HandlerError::Retryable(error.to_string())),
            }
        })
    }
}

impl RoomRelay {
    fn event(&self, row: &OutboxRow) -> Result<PublishRequest, &'static str> {
        let own_room = || Id::new(&row.target).map_err(|_| "target_event_id is not a valid room id");
        let target = self.relay.target(&row.event_type);
        let room = match target.ok_or("OUTBOX_RELAY has no entry for this event_type")? {
            RelayTarget::OwnRoom => own_room()?,
            RelayTarget::Room(room) => room.clone(),
        };
        let event_type =
            EventType::new(&row.event_type).map_err(|_| "event_type is not allowed for events of a room")?;
        let payload = row.payload.as_deref().ok_or("payload is larger than 64 KiB")?;
        let payload = serde_json::from_str(payload).map_err(|_| "payload is not JSON")?;
        let data = Object::parse(payload, "")
            .map_err(|_| "payload is not a JSON object, which events of a room require")?;
        // The idempotency key prevents a second event when a worker dies after publishing a row and before marking it
        // DONE. The key includes the creation time, because a restored database may assign the same id to another row.
        let key = Some(format!("outbox:{}:{}", row.id, row.created_at));
        let (publisher, recipients, trace) = (None, None, row.trace);
        Ok(PublishRequest { room, event_type, data, publisher, key, recipients, trace })
    }
}

/// Whether an engine is unavailable: such a failure does not count as an attempt.
fn is_unavailable(error: &PublishError) -> bool {
    match error {
        PublishError::Store(error) => error.is_transient(),
        PublishError::Log(bongsu_live::LogError::Full) => true,
        PublishError::Log(error) => error.is_transient(),
        _ => false,
    }
}
