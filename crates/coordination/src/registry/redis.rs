//! The registry in Redis: a lease per instance, ordered by when it ends, and what each says of itself.
//!
//! One script joins, renews, sweeps out those whose lease ended and gives those that are alive, once a second. All of
//! it is in one slot.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bongsu_kernel::Millis;
use bongsu_kernel::task::{OnEnd, Supervisor};
use bongsu_redis::redis::{Value, from_redis_value};
use bongsu_redis::{Redis, Repeat, Script};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{About, Fleet, Instance, JoinError, Records, Refused, Standing};
use crate::Error;

static JOIN: Script = Script::new("registry_join", include_str!("../../lua/join.lua"));
static LEAVE: Script = Script::new("registry_leave", include_str!("../../lua/leave.lua"));

/// The registry is looked at so often, or three times in a lease if that is more.
const LOOK: Duration = Duration::from_secs(1);

/// Who is alive in the fleet. This process is in it from [`RedisRegistry::join`] on, for as long as its lease is renewed.
/// Cheap to clone.
///
/// - **Leases.** An instance that was killed, or paused for longer than the lease, is no longer alive when its lease
///   ends, by Redis' clock. One that shuts down leaves at once.
/// - **Told.** What [`RedisRegistry::fleet`] shows follows within two seconds, on every hub that reaches Redis.
/// - **Own end.** Whose lease ended may have been given up by the others: what it held in the fleet is gone and has to be
///   taken again. [`RedisRegistry::holds`] turns false no later than the lease ends; when it is alive again, it has a new
///   `joined_at`.
/// - **Who may join.** Instances share their records, or all have none. One that keeps records that no other can see
///   stays alone. Nobody joins whose required settings differ from those of an instance that is alive. Checking and
///   joining are one step, so of two that come at once one is refused.
/// - **Errors.** While Redis is away the last known fleet stays.
#[derive(Clone)]
pub struct RedisRegistry(Arc<Inner>);

struct Inner {
    redis: Redis,
    about: About,
    /// The same as it is stored, without the records.
    stored: String,
    lease: Duration,
    keys: [String; 2],
    fleet: watch::Sender<Fleet>,
    /// When our lease ends, at the earliest.
    until: Mutex<Option<Instant>>,
}

