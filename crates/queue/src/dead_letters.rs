//! Dead letters: messages that were given up, with the reason.

use std::sync::Arc;

use bongsu_kernel::Millis;
use bongsu_sql::{Error, Transaction};

use crate::message::decode_payload;
use crate::store;
use crate::{Queue, Queues};

/// A message that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUpMessage {
    pub id: i64,
    /// Empty: the message has no key.
    pub key: String,
    pub topic: String,
    pub payload: bytes::Bytes,
    pub attempts: u64,
    pub reason: String,
    pub published_at: Millis,
}

impl Queues {
    pub async fn dead_letter_count(&self, queue: &str) -> Result<u64, Error> {
        self.records().read(self.queue(queue)?, count).await
    }

    /// Reads dead letters of a queue with ids greater than `after`, in the order of their ids.
    pub async fn dead_letters(
        &self,
        queue: &str,
        after: i64,
        limit: usize,
    ) -> Result<Vec<GivenUpMessage>, Error> {
        self.records().read((self.queue(queue)?, after, limit), read_page).await
    }

    /// Puts dead letters back into their queue with their ids, outside the order of their keys. Returns how many.
    pub async fn redrive(&self, queue: &str, ids: Vec<i64>) -> Result<u64, Error> {
        let queue = self.queue(queue)?;
        let redriven = self.records().write((queue.clone(), ids), redrive).await?;
        self.announce(&queue);
        Ok(redriven)
    }

    /// Removes a dead letter for good. Returns false if the queue has none with this id.
    pub async fn discard(&self, queue: &str, id: i64) -> Result<bool, Error> {
        self.records().write((self.queue(queue)?, id), discard).await
    }
}

async fn count(queue: &Arc<Queue>, tx: &mut Transaction<'_>) -> Result<u64, Error> {
    let row = tx.row(&store::DEAD_LETTER_COUNT, &[("queue", (&*queue.name).into())]).await?;
    row.map_or(Ok(0), |row| row.count(0))
}

async fn read_page(
    (queue, after, limit): &(Arc<Queue>, i64, usize),
    tx: &mut Transaction<'_>,
) -> Result<Vec<GivenUpMessage>, Error> {
    let arguments =
        [("queue", (&*queue.name).into()), ("after", (*after).into()), ("limit", (*limit).into())];
    let rows = tx.rows(&store::DEAD_LETTERS, &arguments).await?;
    let letter = |row: &bongsu_sql::Row| {
        Ok(GivenUpMessage {
            id: row.int(0)?,
            key: row.text(1)?.to_owned(),
            topic: row.text(2)?.to_owned(),
            payload: decode_payload(row.text(3)?, row.int(4)?)?,
            attempts: row.count(5)?,
            reason: row.text(6)?.to_owned(),
            published_at: row.count(7)?,
        })
    };
    rows.iter().map(letter).collect()
}

async fn redrive((queue, ids): &(Arc<Queue>, Vec<i64>), tx: &mut Transaction<'_>) -> Result<u64, Error> {
    let mut redriven = 0;
    for id in ids {
        let arguments = [("queue", (&*queue.name).into()), ("id", (*id).into())];
        // Locked first, so that two requests at once redrive it once.
        if tx.row(&store::DEAD_LETTER_LOCK, &arguments).await?.is_some() {
            redriven += tx.run(&store::DEAD_LETTER_REDRIVE, &arguments).await?;
            remove(queue, *id, tx).await?;
        }
    }
    Ok(redriven)
}

async fn discard((queue, id): &(Arc<Queue>, i64), tx: &mut Transaction<'_>) -> Result<bool, Error> {
    remove(queue, *id, tx).await
}

async fn remove(queue: &Queue, id: i64, tx: &mut Transaction<'_>) -> Result<bool, Error> {
    let arguments = [("queue", (&*queue.name).into()), ("id", id.into())];
    Ok(tx.run(&store::DEAD_LETTER_REMOVE, &arguments).await? > 0)
}
