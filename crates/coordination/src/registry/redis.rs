//! The registry in Redis: a lease per instance, ordered by its end, and the data that each instance
//! registered.
//!
//! Once a second, one script joins or renews the lease, removes the instances whose lease has ended, and returns those
//! that are alive. All keys share one slot.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Millis, lock};
use bongsu_redis::redis::{Value, from_redis_value};
use bongsu_redis::{Redis, Repeat, Script};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{Fleet, Instance, InstanceInfo, JoinError, JoinRefusal, LeaseState, RecordsLocation};
use crate::Error;

static JOIN: Script = Script::new("registry_join", include_str!("../../lua/join.lua"));
static LEAVE: Script = Script::new("registry_leave", include_str!("../../lua/leave.lua"));

/// Time between two renewals, or a third of the lease if that is shorter.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(1);

/// The live instances of the fleet. This process is one of them from [`RedisRegistry::join`] on, for as long as its lease
/// is renewed. Cheap to clone.
///
/// - **Leases.** An instance that was killed, or paused for longer than the lease, is no longer alive when its lease
///   ends, by Redis' clock. An instance that shuts down leaves at once.
/// - **Latency.** [`RedisRegistry::fleet`] shows a change within two seconds, on every instance that reaches Redis.
/// - **Lost lease.** After an instance's lease has ended, other instances may have released whatever the instance held in
///   the fleet, and the instance has to acquire it again. [`RedisRegistry::is_lease_held`] turns false no later than the
///   lease ends; an instance that rejoins has a new `joined_at`.
/// - **Admission.** Instances share one database, or all run without records. An instance with records that no other
///   instance can read runs alone. An instance cannot join if its required settings differ from those of a live instance.
///   The check and the join are one step, so of two incompatible instances that join at once one is refused.
/// - **Errors.** While Redis is unreachable, the last known fleet stays visible.
#[derive(Clone)]
pub struct RedisRegistry(Arc<Inner>);

struct Inner {
    redis: Redis,
    info: InstanceInfo,
    /// The stored JSON of `info`, without the records.
    stored: String,
    lease_ttl: Duration,
    keys: [String; 2],
    fleet: watch::Sender<Fleet>,
    /// The earliest time at which this instance's lease may end. None without a lease.
    expires_at: Mutex<Option<Instant>>,
}

/// The stored form of an instance. Version 2; version 1 had no settings.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredInstance {
    v: u32,
    version: String,
    address: String,
    started_at: Millis,
    #[serde(default)]
    required_settings: BTreeMap<String, String>,
    #[serde(default)]
    setting_hashes: Option<BTreeMap<String, String>>,
}

impl RedisRegistry {
    /// Joins the fleet and renews the lease, retrying on errors, until shutdown; then leaves.
    pub fn start(redis: Redis, info: &InstanceInfo, lease_ttl: Duration, supervisor: &Supervisor) -> Self {
        let InstanceInfo { version, address, started_at, required_settings, setting_hashes, .. } =
            info.clone();
        let stored = StoredInstance { v: 2, version, address, started_at, required_settings, setting_hashes };
        let keys = ["leases", "about"].map(|name| redis.key(format_args!("{{instances}}:{name}")));
        let this = Self(Arc::new(Inner {
            redis,
            info: info.clone(),
            // Serialising text and numbers cannot fail.
            stored: serde_json::to_string(&stored).unwrap_or_default(),
            lease_ttl,
            keys,
            fleet: watch::Sender::default(),
            expires_at: Mutex::new(None),
        }));
        let renew = |registry: Self| async move { registry.keep_renewing().await };
        supervisor.run_until_stop("registry", &this, renew, |registry| async move { registry.leave().await });
        this
    }

    async fn keep_renewing(&self) {
        let interval = RENEWAL_INTERVAL.min(self.0.lease_ttl / 3);
        loop {
            let renewal = async {
                tokio::time::sleep(interval).await;
                // A failure shows in the fleet's `lease_state`.
                let _ = self.join().await;
            };
            match self.expires_at() {
                // Gives up at the end of the lease, even if Redis has not answered.
                Some(expires_at) => drop(tokio::time::timeout_at(expires_at.into(), renewal).await),
                None => renewal.await,
            }
            if self.expires_at().is_some_and(|expires_at| expires_at <= Instant::now()) {
                self.mark_lost();
            }
        }
    }

