//! Places in Redis, for the fleet: every instance says how many it has in a scope, and has a lease for all of them.
//!
//! Scopes are spread over a few shards, each with the leases of the instances in it, in one slot: entering is one
//! script that looks at leases and counts together, and an instance renews one lease a shard, however many places it
//! has. What an instance says is its whole count, numbered, so that repeating it, or an old word that comes late, does
//! no harm. [`scope`] has the counts, [`keeper`] tells of changes and renews.

mod keeper;
mod scope;

use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_redis::redis::from_redis_value;
use bongsu_redis::{Redis, Repeat, Script};

use super::{Cap, Place, Refused};
use crate::{Away, Boxed};
use keeper::Keeper;
use scope::{Counted, Scopes};

static ENTER: Script = Script::new("cap_enter", include_str!("../../lua/enter.lua"));

/// An instance that was not heard of for so long is gone, and its places with it.
pub const LEASE: Duration = Duration::from_secs(10);
/// Counts are told again so often, and forgotten by Redis when they were not told for much longer.
const REFRESH: Duration = Duration::from_secs(60);
const COUNT_LIFE: &[u8] = b"600000";
/// Who wants to enter waits so long.
const PATIENCE: Duration = Duration::from_secs(2);

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct RedisCap(Arc<Inner>);

struct Inner {
    redis: Redis,
    lease: Duration,
    scopes: Arc<Scopes>,
}

impl RedisCap {
    pub fn start(redis: Redis, lease: Duration, supervisor: &Supervisor) -> Self {
        let scopes = Arc::new(Scopes::default());
        Keeper::start(redis.clone(), lease, scopes.clone(), supervisor);
        Self(Arc::new(Inner { redis, lease, scopes }))
    }
}

impl Inner {
    /// One at a time for a scope of this instance, so that the count is what it says it is.
    async fn enter(&self, scope: &Arc<Counted>, limit: u32) -> Result<Place, Refused> {
        let _turn = scope.telling.lock().await;
        // Should this be given up in the middle, Redis is told what holds.
        let doubt = scope::Doubt::of(scope);
        let (leases, counts) = (leases_key(&self.redis, scope.shard), counts_key(&self.redis, scope));
        let wanted = scope.held().saturating_add(1);
        let numbers = [self.scopes.next_number(), wanted.into(), limit.into()].map(|n| n.to_string());
        let lease = self.lease.as_millis().to_string();
        let arguments = [
            self.redis.instance().as_bytes(),
            numbers[0].as_bytes(),
            numbers[1].as_bytes(),
            numbers[2].as_bytes(),
            lease.as_bytes(),
            COUNT_LIFE,
        ];
        let answer = self.redis.run(&ENTER, Repeat::Safe, &[&leases, &counts], &arguments).await;
        let (entered, was_leased): (bool, bool) = from_redis_value(answer.map_err(Away::from)?)
            .map_err(|_| Away("a count in Redis is not readable".to_owned()))?;
        doubt.dispel();
        if !entered {
            return Err(Refused::Full);
        }
        let place = scope.hold();
        if !was_leased {
            // Our lease had ended, or this is the first place here: others may have forgotten what we have.
            self.scopes.doubt_shard(scope.shard);
        }
        Ok(place)
    }
}

impl Cap for RedisCap {
    fn enter<'a>(&'a self, scope: &'a str, limit: u32) -> Boxed<'a, Result<Place, Refused>> {
        Box::pin(async move {
            let scope = self.0.scopes.find(scope);
            match tokio::time::timeout(PATIENCE, self.0.enter(&scope, limit)).await {
                Ok(outcome) => outcome,
                Err(_) => Err(Away("Redis does not answer".to_owned()).into()),
            }
        })
    }
}

/// The leases of the instances in a shard.
fn leases_key(redis: &Redis, shard: u8) -> String {
    redis.key(format_args!("{{cap:{shard}}}:leases"))
}

/// How many places each instance has in a scope.
fn counts_key(redis: &Redis, scope: &Counted) -> String {
    redis.key(format_args!("{{cap:{}}}:counts:{}", scope.shard, scope.name))
}
