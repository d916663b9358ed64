//! Marks in Redis: a hash for every person, `read_status:<id>`, and an index of those who have one.

use std::collections::HashSet;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Id, Millis, Outage};
use bongsu_redis::redis::{Value, cmd, from_redis_value};
use bongsu_redis::{Index, Redis, Repeat, Script};

use super::{Boxed, Buffer, Marks, Waiting};
use crate::read::canonical;

static PUT: Script = Script::new("read_put", include_str!("../../lua/put.lua"));
static WRITTEN: Script = Script::new("read_written", include_str!("../../lua/written.lua"));

/// A person's marks that may wait: who has more than this writes directly.
const MOST: &[u8] = b"5000";
/// A mark that was too old is made anew, so often.
const TRIES: u32 = 3;

/// See the module.
pub struct RedisBuffer {
    redis: Redis,
    index: Index,
}

impl RedisBuffer {
    pub fn new(redis: Redis) -> Self {
        let index = Index::new(redis.clone(), "read_status");
        Self { redis, index }
    }

    /// Has marks found by the index also after Redis has lost its data.
    pub fn start_upkeep(&self, supervisor: &Supervisor) {
        self.index.keep_marks(supervisor);
    }

    fn key(&self, person: &Id) -> String {
        self.redis.key(format_args!("read_status:{person}"))
    }
}

pub(crate) fn read<T: bongsu_redis::redis::FromRedisValue>(value: Value) -> Result<T, Outage> {
    from_redis_value(value).map_err(|_| Outage("a mark in Redis is not readable".to_owned()))
}

impl Buffer for RedisBuffer {
    fn put<'a>(&'a self, person: &'a Id, seq: u64, at: Millis) -> Boxed<'a, Option<Millis>> {
        Box::pin(async move {
            let (key, seq, at) = (self.key(person), seq.to_string(), at.to_string());
            for _ in 0..TRIES {
                let mark = self.index.mark(person.as_str()).await?;
                let arguments = [seq.as_bytes(), at.as_bytes(), mark.as_bytes(), MOST];
                let answer: String = read(self.redis.run(&PUT, Repeat::Safe, &[&key], &arguments).await?)?;
                match answer.as_str() {
                    "unmarked" => self.index.forget_mark(person.as_str()),
                    "full" => return Err(Outage("too many marks wait to be written".to_owned())),
                    "new" => return Ok(None),
                    read_at => {
                        let read_at =
                            read_at.parse().map_err(|_| Outage("a mark is not readable".to_owned()));
                        return read_at.map(Some);
                    }
                }
            }
            Err(Outage("the index of marks could not be marked in time".to_owned()))
        })
    }

    fn of<'a>(&'a self, person: &'a Id) -> Boxed<'a, Marks> {
        Box::pin(async move {
            let key = self.key(person);
            let mut all = cmd("HGETALL");
            all.arg(&key);
            let all: Vec<(String, String)> =
                read(self.redis.ask("hgetall", &key, &all, Repeat::Safe).await?)?;
            // What another program may have written there otherwise is none of ours, and could not be removed by what it says.
            Ok(all.iter().filter_map(|(seq, at)| Some((canonical(seq)?, canonical(at)?))).collect())
        })
    }

    fn recently_marked<'a>(&'a self, people: &'a [&'a Id]) -> Boxed<'a, HashSet<Id>> {
        Box::pin(async move {
            let names: Vec<&str> = people.iter().map(|person| person.as_str()).collect();
            let marked = self.index.marked_among(&names).await?;
            Ok(marked.into_iter().filter_map(|name| Id::new(name).ok()).collect())
        })
    }

    fn people(&self) -> Boxed<'_, Vec<Waiting>> {
        Box::pin(async move {
            let marked = self.index.marked().await?;
            let waiting =
                |marked: bongsu_redis::Marked| Some(Waiting { person: Id::new(&marked.name).ok()?, marked });
            Ok(marked.into_iter().filter_map(waiting).collect())
        })
    }

    fn written<'a>(&'a self, person: &'a Id, marks: &'a Marks) -> Boxed<'a, ()> {
        Box::pin(async move {
            let pairs: Vec<[String; 2]> =
                marks.iter().map(|(seq, at)| [seq.to_string(), at.to_string()]).collect();
            let arguments: Vec<&[u8]> = pairs.iter().flatten().map(String::as_bytes).collect();
            self.redis.run(&WRITTEN, Repeat::Safe, &[&self.key(person)], &arguments).await?;
            Ok(())
        })
    }

    fn none_left(&self, waiting: Waiting) -> Boxed<'_, ()> {
        Box::pin(async move { Ok(self.index.found_empty(waiting.marked).await?) })
    }
}
