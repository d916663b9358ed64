//! The queue of notifications: domain events of the topics `notification.<type>` become inbox entries.
//!
//! A message that is handled again, because a worker was killed before its outcome was written, adds no second entry:
//! the entry is unique by event id and person.

use bongsu_kernel::json::Object;
use bongsu_part::BoxFuture;
use bongsu_queue::{DomainEvent, MessageHandler, QueueDelivery, Rejection, TopicPattern};

use crate::{EventId, Inbox, Notification, NotificationType, NotifyError};

/// The name of the queue.
pub(crate) const QUEUE: &str = "notification_queue";

/// The topics whose messages become notifications.
pub(crate) fn topics() -> [TopicPattern; 1] {
    [TopicPattern::new("notification.*")]
}

/// Notifies the target of each message.
pub(crate) struct NotificationHandler(pub(crate) Inbox);

impl MessageHandler for NotificationHandler {
    fn handle<'a>(&'a self, delivery: &'a QueueDelivery) -> BoxFuture<'a, Result<(), Rejection>> {
        Box::pin(async move {
            let event = DomainEvent::parse(&delivery.message.payload).map_err(Rejection::Permanent)?;
            let target = event.target_id.clone();
            let target = target.ok_or_else(|| Rejection::Permanent("targetId: required".to_owned()))?;
            let notification = notification(event).map_err(Rejection::Permanent)?;
            match self.0.notify(notification, &[target]).await {
                Ok(_) => Ok(()),
                Err(error @ NotifyError::Conflict) => Err(Rejection::Permanent(format!("eventId: {error}"))),
                Err(NotifyError::Records(error)) if error.is_store_failure() => {
                    Err(Rejection::Unavailable(error.to_string()))
                }
                Err(NotifyError::Records(error)) => Err(Rejection::Retryable(error.to_string())),
            }
        })
    }
}

/// The notification of an event. The error names the field that is not allowed.
fn notification(event: DomainEvent) -> Result<Notification, String> {
    let kind = NotificationType::of_service(&event.event_type);
    let kind =
        kind.map_err(|_| "eventType: must be upper-case letters, digits and underscores".to_owned())?;
    let id = EventId::new(event.event_id.as_str()).map_err(|_| "eventId: not allowed".to_owned())?;
    let payload = event.payload.or_else(|| Object::from_stored("{}"));
    Ok(Notification {
        event: id,
        kind,
        reference: event.ref_id,
        actor: event.actor_id,
        payload: payload.ok_or_else(|| "payload: not allowed".to_owned())?,
    })
}
