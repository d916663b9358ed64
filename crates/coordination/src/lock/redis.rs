//! Locks in Redis, for a fleet and for other programs. Each lock is a key that holds the owner's name and
//! expires.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bongsu_kernel::Id;
use bongsu_redis::redis::from_redis_value;
use bongsu_redis::{Redis, Repeat, Script};

use super::{AcquireOutcome, LockLease, Locks};
use crate::{BoxFuture, Error};

static ACQUIRE: Script = Script::new("lock_acquire", include_str!("../../lua/acquire.lua"));
static RENEW: Script = Script::new("lock_renew", include_str!("../../lua/renew.lua"));
static RELEASE: Script = Script::new("lock_release", include_str!("../../lua/release.lua"));

pub struct RedisLocks {
    redis: Redis,
    ttl: Duration,
    /// The number of the next owner. Every lease has an owner name of its own, so that two tasks of one instance cannot
    /// release each other's locks.
    next_owner: AtomicU64,
}

impl RedisLocks {
    pub fn new(redis: Redis, ttl: Duration) -> Self {
        Self { redis, ttl, next_owner: AtomicU64::new(1) }
    }

    fn key(&self, event: &Id) -> String {
        self.redis.key(format_args!("lock:event:{event}"))
    }

    async fn try_acquire(&self, event: &Id) -> Result<AcquireOutcome, Error> {
        let owner = format!("{}.{}", self.redis.instance(), self.next_owner.fetch_add(1, Ordering::Relaxed));
        let (key, ttl) = (self.key(event), self.ttl.as_millis().to_string());
        let expires_at = Instant::now() + self.ttl;
        // Safe to repeat: the script lets the same owner acquire its lock again.
        let arguments = [owner.as_bytes(), ttl.as_bytes()];
        let answer = self.redis.run(&ACQUIRE, Repeat::Safe, &[&key], &arguments).await?;
        let taken_for_ms: Option<i64> = from_redis_value(answer).map_err(|_| Error::unreadable("a lock"))?;
        Ok(match taken_for_ms {
            None => AcquireOutcome::Acquired(LockLease { event: event.clone(), owner, expires_at }),
            Some(ms) => AcquireOutcome::Taken(u64::try_from(ms).ok().map(Duration::from_millis)),
        })
    }

    /// Runs a script that changes the lock only if the lease's owner still holds it.
    async fn run_if_owned(&self, script: &Script, lease: &LockLease) -> Result<bool, Error> {
        let ttl = self.ttl.as_millis().to_string();
        let arguments = [lease.owner.as_bytes(), ttl.as_bytes()];
        let answer = self.redis.run(script, Repeat::Safe, &[&self.key(&lease.event)], &arguments).await?;
        from_redis_value(answer).map_err(|_| Error::unreadable("a lock"))
    }
}

impl Locks for RedisLocks {
    fn acquire<'a>(&'a self, event: &'a Id) -> BoxFuture<'a, Result<AcquireOutcome, Error>> {
        Box::pin(async move {
            let outcome = self.try_acquire(event).await;
            super::count(&outcome);
            outcome
        })
    }

    fn renew<'a>(&'a self, lease: &'a mut LockLease) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let expires_at = Instant::now() + self.ttl;
            let renewed = self.run_if_owned(&RENEW, lease).await?;
            if renewed {
                lease.expires_at = expires_at;
            }
            Ok(renewed)
        })
    }

    fn release<'a>(&'a self, lease: &'a LockLease) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move { self.run_if_owned(&RELEASE, lease).await })
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }
}
