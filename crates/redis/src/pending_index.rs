//! An index of the items that may have pending data. The data of each item are in a slot of their own.
//!
//! A writer marks an item before it writes the item's data; the script that writes refuses a mark older than 30
//! seconds, so no data are without a mark. An item that was found empty is removed once its mark is a minute old;
//! until then, [`PendingIndex::pending`] returns the item again after a second, or at once with a new mark. Every mark
//! is written once more after its last use, because Redis may lose the index.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bongsu_kernel::lock;
use bongsu_kernel::task::Supervisor;
use futures_util::future::try_join_all;
use redis::{Value, cmd, from_redis_value};

use crate::error::{Error, Result};
use crate::{Redis, Repeat, Script};

static MARK: Script = Script::new("mark", include_str!("../lua/mark.lua"));
static UNMARK: Script = Script::new("unmark", include_str!("../lua/unmark.lua"));

/// Number of keys over which an index is distributed.
const SHARD_COUNT: u64 = 16;
/// Time for which a mark is reused for further writes.
const MARK_LIFETIME: Duration = Duration::from_secs(10);
/// Age at which a mark is no longer used, and is written once more.
const MARK_REFRESH_AFTER: Duration = Duration::from_secs(12);
/// Time between two searches for marks of that age.
const MARK_REFRESH_INTERVAL: Duration = Duration::from_secs(3);
/// Maximum number of marks in the cache. A full cache is cleared.
const MAX_MARKS: usize = 10_000;
/// Time after which an item that was found empty is returned again.
const EMPTY_RECHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Items read by one command, and marks written at the same time.
const PAGE_SIZE: usize = 256;

/// Cheap to clone.
#[derive(Clone)]
pub struct PendingIndex {
    redis: Redis,
    name: &'static str,
    /// By item, when it was marked, by this machine's clock and by the clock of Redis.
    marks: Arc<Mutex<HashMap<String, (Instant, String)>>>,
    /// By item, the mark with which it was found empty, and when that was.
    empty: Arc<Mutex<HashMap<String, (String, Instant)>>>,
}

/// A marked item.
#[derive(Clone, Debug)]
pub struct PendingMark {
    pub name: String,
    mark: String,
    shard: u64,
}

impl PendingIndex {
    pub fn new(redis: Redis, name: &'static str) -> Self {
        Self { redis, name, marks: Arc::default(), empty: Arc::default() }
    }

    /// Starts the loop that writes every mark once more after its last use.
    pub fn start_mark_refresh(&self, supervisor: &Supervisor) {
        let interval = MARK_REFRESH_INTERVAL;
        supervisor.every("index-marks", interval, self, |index| async move { index.refresh_marks().await });
    }

    async fn refresh_marks(&self) {
        let is_due = |at: &Instant| at.elapsed() >= MARK_REFRESH_AFTER;
        let due: Vec<String> = lock(&self.marks)
            .iter()
            .filter(|(_, (at, _))| is_due(at))
            .map(|(name, _)| name.clone())
            .collect();
        for batch in due.chunks(PAGE_SIZE) {
            let writes = batch.iter().map(|name| self.write_mark(name));
            if try_join_all(writes).await.is_err() {
                // Redis cannot be reached. The next call writes the marks.
                return;
            }
            let mut marks = lock(&self.marks);
            for name in batch {
                // An item that was marked again meanwhile stays.
                if marks.get(name).is_some_and(|(at, _)| is_due(at)) {
                    marks.remove(name);
                }
            }
        }
    }

    async fn write_mark(&self, name: &str) -> Result<String> {
        let key = self.key(shard_of(name));
        read(self.redis.run(&MARK, Repeat::Safe, &[&key], &[name.as_bytes()]).await?)
    }

    fn key(&self, shard: u64) -> String {
        self.redis.key(format_args!("{{{}:{shard}}}", self.name))
    }

