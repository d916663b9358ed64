//! Connects this instance to its fleet: access commands, connection limits over all instances, and the instance
//! registry.
//!
//! `bongsu_coordination` detects missed access commands, ended leases and refused instances. This module
//! reacts: it disconnects streams, waits, or ends the process.

use std::any::Any;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bongsu_coordination::access_commands::REVOCATION_RETENTION;
use bongsu_coordination::registry::redis::RedisRegistry;
use bongsu_coordination::registry::{JoinError, LeaseState};
use bongsu_coordination::{AccessCommand, AccessCommandHandler, AccessCommands, INSTANCE_LEASE_TTL};
use bongsu_http::identity::{MAX_TOKEN_LIFETIME, Revocations};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{BoxFuture, Id, Millis, lock};
use bongsu_limits::Connections;
use bongsu_limits::connections::ConnectionLimitError;
use bongsu_live::log::LogFuture;
use bongsu_live::{ConnectionQuota, Hub, LogError, OpenError, RevocationGate};

use crate::Failure;

/// Applies access commands to the streams of this instance.
pub(crate) struct AccessCommandExecutor(pub(crate) Hub);

impl AccessCommandHandler for AccessCommandExecutor {
    fn apply(&self, command: &AccessCommand) {
        match command {
            AccessCommand::Disconnect { user } => self.0.disconnect(user),
            AccessCommand::Revoke { user, issued_before } => self.0.revoke(user, *issued_before),
        }
    }

    fn handle_missed(&self) {
        tracing::warn!("access commands may have been missed; asking every stream to reconnect");
        self.0.disconnect_all();
    }
}

// A revocation is remembered for longer than any token that it revokes is valid.
const _: () = assert!(REVOCATION_RETENTION.as_secs() >= MAX_TOKEN_LIFETIME.as_secs());

/// Adapts the access commands to the ports of the hub and of the token check.
pub(crate) struct AccessCommandGate(pub(crate) Arc<dyn AccessCommands>);

impl RevocationGate for AccessCommandGate {
    fn is_current(&self) -> bool {
        self.0.is_current()
    }

    fn catch_up(&self) -> LogFuture<'_, ()> {
        Box::pin(
            async move { self.0.catch_up().await.map_err(|error| LogError::Unavailable(error.to_string())) },
        )
    }
}

impl Revocations for AccessCommandGate {
    fn revoked_before<'a>(&'a self, person: &'a Id) -> BoxFuture<'a, Result<Option<Millis>, String>> {
        Box::pin(async move { self.0.revoked_before(person).await.map_err(|error| error.to_string()) })
    }
}

/// Limits the streams of each person over all instances.
pub(crate) struct StreamQuota(pub(crate) Arc<dyn Connections>);

impl ConnectionQuota for StreamQuota {
    fn acquire<'a>(&'a self, person: &'a Id) -> BoxFuture<'a, Result<Box<dyn Any + Send>, OpenError>> {
        Box::pin(async move {
            // The policy is to refuse, so the callback for a replaced connection is never called.
            match self.0.acquire(person, Box::new(|| {})).await {
                Ok(permit) => Ok(Box::new(permit) as Box<dyn Any + Send>),
                Err(ConnectionLimitError::Full) => Err(OpenError::TooManyForPerson),
                Err(ConnectionLimitError::Unavailable(reason)) => Err(OpenError::Unavailable(reason)),
            }
        })
    }
}

/// Shuts the process down if the registry refuses it after the start: an instance that started during an outage of
/// Redis is compared with the others only when it joins.
pub(crate) fn watch_refusal(registry: &RedisRegistry, supervisor: &Supervisor) {
    let state = (registry.fleet(), supervisor.clone());
    supervisor.run("registry-watch", &state, |(mut fleet, supervisor)| async move {
        let refused = fleet.wait_for(|fleet| matches!(fleet.lease_state, LeaseState::Refused(_))).await;
        if let Ok(LeaseState::Refused(refused)) = refused.map(|fleet| fleet.lease_state.clone()) {
            tracing::error!(%refused, "the registry refused this instance; shutting down");
            supervisor.fail("registry");
        }
        std::future::pending::<()>().await;
    });
}

/// Disconnects all streams if the process was suspended for longer than its lease lasts. The other instances have then
/// removed it from the fleet and may have given away its connection permits; each stream acquires a new one as it
/// reconnects.
pub(crate) fn watch_stalls(hub: Hub, supervisor: &Supervisor) {
    let state = (hub, Arc::new(Mutex::new(Instant::now())));
    supervisor.every("stall-watch", STALL_CHECK_INTERVAL, &state, |(hub, last_check)| async move {
        let previous = std::mem::replace(&mut *lock(&last_check), Instant::now());
        let elapsed = previous.elapsed();
        if elapsed > INSTANCE_LEASE_TTL {
            let stalled_ms = elapsed.as_millis() as u64;
            tracing::warn!(
                stalled_ms,
                "this process was suspended for longer than its lease; asking every stream to reconnect"
            );
            hub.disconnect_all();
        }
    });
}

const STALL_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How long to wait until the instance that causes the refusal has ended. Longer than a lease, because that instance
/// may be the killed predecessor of this process.
const JOIN_TIMEOUT: Duration = INSTANCE_LEASE_TTL.saturating_add(Duration::from_secs(2));
const JOIN_RETRY_DELAY: Duration = Duration::from_millis(250);
const ACCESS_COMMANDS_TIMEOUT: Duration = Duration::from_secs(2);
const ACCESS_COMMANDS_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Joins the fleet. Fails if the registry still refuses this instance after [`JOIN_TIMEOUT`]. Returns at once while
/// Redis is unavailable; the registry then retries in the background.
pub(crate) async fn join(registry: &RedisRegistry) -> Result<(), Failure> {
    let started = Instant::now();
    let mut is_logged = false;
    loop {
        match registry.join().await {
            Ok(()) => return Ok(()),
            Err(JoinError::Refused(refused)) if started.elapsed() > JOIN_TIMEOUT => {
                return Err(Failure::other(refused));
            }
            Err(JoinError::Refused(refused)) => {
                if !std::mem::replace(&mut is_logged, true) {
                    tracing::warn!(%refused, "the registry refused this instance; retrying until the other lease ends");
                }
                tokio::time::sleep(JOIN_RETRY_DELAY).await;
            }
            Err(JoinError::Engine(error)) => {
                tracing::warn!(%error, "failed to join the fleet; retrying in the background");
                return Ok(());
            }
        }
    }
}

/// Waits until the access commands are current, so that the first streams are not refused or delayed. Returns after
/// [`ACCESS_COMMANDS_TIMEOUT`] in any case, because the hub also starts without Redis.
pub(crate) async fn wait_for_access_commands(access_commands: &dyn AccessCommands) {
    let started = Instant::now();
    while !access_commands.is_current() && started.elapsed() < ACCESS_COMMANDS_TIMEOUT {
        tokio::time::sleep(ACCESS_COMMANDS_POLL_INTERVAL).await;
    }
}
