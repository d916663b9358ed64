//! Buffered read marks in Redis: one hash per person, `read_status:<id>`, and an index of the persons with a hash.

use std::collections::HashSet;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Id, Millis, Outage};
use bongsu_redis::redis::{Value, cmd, from_redis_value};
use bongsu_redis::{PendingIndex, Redis, Repeat, Script};

use super::{BufferFuture, MarkBuffer, Marks, PendingPerson};
use crate::read::canonical;

static PUT_MARK: Script = Script::new("read_put", include_str!("../../lua/put_mark.lua"));
static REMOVE_WRITTEN_MARKS: Script =
    Script::new("read_written", include_str!("../../lua/remove_written_marks.lua"));

/// Buffered marks per person; further marks are written to the records directly.
const MAX_MARKS_PER_PERSON: &[u8] = b"5000";
/// Attempts to store a mark: an attempt fails when the index entry is too old by the time the script runs.
const MAX_ATTEMPTS: u32 = 3;

/// The mark buffer of a fleet, in Redis.
pub struct RedisMarkBuffer {
    redis: Redis,
    index: PendingIndex,
}

impl RedisMarkBuffer {
    pub fn new(redis: Redis) -> Self {
        let index = PendingIndex::new(redis.clone(), "read_status");
        Self { redis, index }
    }

    /// Renews index entries in the background, so that marks are found even when Redis has lost their index entries.
    pub fn start_upkeep(&self, supervisor: &Supervisor) {
        self.index.start_mark_refresh(supervisor);
    }

    fn key(&self, person: &Id) -> String {
        self.redis.key(format_args!("read_status:{person}"))
    }
}

pub(crate) fn read<T: bongsu_redis::redis::FromRedisValue>(value: Value) -> Result<T, Outage> {
    from_redis_value(value).map_err(|_| Outage("Redis returned a value of an unexpected type".to_owned()))
}

impl MarkBuffer for RedisMarkBuffer {
    fn put<'a>(&'a self, person: &'a Id, seq: u64, at: Millis) -> BufferFuture<'a, Option<Millis>> {
        Box::pin(async move {
            let (key, seq, at) = (self.key(person), seq.to_string(), at.to_string());
            for _ in 0..MAX_ATTEMPTS {
                let mark = self.index.mark(person.as_str()).await?;
                let arguments = [seq.as_bytes(), at.as_bytes(), mark.as_bytes(), MAX_MARKS_PER_PERSON];
                let answer: String =
                    read(self.redis.run(&PUT_MARK, Repeat::Safe, &[&key], &arguments).await?)?;
                match answer.as_str() {
                    "unmarked" => self.index.forget_mark(person.as_str()),
                    "full" => return Err(Outage("the person has too many buffered read marks".to_owned())),
                    "new" => return Ok(None),
                    read_at => {
                        let read_at = read_at
                            .parse()
                            .map_err(|_| Outage("a read mark in Redis is not a time".to_owned()));
                        return read_at.map(Some);
                    }
                }
            }
            Err(Outage("the index entry of the read mark was too old in every attempt".to_owned()))
        })
    }

    fn marks<'a>(&'a self, person: &'a Id) -> BufferFuture<'a, Marks> {
        Box::pin(async move {
            let key = self.key(person);
            let all = cmd("HGETALL").arg(&key).take();
            let all: Vec<(String, String)> =
                read(self.redis.query("hgetall", &key, &all, Repeat::Safe).await?)?;
            // Fields that another program wrote in another format are skipped: `remove_written` could not match them.
            Ok(all.iter().filter_map(|(seq, at)| Some((canonical(seq)?, canonical(at)?))).collect())
        })
    }

    fn recently_marked<'a>(&'a self, persons: &'a [&'a Id]) -> BufferFuture<'a, HashSet<Id>> {
        Box::pin(async move {
            let names: Vec<&str> = persons.iter().map(|person| person.as_str()).collect();
            let marked = self.index.pending_among(&names).await?;
            Ok(marked.into_iter().filter_map(|name| Id::new(name).ok()).collect())
        })
    }

    fn persons_with_marks(&self) -> BufferFuture<'_, Vec<PendingPerson>> {
        Box::pin(async move {
            let index_marks = self.index.pending().await?;
            let pending = |index_mark: bongsu_redis::PendingMark| {
                Some(PendingPerson { person: Id::new(&index_mark.name).ok()?, index_mark })
            };
            Ok(index_marks.into_iter().filter_map(pending).collect())
        })
    }

    fn remove_written<'a>(&'a self, person: &'a Id, marks: &'a Marks) -> BufferFuture<'a, ()> {
        Box::pin(async move {
            let pairs: Vec<[String; 2]> =
                marks.iter().map(|(seq, at)| [seq.to_string(), at.to_string()]).collect();
            let arguments: Vec<&[u8]> = pairs.iter().flatten().map(String::as_bytes).collect();
            self.redis.run(&REMOVE_WRITTEN_MARKS, Repeat::Safe, &[&self.key(person)], &arguments).await?;
            Ok(())
        })
    }

    fn unindex(&self, pending: PendingPerson) -> BufferFuture<'_, ()> {
        Box::pin(async move { Ok(self.index.remove_empty(pending.index_mark).await?) })
    }
}
