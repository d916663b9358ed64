//! What was written down for people, in Redis: a list beside every room's stream, and an index that names the rooms.
//!
//! An append that finds a room's list empty says so on a channel. Who sees to follow-ups hears of it, looks at that room, and
//! goes on doing so until it is empty again. What is not heard is found by the index, which is looked at now and then.

mod heard;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bongsu_kernel::StreamId;
use bongsu_redis::redis;
use bongsu_redis::{Channel, Index, Marked, Redis, Repeat, Script, Subscriber};
use futures_util::{StreamExt, TryStreamExt};

use self::heard::Heard;
use super::{FOLLOW_UPS, news_channel, stream_key, take};
use crate::SubjectName;
use crate::log::{Boxed, FollowUp, FollowUps, LogError, Pending, Watch};

static FIND: Script = Script::new("find_follow_up", include_str!("../../../lua/find_follow_up.lua"));

/// So many rooms are looked at at the same time.
const AT_ONCE: usize = 32;

/// See the module.
pub struct RedisFollowUps {
    redis: Redis,
    index: Index,
    bus: Subscriber,
    heard: Arc<Heard>,
}

impl RedisFollowUps {
    pub fn new(redis: Redis) -> Self {
        let index = Index::new(redis.clone(), FOLLOW_UPS);
        let heard = Arc::new(Heard::default());
        let bus = redis.subscriber(heard.clone());
        Self { redis, index, bus, heard }
    }

    /// The records of a room; nothing when it has none at all.
    async fn records(
        &self,
        room: &str,
        marked: Option<Marked>,
        most: usize,
        but: &[Pending],
    ) -> Result<Option<Vec<Pending>>, LogError> {
        let but: HashSet<&[u8]> =
            but.iter().filter(|one| one.key == room).map(|one| one.record.as_slice()).collect();
        let list = list(&self.redis, &SubjectName::known(room));
        let mut range = redis::cmd("LRANGE");
        range.arg(&list).arg(0).arg((most + but.len()).saturating_sub(1));
        let mut records: Vec<Vec<u8>> = take(self.redis.ask("lrange", &list, &range, Repeat::Safe).await?)?;
        if records.is_empty() {
            if let Some(marked) = marked {
                self.index.found_empty(marked).await?;
            }
            return Ok(None);
        }
        records.retain(|record| !but.contains(record.as_slice()));
        Ok(Some(records.into_iter().map(|record| Pending { key: room.to_owned(), record }).collect()))
    }
}

fn list(redis: &Redis, subject: &SubjectName) -> String {
    redis.beside(&stream_key(redis, subject), FOLLOW_UPS)
}

/// The record of one event, if it still waits.
pub(super) async fn find(
    redis: &Redis,
    subject: &SubjectName,
    id: StreamId,
) -> Result<Option<FollowUp>, LogError> {
    let (list, [ms, seq]) = (list(redis, subject), [id.ms, id.seq].map(|part| part.to_string()));
    let arguments = [ms.as_bytes(), seq.as_bytes()];
    let record: Option<Vec<u8>> = take(redis.run(&FIND, Repeat::Safe, &[&list], &arguments).await?)?;
    Ok(record.and_then(|record| FollowUp::of(subject, id, &record)))
}

impl FollowUps for RedisFollowUps {
    fn take<'a>(&'a self, most: usize, but: &'a [Pending]) -> Boxed<'a, Result<Vec<Pending>, LogError>> {
        Box::pin(async move {
            let mut round = self.heard.begin();
            let mut marked = HashMap::new();
            if round.looks_at_index {
                marked.extend(self.index.marked().await?.into_iter().map(|one| (one.name.clone(), one)));
                round.saw_index(marked.keys());
            }
            let asked: Vec<_> = round.rooms.iter().map(|room| (room.clone(), marked.remove(room))).collect();
            let asked = asked.into_iter().map(async |(room, marked)| {
                let records = self.records(&room, marked, most, but).await;
                (room, records)
            });
            let mut asked = futures_util::stream::iter(asked.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
            let mut pending = Vec::new();
            while let Some((room, records)) = asked.next().await {
                let records = records?.unwrap_or_default();
                // What was left out holds nobody up here either: the index names its room as long as it has some.
                if records.is_empty() {
                    round.rooms.remove(&room);
                }
                pending.extend(records);
                if pending.len() >= most {
                    break;
                }
            }
            Ok(pending)
        })
    }

    fn done(&self, pending: Vec<Pending>) -> Boxed<'_, Result<(), LogError>> {
        Box::pin(async move {
            let removing = futures_util::stream::iter(pending.into_iter().map(Ok));
            removing
                .try_for_each_concurrent(AT_ONCE, async |Pending { key, record }| {
                    let list = list(&self.redis, &SubjectName::known(&key));
                    let mut remove = redis::cmd("LREM");
                    // By its text, and not by its place: another hub may have been here.
                    remove.arg(&list).arg(1).arg(&record);
                    self.redis.ask("lrem", &list, &remove, Repeat::Safe).await?;
                    Ok(())
                })
                .await
        })
    }

    fn find(&self, subject: &SubjectName, id: StreamId) -> Boxed<'_, Result<Option<FollowUp>, LogError>> {
        let subject = subject.clone();
        Box::pin(async move { find(&self.redis, &subject, id).await })
    }

    fn watch(&self) -> Boxed<'_, Watch> {
        Box::pin(async move {
            let channel = Channel::Everywhere(news_channel(&self.redis).into());
            self.heard.forget();
            let (heard, bus, watched) = (self.heard.clone(), self.bus.clone(), channel.clone());
            let on_drop = move || {
                bus.unsubscribe(watched.clone());
                heard.forget();
            };
            let watch = Watch { news: self.heard.news.clone(), on_drop: Box::new(on_drop) };
            // When it cannot be heard now, the bus goes on trying, and the index is there.
            let _ = self.bus.subscribe(channel).await;
            watch
        })
    }
}
