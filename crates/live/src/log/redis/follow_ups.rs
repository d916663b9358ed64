//! What was written down for people, in Redis: a list beside every room's stream, and an index that names the rooms.
//!
//! A room is marked in the index before its first record is written and stays there for a minute, so most rooms of the
//! index have nothing: one that was found empty is looked at again after a moment, or when it is marked anew.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bongsu_redis::redis;
use bongsu_redis::{Redis, Repeat, Script};
use futures_util::StreamExt;

use super::{FOLLOW_UPS, INDEX_KEYS, stream_key, take};
use crate::SubjectName;
use crate::log::{Boxed, FollowUps, LogError, Pending};

static UNMARK: Script = Script::new("unmark", include_str!("../../../lua/unmark.lua"));

/// A room that had nothing is looked at again after so long.
const AGAIN: Duration = Duration::from_secs(1);
/// So many rooms are read from an index at once, and looked at at the same time.
const PAGE: isize = 256;
const AT_ONCE: usize = 32;

/// See the module.
pub struct RedisFollowUps {
    redis: Redis,
    /// Rooms that had nothing: their mark then, and when that was.
    empty: Mutex<HashMap<String, (String, Instant)>>,
}

impl RedisFollowUps {
    pub fn new(redis: Redis) -> Self {
        Self { redis, empty: Mutex::default() }
    }

    /// The rooms of an index that may have something, with their marks.
    async fn marked(&self, index: &str) -> Result<Vec<(String, String)>, LogError> {
        let (mut marked, mut start) = (Vec::new(), 0);
        loop {
            let mut range = redis::cmd("ZRANGE");
            range.arg(index).arg(start).arg(start + PAGE - 1).arg("WITHSCORES");
            let page: Vec<(String, String)> =
                take(self.redis.ask("zrange", index, &range, Repeat::Safe).await?)?;
            let last = page.len() < PAGE as usize;
            marked.extend(page);
            if last {
                break;
            }
            start += PAGE;
        }
        let empty = self.empty.lock().unwrap_or_else(PoisonError::into_inner);
        marked.retain(|(room, mark)| {
            empty.get(room).is_none_or(|(known, at)| known != mark || at.elapsed() > AGAIN)
        });
        Ok(marked)
    }

    async fn records(
        &self,
        index: &str,
        room: String,
        mark: String,
        most: usize,
    ) -> Result<Vec<Pending>, LogError> {
        let list = self.list(&room);
        let mut range = redis::cmd("LRANGE");
        range.arg(&list).arg(0).arg(most.saturating_sub(1));
        let records: Vec<String> = take(self.redis.ask("lrange", &list, &range, Repeat::Safe).await?)?;
        if records.is_empty() {
            let arguments = [room.as_bytes(), mark.as_bytes()];
            self.redis.run(&UNMARK, Repeat::Safe, &[index], &arguments).await?;
            let mut empty = self.empty.lock().unwrap_or_else(PoisonError::into_inner);
            empty.insert(room, (mark, Instant::now()));
            return Ok(Vec::new());
        }
        Ok(records.into_iter().map(|record| Pending { key: room.clone(), record }).collect())
    }

    fn list(&self, room: &str) -> String {
        self.redis.beside(&stream_key(&self.redis, &SubjectName::known(room)), FOLLOW_UPS)
    }
}

impl FollowUps for RedisFollowUps {
    fn take(&self, most: usize) -> Boxed<'_, Result<Vec<Pending>, LogError>> {
        Box::pin(async move {
            let mut pending = Vec::new();
            let mut seen = HashSet::new();
            for index in 0..INDEX_KEYS {
                let index = super::index_key(&self.redis, index);
                let marked = self.marked(&index).await?;
                seen.extend(marked.iter().map(|(room, _)| room.clone()));
                let asked: Vec<_> =
                    marked.into_iter().map(|(room, mark)| self.records(&index, room, mark, most)).collect();
                let mut asked = futures_util::stream::iter(asked).buffer_unordered(AT_ONCE);
                while let Some(records) = asked.next().await {
                    pending.extend(records?);
                    if pending.len() >= most {
                        return Ok(pending);
                    }
                }
            }
            // Rooms that are in no index any more need not be remembered.
            self.empty
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .retain(|room, (_, at)| seen.contains(room) || at.elapsed() < AGAIN * 2);
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