    /// Marks an item, unless its last mark can be reused. Returns the mark, which the writing script checks.
    pub async fn mark(&self, name: &str) -> Result<String> {
        let known = {
            let marks = lock(&self.marks);
            marks.get(name).filter(|(at, _)| at.elapsed() < MARK_LIFETIME).map(|(_, ms)| ms.clone())
        };
        if let Some(ms) = known {
            return Ok(ms);
        }
        let before = Instant::now();
        let ms = self.write_mark(name).await?;
        let mut marks = lock(&self.marks);
        if marks.len() >= MAX_MARKS {
            marks.clear();
        }
        marks.insert(name.to_owned(), (before, ms.clone()));
        Ok(ms)
    }

    /// Drops a mark that a script refused as too old, so that the next `mark` writes a new one.
    pub fn forget_mark(&self, name: &str) {
        lock(&self.marks).remove(name);
    }

    /// Returns which of these items are marked. A mark stays for at least 30 seconds after a write that used it.
    pub async fn pending_among<'a>(&self, names: &[&'a str]) -> Result<Vec<&'a str>> {
        let mut shards: HashMap<u64, Vec<&str>> = HashMap::new();
        for name in names {
            shards.entry(shard_of(name)).or_default().push(name);
        }
        let queries = shards.into_iter().map(async |(shard, names)| {
            let key = self.key(shard);
            let scores = cmd("ZMSCORE").arg(&key).arg(&names).take();
            let found: Vec<Option<String>> =
                read(self.redis.query("zmscore", &key, &scores, Repeat::Never).await?)?;
            let marked = names.into_iter().zip(found).filter_map(|(name, mark)| mark.map(|_| name));
            Ok::<_, Error>(marked.collect::<Vec<_>>())
        });
        Ok(try_join_all(queries).await?.into_iter().flatten().collect())
    }

    /// Returns all items that may have pending data.
    pub async fn pending(&self) -> Result<Vec<PendingMark>> {
        let mut all = Vec::new();
        for shard in 0..SHARD_COUNT {
            let key = self.key(shard);
            for page in 0.. {
                let range = cmd("ZRANGE")
                    .arg(&key)
                    .arg(page * PAGE_SIZE)
                    .arg((page + 1) * PAGE_SIZE - 1)
                    .arg("WITHSCORES")
                    .take();
                let found: Vec<(String, String)> =
                    read(self.redis.query("zrange", &key, &range, Repeat::Safe).await?)?;
                let is_last_page = found.len() < PAGE_SIZE;
                all.extend(found.into_iter().map(|(name, mark)| PendingMark { name, mark, shard }));
                if is_last_page {
                    break;
                }
            }
        }
        let mut empty = lock(&self.empty);
        all.retain(|marked| {
            let known = empty.get(&marked.name);
            known.is_none_or(|(mark, at)| *mark != marked.mark || at.elapsed() > EMPTY_RECHECK_INTERVAL)
        });
        empty.retain(|_, (_, at)| at.elapsed() < EMPTY_RECHECK_INTERVAL * 2);
        Ok(all)
    }

    /// Reports that an item was found empty. Removes it from the index once its mark is a minute old.
    pub async fn remove_empty(&self, marked: PendingMark) -> Result<()> {
        let PendingMark { name, mark, shard } = marked;
        let arguments = [name.as_bytes(), mark.as_bytes()];
        self.redis.run(&UNMARK, Repeat::Safe, &[&self.key(shard)], &arguments).await?;
        lock(&self.empty).insert(name, (mark, Instant::now()));
        Ok(())
    }
}

fn read<T: redis::FromRedisValue>(value: Value) -> Result<T> {
    from_redis_value(value).map_err(|_| Error::Unexpected("an index cannot be parsed".to_owned()))
}

/// The shard of an item. Every hub must compute the same one.
fn shard_of(name: &str) -> u64 {
    use std::hash::BuildHasher;
    foldhash::quality::FixedState::default().hash_one(name) % SHARD_COUNT
}