/// What is stored of an instance. Version 2; version 1 had no settings.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
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
    /// Goes on trying to join, and to stay, until shutdown; then leaves.
    pub fn start(redis: Redis, about: &About, lease: Duration, supervisor: &Supervisor) -> Self {
        let About { version, address, started_at, required_settings, setting_hashes, .. } = about.clone();
        let stored = Stored { v: 2, version, address, started_at, required_settings, setting_hashes };
        let keys = ["leases", "about"].map(|name| redis.key(format_args!("{{instances}}:{name}")));
        let this = Self(Arc::new(Inner {
            redis,
            about: about.clone(),
            // Text and numbers can always be written.
            stored: serde_json::to_string(&stored).unwrap_or_default(),
            lease,
            keys,
            fleet: watch::Sender::default(),
            until: Mutex::new(None),
        }));
        let (renewed, stop) = (this.clone(), supervisor.stop());
        supervisor.spawn("registry", OnEnd::Restart, move || {
            let (renewed, stop) = (renewed.clone(), stop.clone());
            async move {
                tokio::select! {
                    () = stop.cancelled() => renewed.leave().await,
                    () = renewed.stay() => {}
                }
            }
        });
        this
    }

    async fn stay(&self) {
        let pause = LOOK.min(self.0.lease / 3);
        loop {
            let turn = async {
                tokio::time::sleep(pause).await;
                // What went wrong shows in the fleet's standing.
                let _ = self.join().await;
            };
            match self.until() {
                // Not later than the lease ends, whatever Redis does meanwhile.
                Some(until) => drop(tokio::time::timeout_at(until.into(), turn).await),
                None => turn.await,
            }
            if self.until().is_some_and(|until| until <= Instant::now()) {
                self.lose();
            }
        }
    }

    /// Joins the fleet or renews the lease, and looks who is alive. It is also called again and again by itself; this is
    /// for a start that wants to know.
    pub async fn join(&self) -> Result<(), JoinError> {
        let (inner, asked) = (&self.0, Instant::now());
        let (lease, records) = (inner.lease.as_millis().to_string(), inner.about.records.as_text());
        let arguments = [inner.redis.instance(), &lease, &records, &inner.stored].map(str::as_bytes);
        let keys = inner.keys.each_ref().map(String::as_str);
        let answer = inner.redis.run(&JOIN, Repeat::Never, &keys, &arguments).await.map_err(Error::from)?;
        let (outcome, seen_at, instances): (String, Millis, Vec<Value>) =
            from_redis_value(answer).map_err(|_| Error::unreadable("the registry"))?;
        let mut alive =
            instances.into_iter().map(instance).collect::<Option<Vec<_>>>().ok_or_else(unreadable)?;
        alive.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        if outcome == "alive" {
            self.set_until(Some(asked + inner.lease));
            let own = alive.iter().find(|instance| instance.id == inner.redis.instance());
            let joined_at = own.ok_or_else(unreadable)?.joined_at;
            self.show(Standing::Alive { joined_at }, Some((seen_at, alive)));
            return Ok(());
        }
        self.set_until(None);
        let other = alive.iter().find(|other| other.id == outcome).ok_or_else(unreadable)?;
        let refused = Refused { other: Box::new(other.clone()), own: Box::new(inner.about.clone()) };
        self.show(Standing::Refused(refused.clone()), Some((seen_at, alive)));
        Err(JoinError::Refused(refused))
    }

    fn lose(&self) {
        self.set_until(None);
        self.show(Standing::Lost, None);
    }

    fn show(&self, standing: Standing, seen: Option<(Millis, Vec<Instance>)>) {
        self.0.fleet.send_if_modified(|fleet| {
            let (seen_at, alive) = seen.unwrap_or_else(|| (fleet.seen_at, fleet.alive.clone()));
            let seen = Fleet { standing, alive, seen_at };
            // That it was looked again is no change.
            let changed = (&fleet.standing, &fleet.alive) != (&seen.standing, &seen.alive);
            if fleet.standing != seen.standing {
                tell(&fleet.standing, &seen.standing);
            }
            *fleet = seen;
            changed
        });
    }

    async fn leave(&self) {
        self.set_until(None);
        let keys = self.0.keys.each_ref().map(String::as_str);
        // What does not arrive ends with the lease.
        let _ = self.0.redis.run(&LEAVE, Repeat::Never, &keys, &[self.0.redis.instance().as_bytes()]).await;
    }

    /// The fleet as it was seen last, and every change of it.
    pub fn fleet(&self) -> watch::Receiver<Fleet> {
        self.0.fleet.subscribe()
    }

    /// Whether this instance certainly still counts as alive.
    pub fn holds(&self) -> bool {
        self.until().is_some_and(|until| Instant::now() < until)
    }

    /// This process, as others see it.
    pub fn me(&self) -> &str {
        self.0.redis.instance()
    }

    fn until(&self) -> Option<Instant> {
        *self.0.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_until(&self, until: Option<Instant>) {
        *self.0.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

fn tell(was: &Standing, is: &Standing) {
    match (was, is) {
        (_, Standing::Lost) => tracing::error!("this instance may count as gone: its lease was not renewed"),
        (_, Standing::Refused(refused)) => tracing::error!("{refused}"),
        (Standing::Alive { .. }, Standing::Alive { .. }) => {
            tracing::error!("this instance counted as gone for a while");
        }
        _ => tracing::info!("this instance is in the fleet"),
    }
}

fn unreadable() -> Error {
    Error::unreadable("the registry")
}

/// An instance's id and what was stored of it.
fn instance(stored: Value) -> Option<Instance> {
    let (id, text): (String, String) = from_redis_value(stored).ok()?;
    let mut parts = text.splitn(3, ' ');
    let joined_at = parts.next()?.parse().ok()?;
    let records = Records::parse(parts.next()?);
    let Stored { version, address, started_at, required_settings, setting_hashes, .. } =
        serde_json::from_str(parts.next()?).ok()?;
    let about = About { records, version, address, started_at, required_settings, setting_hashes };
    Some(Instance { id, about, joined_at })
}
