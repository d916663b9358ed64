//! Tells Redis of places that were given back, and renews the leases of this instance.

use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::task::{OnEnd, Supervisor};
use bongsu_redis::redis::from_redis_value;
use bongsu_redis::{Error, Redis, Repeat, Script};
use futures_util::future::join_all;
use tokio::time::Instant;

use super::scope::{Counted, SHARDS, Scopes};
use super::{COUNT_LIFE, REFRESH, counts_key, leases_key};

static TELL: Script = Script::new("cap_tell", include_str!("../../../lua/tell.lua"));
static RENEW: Script = Script::new("cap_renew", include_str!("../../../lua/renew.lua"));
static LEAVE: Script = Script::new("cap_leave", include_str!("../../../lua/leave.lua"));

/// Changes are gathered so long.
const GATHER: Duration = Duration::from_millis(5);
/// So many are told in one script.
const AT_ONCE: usize = 256;

#[derive(Clone)]
pub(super) struct Keeper {
    redis: Redis,
    lease: Duration,
    scopes: Arc<Scopes>,
}

impl Keeper {
    pub(super) fn start(redis: Redis, lease: Duration, scopes: Arc<Scopes>, supervisor: &Supervisor) {
        let (this, stop) = (Self { redis, lease, scopes }, supervisor.stop());
        supervisor.spawn("cap", OnEnd::Restart, move || {
            let (keeper, stop) = (this.clone(), stop.clone());
            async move {
                tokio::select! {
                    () = stop.cancelled() => keeper.leave().await,
                    () = keeper.keep() => {}
                }
            }
        });
    }

    async fn keep(&self) {
        let mut renewal = Instant::now() + self.lease / 3;
        let mut refresh = Instant::now() + REFRESH;
        // While Redis cannot be told, only a renewal that succeeds gives reason to try again.
        let mut well = true;
        loop {
            tokio::select! {
                () = self.scopes.changed().bell.notified(), if well => {
                    tokio::time::sleep(GATHER).await;
                    well = self.tell().await;
                }
                () = tokio::time::sleep_until(renewal) => {
                    renewal = Instant::now() + self.lease / 3;
                    if refresh <= Instant::now() {
                        refresh = Instant::now() + REFRESH;
                        (0..SHARDS).for_each(|shard| self.scopes.doubt_shard(shard));
                    }
                    well = self.renew().await && self.tell().await;
                }
            }
        }
    }

    /// Renews the lease in every shard. Where it had ended, everything is told again.
    async fn renew(&self) -> bool {
        let lease = self.lease.as_millis().to_string();
        let renewed = self.scopes.used_shards().into_iter().map(|shard| {
            let lease = &lease;
            async move {
                let key = leases_key(&self.redis, shard);
                let arguments = [self.redis.instance().as_bytes(), lease.as_bytes()];
                let answer = self.redis.run(&RENEW, Repeat::Never, &[&key], &arguments).await?;
                let was_leased: bool =
                    from_redis_value(answer).map_err(|error| Error::Unexpected(error.to_string()))?;
                if !was_leased {
                    self.scopes.doubt_shard(shard);
                }
                Ok::<(), Error>(())
            }
        });
        join_all(renewed).await.into_iter().all(|outcome| outcome.is_ok())
    }

    /// Tells of everything that has changed. False when Redis could not be told.
    async fn tell(&self) -> bool {
        loop {
            let changed = self.scopes.changed().take(AT_ONCE);
            if changed.is_empty() {
                return true;
            }
            let mut of_shard: Vec<Vec<Arc<Counted>>> = vec![Vec::new(); usize::from(SHARDS)];
            for scope in changed {
                of_shard[usize::from(scope.shard)].push(scope);
            }
            let told = of_shard.into_iter().filter(|scopes| !scopes.is_empty()).map(|scopes| async move {
                let told = self.tell_some(&scopes).await;
                match told {
                    Ok(()) => self.scopes.forget_empty(&scopes),
                    Err(_) => scopes.iter().for_each(Counted::doubt),
                }
                told.is_ok()
            });
            if !join_all(told).await.into_iter().all(|told| told) {
                return false;
            }
        }
    }

    /// Of one shard.
    async fn tell_some(&self, scopes: &[Arc<Counted>]) -> Result<(), Error> {
        let mut keys = Vec::with_capacity(scopes.len());
        let mut arguments = vec![self.redis.instance().to_owned().into_bytes(), COUNT_LIFE.to_vec()];
        let mut turns = Vec::with_capacity(scopes.len());
        for scope in scopes {
            // Who is just entering says how many there are by itself.
            turns.push(scope.telling.lock().await);
            keys.push(counts_key(&self.redis, scope));
            arguments.push(self.scopes.next_number().to_string().into_bytes());
            arguments.push(scope.held().to_string().into_bytes());
        }
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        self.redis.run(&TELL, Repeat::Safe, &keys, &arguments).await?;
        Ok(())
    }

    /// The places of this instance have gone with it.
    async fn leave(&self) {
        let left = self.scopes.used_shards().into_iter().map(|shard| async move {
            let key = leases_key(&self.redis, shard);
            // What does not arrive ends with the lease.
            let _ = self.redis.run(&LEAVE, Repeat::Never, &[&key], &[self.redis.instance().as_bytes()]).await;
        });
        join_all(left).await;
    }
}
