//! A runner: a named loop that runs on one instance of the fleet at a time.
//!
//! The instance that holds the loop's lock runs the loop, and renews the lock meanwhile. When the lock cannot be renewed
//! (the engine is unreachable, the process was paused, another owner took the lock), the loop's future is dropped at its
//! current await point, and another instance takes over. A write that was in flight at that moment may still happen.
//! On the embedded engine no other instance competes, so the loop always runs.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use bongsu_kernel::task::{OnEnd, Supervisor};
use bongsu_kernel::{Id, InvalidField, lock, random};
use tokio_util::sync::CancellationToken;

use crate::Locks;
use crate::lock::{AcquireOutcome, LockLease};

/// The shortest delay between two attempts to acquire the lock, so that a lock with only a few milliseconds left is not
/// polled in a tight loop.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Runs `work` while this instance holds the loop's lock, until shutdown.
///
/// `work` is a loop that runs until it is dropped, which may happen at any await point. When it returns, the lock is
/// released, and the loop starts again a moment later, on this or another instance. A write of the previous run may
/// arrive after the next run has started, so every write must be idempotent, or serialised by a lock of the database.
pub fn start<F>(
    locks: Arc<dyn Locks>,
    name: &'static str,
    supervisor: &Supervisor,
    work: impl Fn() -> F + Send + Sync + 'static,
) -> Result<(), InvalidField>
where
    F: Future<Output = ()> + Send + 'static,
{
    let lock = Id::new(&format!("runner:{name}")).map_err(|reason| InvalidField::new(name, reason))?;
    let (work, stop) = (Arc::new(work), supervisor.stop());
    supervisor.spawn(name, OnEnd::Restart, move || {
        let (locks, lock, work, stop) = (locks.clone(), lock.clone(), work.clone(), stop.clone());
        let runner = Runner { locks, lock, name, stop };
        async move { runner.run(&*work).await }
    });
    Ok(())
}

struct Runner {
    locks: Arc<dyn Locks>,
    lock: Id,
    name: &'static str,
    stop: CancellationToken,
}

/// How a run of the loop ended.
#[derive(PartialEq)]
enum RunEnd {
    Returned,
    LeaseLost,
    Stopped,
}

impl Runner {
    async fn run<F: Future<Output = ()>>(&self, work: &(impl Fn() -> F + Sync)) {
        let mut has_failed = false;
        while !self.stop.is_cancelled() {
            let outcome = self.locks.acquire(&self.lock).await;
            let had_failed = std::mem::replace(&mut has_failed, outcome.is_err());
            let delay = match outcome {
                Ok(AcquireOutcome::Acquired(lease)) => {
                    self.run_under(lease, work).await;
                    Duration::ZERO
                }
                Ok(AcquireOutcome::Taken(ends_in)) => ends_in.unwrap_or(Duration::MAX),
                Err(error) => {
                    if !had_failed {
                        tracing::warn!(runner = self.name, %error, "failed to acquire the runner lock; retrying");
                    }
                    self.locks.ttl() / 30
                }
            };
            self.wait(delay).await;
        }
    }

    /// Waits for `delay`, but at most for a third of a lease: an owner that shuts down releases its lock before the lease
    /// ends.
    async fn wait(&self, delay: Duration) {
        let max = self.locks.ttl() / 3;
        let jitter = Duration::from_millis(random::between(0, 50));
        let delay = delay.min(max).max(MIN_RETRY_DELAY) + jitter;
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(delay) => {}
        }
    }

    /// Runs the loop until it returns, the lease is lost, or the process stops.
    async fn run_under<F: Future<Output = ()>>(&self, mut lease: LockLease, work: &(impl Fn() -> F + Sync)) {
        tracing::info!(runner = self.name, "acquired the runner lock; starting the loop");
        let expires_at = Mutex::new(lease.expires_at());
        let end = tokio::select! {
            biased;
            () = self.stop.cancelled() => RunEnd::Stopped,
            () = self.keep_renewing(&mut lease, &expires_at) => RunEnd::LeaseLost,
            () = wait_for_expiry(&expires_at) => RunEnd::LeaseLost,
            end = run_while_held(work(), &expires_at) => end,
        };
        if end == RunEnd::LeaseLost {
            tracing::warn!(runner = self.name, "lost the runner lock; stopped the loop");
        } else {
            // If the release is lost, the lock ends with its lease.
            let _ = self.locks.release(&lease).await;
        }
    }

    /// Renews the lease until it has ended, or another owner has the lock.
    async fn keep_renewing(&self, lease: &mut LockLease, expires_at: &Mutex<Instant>) {
        let interval = self.locks.ttl() / 3;
        let mut delay = interval;
        loop {
            tokio::time::sleep(delay).await;
            delay = match self.locks.renew(lease).await {
                Ok(true) => {
                    *lock(expires_at) = lease.expires_at();
                    interval
                }
                Ok(false) => return,
                // Retries soon, until the lease has expired.
                Err(_) => interval / 10,
            };
        }
    }
}

/// Waits until the lease has expired. Its expiry moves while the lease is renewed.
async fn wait_for_expiry(expires_at: &Mutex<Instant>) {
    loop {
        let expiry = *lock(expires_at);
        if expiry <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(expiry.into()).await;
    }
}

/// Polls the work, but never after the lease has expired: not even when the process was paused and no timer has fired
/// since.
async fn run_while_held(work: impl Future<Output = ()>, expires_at: &Mutex<Instant>) -> RunEnd {
    let mut work = pin!(work);
    poll_fn(|context| {
        if *lock(expires_at) <= Instant::now() {
            return Poll::Ready(RunEnd::LeaseLost);
        }
        work.as_mut().poll(context).map(|()| RunEnd::Returned)
    })
    .await
}
