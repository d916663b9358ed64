//! What was written down for people, in Redis: a list beside every room's stream, and an index that names the rooms.

use bongsu_redis::redis;
use bongsu_redis::{Index, Marked, Redis, Repeat};
use futures_util::StreamExt;

use super::{FOLLOW_UPS, stream_key, take};
use crate::SubjectName;
use crate::log::{Boxed, FollowUps, LogError, Pending};

/// So many rooms are looked at at the same time.
const AT_ONCE: usize = 32;

/// See the module.
pub struct RedisFollowUps {
    redis: Redis,
    index: Index,
}

impl RedisFollowUps {
    pub fn new(redis: Redis) -> Self {
        let index = Index::new(redis.clone(), FOLLOW_UPS);
        Self { redis, index }
    }

    async fn records(&self, marked: Marked, most: usize) -> Result<Vec<Pending>, LogError> {
        let list = self.list(&marked.name);
        let mut range = redis::cmd("LRANGE");
        range.arg(&list).arg(0).arg(most.saturating_sub(1));
        let records: Vec<String> = take(self.redis.ask("lrange", &list, &range, Repeat::Safe).await?)?;
        let pending = |record| Pending { key: marked.name.clone(), record };
        let records: Vec<Pending> = records.into_iter().map(pending).collect();
        if records.is_empty() {
            self.index.found_empty(marked).await?;
        }
        Ok(records)
    }

    fn list(&self, room: &str) -> String {
        self.redis.beside(&stream_key(&self.redis, &SubjectName::known(room)), FOLLOW_UPS)
    }
}

impl FollowUps for RedisFollowUps {
    fn take(&self, most: usize) -> Boxed<'_, Result<Vec<Pending>, LogError>> {
        Box::pin(async move {
            let marked = self.index.marked().await?;
            let asked: Vec<_> = marked.into_iter().map(|marked| self.records(marked, most)).collect();
            let mut asked = futures_util::stream::iter(asked).buffer_unordered(AT_ONCE);
            let mut pending = Vec::new();
            while let Some(records) = asked.next().await {
                pending.extend(records?);
                if pending.len() >= most {
                    break;
                }
            }
            Ok(pending)
        })
    }

    fn done(&self, pending: Vec<Pending>) -> Boxed<'_, Result<(), LogError>> {
        Box::pin(async move {
            let removing: Vec<_> = pending
                .into_iter()
                .map(async |Pending { key, record }| {
                    let list = self.list(&key);
                    let mut remove = redis::cmd("LREM");
                    // By its text, and not by its place: another hub may have been here.
                    remove.arg(&list).arg(1).arg(&record);
                    self.redis.ask("lrem", &list, &remove, Repeat::Safe).await
                })
                .collect();
            let mut removing = futures_util::stream::iter(removing).buffer_unordered(AT_ONCE);
            while let Some(removed) = removing.next().await {
                removed?;
            }
            Ok(())
        })
    }
}
