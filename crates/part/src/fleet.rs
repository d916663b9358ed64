//! Joins the hub to what a fleet decides: orders to send people away, places of a person over all hubs, the registry.
//!
//! What a hub must not do is decided elsewhere; here is what it does about it: it asks people to come back, waits, or ends.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bongsu_coordination::orders::REVOCATION_LIFE;
use bongsu_coordination::registry::redis::RedisRegistry;
use bongsu_coordination::registry::{JoinError, Standing};
use bongsu_coordination::{Apply, LEASE, Order, Orders};
use bongsu_http::identity::{LONGEST_LIFE, Revocations};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Boxed, Id, Millis};
use bongsu_limits::Connections;
use bongsu_limits::connections::Refused;
use bongsu_live::{Gate, Hub, LogError, OpenError, Places};

use crate::Failure;

/// Carries out orders on this hub's streams.
pub(crate) struct Doorkeeper(pub(crate) Hub);

impl Apply for Doorkeeper {
    fn apply(&self, order: &Order) {
        match order {
            Order::Disconnect { user } => self.0.disconnect(user),
            Order::Revoke { user, issued_before } => self.0.revoke(user, *issued_before),
        }
    }

    fn missed(&self) {
        tracing::warn!("orders may have been missed: every stream is asked to come back");
        self.0.check_everybody();
    }
}

/// A revocation outlives every token that it is about.
const _: () = assert!(REVOCATION_LIFE.as_secs() >= LONGEST_LIFE.as_secs());

/// The orders as the hub and the check of tokens ask for them.
pub(crate) struct Ordered(pub(crate) Arc<dyn Orders>);

impl Gate for Ordered {
    fn is_current(&self) -> bool {
        self.0.is_current()
    }

    fn catch_up(&self) -> Boxed<'_, Result<(), LogError>> {
        Box::pin(async move { self.0.catch_up().await.map_err(|error| LogError::Away(error.to_string())) })
    }
}

impl Revocations for Ordered {
    fn before<'a>(&'a self, person: &'a Id) -> Boxed<'a, Result<Option<Millis>, String>> {
        Box::pin(async move { self.0.revoked_before(person).await.map_err(|error| error.to_string()) })
    }
}

/// A person's streams over all hubs.
pub(crate) struct StreamPlaces(pub(crate) Arc<dyn Connections>);

impl Places for StreamPlaces {
    fn take<'a>(&'a self, person: &'a Id) -> Boxed<'a, Result<Box<dyn Any + Send>, OpenError>> {
        Box::pin(async move {
            // Nobody is replaced: the next one is refused.
            match self.0.enter(person, Box::new(|| {})).await {
                Ok(place) => Ok(Box::new(place) as Box<dyn Any + Send>),
                Err(Refused::Full) => Err(OpenError::TooManyForPerson),
                Err(Refused::Away(away)) => Err(OpenError::Away(away)),
            }
        })
    }
}

/// An instance that came in while Redis was away may turn out not to be allowed: it must not go on beside the other.
pub(crate) fn watch(registry: &RedisRegistry, supervisor: &Supervisor) {
    let state = (registry.fleet(), supervisor.clone());
    supervisor.run("registry-watch", &state, |(mut fleet, alarm)| async move {
        let refused = fleet.wait_for(|fleet| matches!(fleet.standing, Standing::Refused(_))).await;
        if let Ok(Standing::Refused(refused)) = refused.map(|fleet| fleet.standing.clone()) {
            tracing::error!(%refused, "this instance may not be part of the fleet");
            alarm.fail("registry");
        }
        std::future::pending::<()>().await;
    });
}

/// A process that stood still for longer than its lease lasts was given up by the others: what its people had may have
/// been taken by somebody else meanwhile. So everybody comes back, and is counted anew.
pub(crate) fn watch_stalls(hub: Hub, supervisor: &Supervisor) {
    let state = (hub, Arc::new(Mutex::new(Instant::now())));
    supervisor.every("stall-watch", TICK, &state, |(hub, last)| async move {
        let stood =
            std::mem::replace(&mut *last.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        if stood.elapsed() > LEASE {
            tracing::warn!("this process stood still: every stream is asked to come back");
            hub.check_everybody();
        }
    });
}

const TICK: Duration = Duration::from_secs(1);

/// An instance that was killed counts until its lease ends, and is perhaps just this one, started again.
const PATIENCE: Duration = LEASE.saturating_add(Duration::from_secs(2));
const SETTLING: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(250);

/// Joins the fleet, unless another instance does not allow it. While Redis is away it is tried on by itself.
pub(crate) async fn join(registry: &RedisRegistry) -> Result<(), Failure> {
    let started = Instant::now();
    let mut told = false;
    loop {
        match registry.join().await {
            Ok(()) => return Ok(()),
            Err(JoinError::Refused(refused)) if started.elapsed() > PATIENCE => {
                return Err(Failure::Other(refused.to_string()));
            }
            Err(JoinError::Refused(refused)) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(%refused, "waiting for the lease of the other instance to end");
                }
                tokio::time::sleep(AGAIN).await;
            }
            Err(JoinError::Engine(error)) => {
                tracing::warn!(%error, "the fleet could not be joined yet");
                return Ok(());
            }
        }
    }
}

/// Waits until orders are heard of, so that the first streams need not wait for it. Not for long: without Redis, too,
/// the hub starts.
pub(crate) async fn settle(orders: &dyn Orders) {
    let started = Instant::now();
    while !orders.is_current() && started.elapsed() < SETTLING {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
