//! Publishes messages: one transaction stores a copy of each for every queue that is bound to its topic.

use std::sync::Arc;

use bongsu_kernel::Id;
use bongsu_sql::{Error, Transaction};

use crate::message::encode_payload;
use crate::store::{self, list};
use crate::{Queue, QueueMessage, Queues};

/// Why messages were not published. None of the messages of the call is stored.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PublishFailure {
    /// The message would be lost.
    #[error("no queue is bound to the topic {0}")]
    UnboundTopic(Id),
    #[error(transparent)]
    Records(#[from] Error),
}

/// A message of one queue, as the query `message_add` reads it: queue, id, topic, key, whether it is ordered,
/// headers, payload, whether that is base64, and when it was published.
type NewRow = (String, String, String, String, u8, String, String, i64, u64);

impl Queues {
    /// Publishes messages, all or none. They are durable when this returns.
    pub async fn publish(&self, messages: &[QueueMessage]) -> Result<(), PublishFailure> {
        let now = self.0.clock.now();
        let (mut rows, mut queues) = (Vec::with_capacity(messages.len()), Vec::new());
        for message in messages {
            let bound = self.bound_to(&message.topic);
            if bound.is_empty() {
                return Err(PublishFailure::UnboundTopic(message.topic.clone()));
            }
            rows.extend(
                bound.iter().map(|queue| new_row(queue, message, now)).collect::<Result<Vec<_>, _>>()?,
            );
            queues.extend(bound);
        }
        self.records().write(Arc::from(list(&rows)?), add).await?;
        for (at, queue) in queues.iter().enumerate() {
            if !queues[..at].iter().any(|other| Arc::ptr_eq(other, queue)) {
                self.announce(queue);
            }
        }
        metrics::counter!("queue_published_total").increment(messages.len() as u64);
        Ok(())
    }
}

fn new_row(queue: &Queue, message: &QueueMessage, now: u64) -> Result<NewRow, Error> {
    let (payload, is_base64) = encode_payload(&message.payload);
    let key = message.key.as_ref().map_or("", Id::as_str);
    Ok((
        queue.name.clone().into_owned(),
        message.id.as_str().to_owned(),
        message.topic.as_str().to_owned(),
        key.to_owned(),
        u8::from(message.key.is_some()),
        list(&message.headers)?,
        payload,
        is_base64,
        now,
    ))
}

async fn add(rows: &Arc<str>, tx: &mut Transaction<'_>) -> Result<u64, Error> {
    tx.run(&store::MESSAGE_ADD, &[("messages", (&**rows).into())]).await
}
