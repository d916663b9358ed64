//! Locks in Redis, for the fleet and for other programs: a string with the owner's name that expires.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bongsu_kernel::Id;
use bongsu_redis::redis::from_redis_value;
use bongsu_redis::{Redis, Repeat, Script};

use super::{Acquired, Grant, Locks};
use crate::{Boxed, Error};

static ACQUIRE: Script = Script::new("lock_acquire", include_str!("../../lua/acquire.lua"));
static RENEW: Script = Script::new("lock_renew", include_str!("../../lua/renew.lua"));
static RELEASE: Script = Script::new("lock_release", include_str!("../../lua/release.lua"));

/// See the module.
pub struct RedisLocks {
    redis: Redis,
    ttl: Duration,
    /// Every grant has an owner of its own, so that two tasks of one hub do not release each other's.
    owners: AtomicU64,
}

impl RedisLocks {
    pub fn new(redis: Redis, ttl: Duration) -> Self {
        Self { redis, ttl, owners: AtomicU64::new(1) }
    }

    fn key(&self, event: &Id) -> String {
        self.redis.key(format_args!("lock:event:{event}"))
    }

    async fn take(&self, event: &Id) -> Result<Acquired, Error> {
        let owner = format!("{}.{}", self.redis.instance(), self.owners.fetch_add(1, Ordering::Relaxed));
        let (key, ttl) = (self.key(event), self.ttl.as_millis().to_string());
        let until = Instant::now() + self.ttl;
        // Repeated by the same owner it is the same lock.
        let arguments = [owner.as_bytes(), ttl.as_bytes()];
        let answer = self.redis.run(&ACQUIRE, Repeat::Safe, &[&key], &arguments).await?;
        let ends: Option<i64> = from_redis_value(answer).map_err(|_| Error::unreadable("a lock"))?;
        Ok(match ends {
            None => Acquired::Granted(Grant { event: event.clone(), owner, until }),
            Some(ends) => Acquired::Taken(u64::try_from(ends).ok().map(Duration::from_millis)),
        })
    }

    /// Runs a script that does something only for the owner.
    async fn if_owned(&self, script: &Script, grant: &Grant) -> Result<bool, Error> {
        let ttl = self.ttl.as_millis().to_string();
        let arguments = [grant.owner.as_bytes(), ttl.as_bytes()];
        let answer = self.redis.run(script, Repeat::Safe, &[&self.key(&grant.event)], &arguments).await?;
        from_redis_value(answer).map_err(|_| Error::unreadable("a lock"))
    }
}

impl Locks for RedisLocks {
    fn acquire<'a>(&'a self, event: &'a Id) -> Boxed<'a, Result<Acquired, Error>> {
        Box::pin(async move {
            let outcome = self.take(event).await;
            super::count(&outcome);
            outcome
        })
    }

    fn renew<'a>(&'a self, grant: &'a mut Grant) -> Boxed<'a, Result<bool, Error>> {
        Box::pin(async move {
            let until = Instant::now() + self.ttl;
            let renewed = self.if_owned(&RENEW, grant).await?;
            if renewed {
                grant.until = until;
            }
            Ok(renewed)
        })
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> Boxed<'a, Result<bool, Error>> {
        Box::pin(async move { self.if_owned(&RELEASE, grant).await })
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }
}
