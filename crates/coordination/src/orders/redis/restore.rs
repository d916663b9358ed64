//! Writes revocations back to a Redis that may have lost them: it was emptied, came back without its data, or was
//! replaced by a replica that lacked some.
//!
//! A loss shows at the next look at the feed, where the position is missing; before its first look a hub does not know
//! either. From then on the hub counts as not current, until Redis has every revocation that this hub remembers and
//! every one that is recorded. They go through the feed, so that a hub that did not know one applies it.

use bongsu_kernel::{Id, Millis};
use bongsu_redis::Repeat;
use bongsu_redis::redis::{self, Value, from_redis_value};
use futures_util::future::try_join_all;

use super::{Inner, PATIENCE, WriteCondition};
use crate::Error;
use crate::orders::Order;

/// Revocations that Redis is asked about at once.
const BATCH_SIZE: usize = 256;

impl Inner {
    /// Does nothing while Redis is known to have everything. May take longer than callers wait.
    pub(super) async fn restore_lost(&self) -> Result<(), Error> {
        if self.feed.is_restored() {
            return Ok(());
        }
        let (remembered, data_losses) = self.feed.remembered();
        let mut written = 0;
        for batch in remembered.chunks(BATCH_SIZE) {
            written += self.write_back(batch).await?;
        }
        if let Some(records) = &self.records {
            let mut last: Option<Id> = None;
            loop {
                let batch = records.after(last.as_ref(), BATCH_SIZE).await?;
                written += self.write_back(&batch).await?;
                for (user, before) in &batch {
                    self.feed.remember(user, *before, true);
                }
                match batch.into_iter().nth(BATCH_SIZE - 1) {
                    Some((user, _)) => last = Some(user),
                    None => break,
                }
            }
        }
        if written > 0 {
            tracing::warn!(revocations = written, "Redis had lost revocations; they were written back");
        }
        self.feed.restored(data_losses);
        Ok(())
    }

    /// Gives those revocations again that Redis does not have, and returns how many these were.
    async fn write_back(&self, revocations: &[(Id, Millis)]) -> Result<usize, Error> {
        if revocations.is_empty() {
            return Ok(0);
        }
        let keys: Vec<String> = revocations.iter().map(|(user, _)| self.revoked_key(user)).collect();
        let mut question = redis::cmd("MGET");
        question.arg(&keys);
        let answer: Value = self.redis.ask("revoked", &keys[0], &question, Repeat::Safe).await?;
        let known: Vec<Option<Millis>> =
            from_redis_value(answer).map_err(|_| Error::unreadable("a revocation"))?;
        let missing = revocations.iter().zip(known).filter(|((_, before), known)| *known < Some(*before));
        let orders: Vec<Order> = missing
            .map(|((user, before), _)| Order::Revoke { user: user.clone(), issued_before: *before })
            .collect();
        try_join_all(orders.iter().map(|order| self.send(order, WriteCondition::IfMissing))).await?;
        Ok(orders.len())
    }

    /// For those who have to know that nothing is missing, as long as anybody waits.
    pub(super) async fn wait_restored(&self) -> Result<(), Error> {
        let restored = tokio::time::timeout(PATIENCE, self.feed.wait_restored()).await;
        restored.map_err(|_| Error::Away("revocations are being written back to Redis".to_owned()))
    }
}
