//! The follow-up records in Redis: a list beside the stream of every room, and an index of the rooms that have a list.
//!
//! An append that adds the first record to a list announces the room on a channel. The inbox then reads the list of
//! that room until the list is empty. A room whose announcement was lost is found in the index, which is read every
//! second.

mod announced_rooms;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bongsu_kernel::StreamId;
use bongsu_redis::redis;
use bongsu_redis::{Channel, PendingIndex, PendingMark, Redis, Repeat, Script, Subscriber};
use futures_util::{StreamExt, TryStreamExt};

use self::announced_rooms::AnnouncedRooms;
use super::{FOLLOW_UPS, decode, follow_up_channel, stream_key};
use crate::SubjectName;
use crate::log::{BoxFuture, FollowUp, FollowUpWatch, FollowUps, LogError, LogFuture, PendingFollowUp};

static FIND: Script = Script::new("find_follow_up", include_str!("../../../lua/find_follow_up.lua"));

/// Commands that are sent to Redis at the same time.
const MAX_CONCURRENT_COMMANDS: usize = 32;

/// The [`FollowUps`] of the log in Redis.
pub struct RedisFollowUps {
    redis: Redis,
    index: PendingIndex,
    bus: Subscriber,
    announced: Arc<AnnouncedRooms>,
}

impl RedisFollowUps {
    pub fn new(redis: Redis) -> Self {
        let index = PendingIndex::new(redis.clone(), FOLLOW_UPS);
        let announced = Arc::new(AnnouncedRooms::default());
        let bus = redis.subscriber(announced.clone());
        Self { redis, index, bus, announced }
    }

    /// The oldest records of a room without `excluded`. None if the room has no records at all; the index may
    /// then remove `mark`.
    async fn read_records(
        &self,
        room: &str,
        mark: Option<PendingMark>,
        limit: usize,
        excluded: &[PendingFollowUp],
    ) -> Result<Option<Vec<PendingFollowUp>>, LogError> {
        let excluded: HashSet<&[u8]> = excluded
            .iter()
            .filter(|pending| pending.key == room)
            .map(|pending| pending.record.as_slice())
            .collect();
        let list = list_key(&self.redis, &SubjectName::from_stored(room));
        let range =
            redis::cmd("LRANGE").arg(&list).arg(0).arg((limit + excluded.len()).saturating_sub(1)).take();
        let found = self.redis.query("lrange", &list, &range, Repeat::Safe).await?;
        let mut records: Vec<Vec<u8>> = decode(found)?;
        if records.is_empty() {
            if let Some(mark) = mark {
                self.index.remove_empty(mark).await?;
            }
            return Ok(None);
        }
        records.retain(|record| !excluded.contains(record.as_slice()));
        Ok(Some(records.into_iter().map(|record| PendingFollowUp { key: room.to_owned(), record }).collect()))
    }
}

fn list_key(redis: &Redis, subject: &SubjectName) -> String {
    redis.sibling_key(&stream_key(redis, subject), FOLLOW_UPS)
}

/// The record of one event; None if the event has none or the record was acknowledged.
pub(super) async fn find(
    redis: &Redis,
    subject: &SubjectName,
    id: StreamId,
) -> Result<Option<FollowUp>, LogError> {
    let (list, [ms, seq]) = (list_key(redis, subject), [id.ms, id.seq].map(|part| part.to_string()));
    let arguments = [ms.as_bytes(), seq.as_bytes()];
    let record: Option<Vec<u8>> = decode(redis.run(&FIND, Repeat::Safe, &[&list], &arguments).await?)?;
    Ok(record.and_then(|record| FollowUp::decode_if_of(subject, id, &record)))
}

impl FollowUps for RedisFollowUps {
    fn take<'a>(
        &'a self,
        limit: usize,
        excluded: &'a [PendingFollowUp],
    ) -> LogFuture<'a, Vec<PendingFollowUp>> {
        Box::pin(async move {
            let mut round = self.announced.begin_round();
            let mut marks = HashMap::new();
            if round.needs_index {
                marks.extend(self.index.pending().await?.into_iter().map(|mark| (mark.name.clone(), mark)));
                round.add_index(marks.keys());
            }
            let rooms: Vec<_> = round.rooms.iter().map(|room| (room.clone(), marks.remove(room))).collect();
            let reads = rooms.into_iter().map(async |(room, mark)| {
                let records = self.read_records(&room, mark, limit, excluded).await;
                (room, records)
            });
            let reads = futures_util::stream::iter(reads.collect::<Vec<_>>());
            let mut reads = reads.buffer_unordered(MAX_CONCURRENT_COMMANDS);
            let mut pending = Vec::new();
            while let Some((room, records)) = reads.next().await {
                let records = records?.unwrap_or_default();
                // A room with only excluded records leaves the round as well; the index keeps every room with
                // records.
                if records.is_empty() {
                    round.rooms.remove(&room);
                }
                pending.extend(records);
                if pending.len() >= limit {
                    break;
                }
            }
            Ok(pending)
        })
    }

    fn acknowledge(&self, pending: Vec<PendingFollowUp>) -> LogFuture<'_, ()> {
        Box::pin(async move {
            let removing = futures_util::stream::iter(pending.into_iter().map(Ok));
            removing
                .try_for_each_concurrent(MAX_CONCURRENT_COMMANDS, async |PendingFollowUp { key, record }| {
                    let list = list_key(&self.redis, &SubjectName::from_stored(&key));
                    // Removed by value and not by index, because another instance may have removed records meanwhile.
                    let remove = redis::cmd("LREM").arg(&list).arg(1).arg(&record).take();
                    self.redis.query("lrem", &list, &remove, Repeat::Safe).await?;
                    Ok(())
                })
                .await
        })
    }

    fn find(&self, subject: &SubjectName, id: StreamId) -> LogFuture<'_, Option<FollowUp>> {
        let subject = subject.clone();
        Box::pin(async move { find(&self.redis, &subject, id).await })
    }

    fn watch(&self) -> BoxFuture<'_, FollowUpWatch> {
        Box::pin(async move {
            let channel = Channel::Everywhere(follow_up_channel(&self.redis).into());
            self.announced.clear();
            let (announced, bus, watched) = (self.announced.clone(), self.bus.clone(), channel.clone());
            let on_drop = move || {
                bus.unsubscribe(watched.clone());
                announced.clear();
            };
            let watch = FollowUpWatch { added: self.announced.added.clone(), on_drop: Box::new(on_drop) };
            // After an error the bus keeps trying to subscribe, and rooms are found in the index meanwhile.
            let _ = self.bus.subscribe(channel).await;
            watch
        })
    }
}
