//! Writes revocations back to a Redis that has lost them: emptied, restarted without its data, or replaced by a replica.
//!
//! The next read of the feed detects the loss, because the feed does not contain the instance's position;
//! before its first read an instance assumes a loss as well. The instance is not current until Redis has
//! every revocation that the instance remembers or the records contain. Missing ones are issued again, so
//! that the other instances apply them too.

use bongsu_kernel::{Id, Millis};
use bongsu_redis::Repeat;
use bongsu_redis::redis::{self, Value, from_redis_value};
use futures_util::future::try_join_all;

use super::{ANSWER_TIMEOUT, Inner, WriteCondition};
use crate::Error;
use crate::access_commands::AccessCommand;

/// Revocations compared with Redis by one command.
const BATCH_SIZE: usize = 256;

impl Inner {
    /// Writes back the revocations that Redis may have lost. May take longer than callers wait.
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
            tracing::warn!(revocations = written, "Redis had lost revocations; wrote them back");
        }
        self.feed.mark_restored(data_losses);
        Ok(())
    }

    /// Issues the revocations again that Redis does not have, and returns their number.
    async fn write_back(&self, revocations: &[(Id, Millis)]) -> Result<usize, Error> {
        if revocations.is_empty() {
            return Ok(0);
        }
        let keys: Vec<String> = revocations.iter().map(|(user, _)| self.revoked_key(user)).collect();
        let command = redis::cmd("MGET").arg(&keys).take();
        let answer: Value = self.redis.query("revoked", &keys[0], &command, Repeat::Safe).await?;
        let known: Vec<Option<Millis>> =
            from_redis_value(answer).map_err(|_| Error::unreadable("a revocation"))?;
        let missing = revocations.iter().zip(known).filter(|((_, before), known)| *known < Some(*before));
        let commands: Vec<AccessCommand> = missing
            .map(|((user, before), _)| AccessCommand::Revoke { user: user.clone(), issued_before: *before })
            .collect();
        try_join_all(commands.iter().map(|command| self.send(command, WriteCondition::IfMissing))).await?;
        Ok(commands.len())
    }

    /// Waits until Redis has every known revocation, at most for `ANSWER_TIMEOUT`.
    pub(super) async fn wait_restored(&self) -> Result<(), Error> {
        let restored = tokio::time::timeout(ANSWER_TIMEOUT, self.feed.wait_restored()).await;
        restored.map_err(|_| Error::Unavailable("revocations are being written back to Redis".to_owned()))
    }
}
