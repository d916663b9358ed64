//! An index of things that have something to be done, where what they have is in slots of their own.
//!
//! Something is marked before what it has is written, and the script that writes refuses a mark of more than thirty seconds:
//! then it would not be found. An entry goes when it was found empty and its mark is a minute old. So most entries have
//! nothing: one that was found empty is looked at again after a moment, or when it was marked anew. Every mark is made once
//! more after its last use ([`Index::keep_marks`]), because a Redis that lost its data has lost the index as well.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bongsu_kernel::task::Supervisor;
use futures_util::future::try_join_all;
use redis::{Value, cmd, from_redis_value};

use crate::error::Error;
use crate::{Redis, Repeat, Script};

static MARK: Script = Script::new("mark", include_str!("../lua/mark.lua"));
static UNMARK: Script = Script::new("unmark", include_str!("../lua/unmark.lua"));

/// It is spread over so many keys.
const SHARDS: u64 = 16;
/// A mark is good for what is written next for so long.
const MARK_LIFE: Duration = Duration::from_secs(10);
/// A mark of this age is in use no more, and is made once more.
const MARK_AGAIN_AFTER: Duration = Duration::from_secs(12);
const MARK_AGAIN_INTERVAL: Duration = Duration::from_secs(3);
/// So many marks are remembered.
const MOST_MARKS: usize = 10_000;
/// One that had nothing is looked at again after so long.
const AGAIN: Duration = Duration::from_secs(1);
const PAGE: usize = 256;

/// Cheap to clone.
#[derive(Clone)]
pub struct Index {
    redis: Redis,
    name: &'static str,
    /// When what was marked, by our clock and by Redis'.
    marks: Arc<Mutex<HashMap<String, (Instant, String)>>>,
    /// What was found empty: its mark then, and when that was.
    empty: Arc<Mutex<HashMap<String, (String, Instant)>>>,
}

/// Something that was marked.
#[derive(Clone, Debug)]
pub struct Marked {
    pub name: String,
    mark: String,
    shard: u64,
}

impl Index {
    pub fn new(redis: Redis, name: &'static str) -> Self {
        Self { redis, name, marks: Arc::default(), empty: Arc::default() }
    }

    fn marks(&self) -> MutexGuard<'_, HashMap<String, (Instant, String)>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes every mark once more after its last use, for as long as the process runs.
    pub fn keep_marks(&self, supervisor: &Supervisor) {
        let interval = MARK_AGAIN_INTERVAL;
        supervisor.every("index-marks", interval, self, |index| async move { index.mark_again().await });
    }

    async fn mark_again(&self) {
        let is_over = |at: &Instant| at.elapsed() >= MARK_AGAIN_AFTER;
        let over: Vec<String> =
            self.marks().iter().filter(|(_, (at, _))| is_over(at)).map(|(name, _)| name.clone()).collect();
        for some in over.chunks(PAGE) {
            let marking = some.iter().map(|name| self.write_mark(name));
            if try_join_all(marking).await.is_err() {
                // Redis is away. They are marked with the next turn.
                return;
            }
            let mut marks = self.marks();
            for name in some {
                // One that was marked anew meanwhile stays.
                if marks.get(name).is_some_and(|(at, _)| is_over(at)) {
                    marks.remove(name);
                }
            }
        }
    }

    async fn write_mark(&self, name: &str) -> Result<String, Error> {
        let key = self.key(shard_of(name));
        read(self.redis.run(&MARK, Repeat::Safe, &[&key], &[name.as_bytes()]).await?)
    }

    fn key(&self, shard: u64) -> String {
        self.redis.key(format_args!("{{{}:{shard}}}", self.name))
    }

    /// Marks something, unless it was a moment ago. Gives the mark, for the script that writes.
    pub async fn mark(&self, name: &str) -> Result<String, Error> {
        let known = {
            let marks = self.marks();
            marks.get(name).filter(|(at, _)| at.elapsed() < MARK_LIFE).map(|(_, ms)| ms.clone())
        };
        if let Some(ms) = known {
            return Ok(ms);
        }
        let before = Instant::now();
        let ms = self.write_mark(name).await?;
        let mut marks = self.marks();
        if marks.len() >= MOST_MARKS {
            marks.clear();
        }
        marks.insert(name.to_owned(), (before, ms.clone()));
        Ok(ms)
    }

    /// The mark was too old when it was used: the next one is made anew.
    pub fn forget_mark(&self, name: &str) {
        self.marks().remove(name);
    }

    /// Which of these are marked. A mark stays for at least half a minute after something was written under it.
    pub async fn marked_among<'a>(&self, names: &[&'a str]) -> Result<Vec<&'a str>, Error> {
        let mut shards: HashMap<u64, Vec<&str>> = HashMap::new();
        for name in names {
            shards.entry(shard_of(name)).or_default().push(name);
        }
        let asking = shards.into_iter().map(async |(shard, names)| {
            let key = self.key(shard);
            let mut scores = cmd("ZMSCORE");
            scores.arg(&key).arg(&names);
            let found: Vec<Option<String>> =
                read(self.redis.ask("zmscore", &key, &scores, Repeat::Never).await?)?;
            let marked = names.into_iter().zip(found).filter_map(|(name, mark)| mark.map(|_| name));
            Ok::<_, Error>(marked.collect::<Vec<_>>())
        });
        Ok(try_join_all(asking).await?.into_iter().flatten().collect())
    }

    /// All that may have something.
    pub async fn marked(&self) -> Result<Vec<Marked>, Error> {
        let mut all = Vec::new();
        for shard in 0..SHARDS {
            let key = self.key(shard);
            for page in 0.. {
                let mut range = cmd("ZRANGE");
                range.arg(&key).arg(page * PAGE).arg((page + 1) * PAGE - 1).arg("WITHSCORES");
                let found: Vec<(String, String)> =
                    read(self.redis.ask("zrange", &key, &range, Repeat::Safe).await?)?;
                let last = found.len() < PAGE;
                all.extend(found.into_iter().map(|(name, mark)| Marked { name, mark, shard }));
                if last {
                    break;
                }
            }
        }
        let mut empty = self.empty.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|marked| {
            let known = empty.get(&marked.name);
            known.is_none_or(|(mark, at)| *mark != marked.mark || at.elapsed() > AGAIN)
        });
        empty.retain(|_, (_, at)| at.elapsed() < AGAIN * 2);
        Ok(all)
    }

    /// It had nothing.
    pub async fn found_empty(&self, marked: Marked) -> Result<(), Error> {
        let Marked { name, mark, shard } = marked;
        let arguments = [name.as_bytes(), mark.as_bytes()];
        self.redis.run(&UNMARK, Repeat::Safe, &[&self.key(shard)], &arguments).await?;
        self.empty.lock().unwrap_or_else(PoisonError::into_inner).insert(name, (mark, Instant::now()));
        Ok(())
    }
}

fn read<T: redis::FromRedisValue>(value: Value) -> Result<T, Error> {
    from_redis_value(value).map_err(|_| Error::Unexpected("an index is not readable".to_owned()))
}

/// Every hub has to come to the same key.
fn shard_of(name: &str) -> u64 {
    use std::hash::BuildHasher;
    foldhash::quality::FixedState::default().hash_one(name) % SHARDS
}