    /// Joins the fleet or renews the lease, and reads which instances are alive. The registry also does this by itself at
    /// every interval; a start calls this to learn the outcome.
    pub async fn join(&self) -> Result<(), JoinError> {
        let (inner, sent_at) = (&self.0, Instant::now());
        let (ttl, records) = (inner.lease_ttl.as_millis().to_string(), inner.info.records.as_text());
        let arguments = [inner.redis.instance(), &ttl, &records, &inner.stored].map(str::as_bytes);
        let keys = inner.keys.each_ref().map(String::as_str);
        let answer = inner.redis.run(&JOIN, Repeat::Never, &keys, &arguments).await.map_err(Error::from)?;
        let (outcome, seen_at, instances): (String, Millis, Vec<Value>) =
            from_redis_value(answer).map_err(|_| Error::unreadable("the registry"))?;
        let mut alive =
            instances.into_iter().map(parse_instance).collect::<Option<Vec<_>>>().ok_or_else(unreadable)?;
        alive.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        if outcome == "alive" {
            self.set_expiry(Some(sent_at + inner.lease_ttl));
            let own = alive.iter().find(|instance| instance.id == inner.redis.instance());
            let joined_at = own.ok_or_else(unreadable)?.joined_at;
            self.publish(LeaseState::Alive { joined_at }, Some((seen_at, alive)));
            return Ok(());
        }
        self.set_expiry(None);
        let other = alive.iter().find(|other| other.id == outcome).ok_or_else(unreadable)?;
        let refused = JoinRefusal { other: Box::new(other.clone()), own: Box::new(inner.info.clone()) };
        self.publish(LeaseState::Refused(refused.clone()), Some((seen_at, alive)));
        Err(JoinError::Refused(refused))
    }

    fn mark_lost(&self) {
        self.set_expiry(None);
        self.publish(LeaseState::Lost, None);
    }

    fn publish(&self, lease_state: LeaseState, seen: Option<(Millis, Vec<Instance>)>) {
        self.0.fleet.send_if_modified(|fleet| {
            let (seen_at, alive) = seen.unwrap_or_else(|| (fleet.seen_at, fleet.alive.clone()));
            let seen = Fleet { lease_state, alive, seen_at };
            // A newer `seen_at` alone is not a change.
            let changed = (&fleet.lease_state, &fleet.alive) != (&seen.lease_state, &seen.alive);
            if fleet.lease_state != seen.lease_state {
                log_transition(&fleet.lease_state, &seen.lease_state);
            }
            *fleet = seen;
            changed
        });
    }

    async fn leave(&self) {
        self.set_expiry(None);
        let keys = self.0.keys.each_ref().map(String::as_str);
        // If the request is lost, the instance leaves when its lease ends.
        let _ = self.0.redis.run(&LEAVE, Repeat::Never, &keys, &[self.0.redis.instance().as_bytes()]).await;
    }

    /// A receiver of the last known fleet. A receiver that is slow sees only the latest of several changes.
    pub fn fleet(&self) -> watch::Receiver<Fleet> {
        self.0.fleet.subscribe()
    }

    /// Whether this instance's lease has certainly not ended.
    pub fn is_lease_held(&self) -> bool {
        self.expires_at().is_some_and(|expires_at| Instant::now() < expires_at)
    }

    /// The id of this instance in the registry.
    pub fn instance_id(&self) -> &str {
        self.0.redis.instance()
    }

    fn expires_at(&self) -> Option<Instant> {
        *lock(&self.0.expires_at)
    }

    fn set_expiry(&self, expires_at: Option<Instant>) {
        *lock(&self.0.expires_at) = expires_at;
    }
}

fn log_transition(from: &LeaseState, to: &LeaseState) {
    match (from, to) {
        (_, LeaseState::Lost) => {
            tracing::error!("the lease of this instance was not renewed in time; joining the fleet again");
        }
        // Logged by the caller, which decides what follows.
        (_, LeaseState::Refused(_)) => {}
        (LeaseState::Alive { .. }, LeaseState::Alive { .. }) => {
            tracing::error!("the lease of this instance had ended; rejoined the fleet");
        }
        _ => tracing::info!("joined the fleet"),
    }
}

fn unreadable() -> Error {
    Error::unreadable("the registry")
}

/// Parses an instance's id and its stored form.
fn parse_instance(stored: Value) -> Option<Instance> {
    let (id, text): (String, String) = from_redis_value(stored).ok()?;
    let mut parts = text.splitn(3, ' ');
    let joined_at = parts.next()?.parse().ok()?;
    let records = RecordsLocation::parse(parts.next()?);
    let StoredInstance { version, address, started_at, required_settings, setting_hashes, .. } =
        serde_json::from_str(parts.next()?).ok()?;
    let info = InstanceInfo { records, version, address, started_at, required_settings, setting_hashes };
    Some(Instance { id, info, joined_at })
}
