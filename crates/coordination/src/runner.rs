//! One runner in the fleet: a named loop that runs on exactly one instance at a time.
//!
//! The instance that has the loop's lock runs it, and renews the lock meanwhile. When it cannot be renewed (the
//! engine is away, the process stood still, somebody took the lock) the work is dropped where it waits, and another
//! instance takes over. What it was just writing at that moment may still happen. Embedded there is nobody else, so the
//! work runs always.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use bongsu_kernel::task::{OnEnd, Supervisor};
use bongsu_kernel::{Id, Invalid, random};
use tokio_util::sync::CancellationToken;

use crate::Locks;
use crate::lock::{Acquired, Grant};

/// How long an instance waits at least before it tries again: a lock of a few milliseconds is no reason to hammer.
const LEAST_PAUSE: Duration = Duration::from_millis(50);

/// Runs `work` on this instance whenever it is its turn, until shutdown.
///
/// `work` is a loop: it goes on until it is dropped, which may happen wherever it waits. When it returns, the turn
/// ends, and the next one begins a moment later, here or elsewhere. A write of the last turn may arrive after the next one
/// has begun, so every write is idempotent, or serialised by a lock of the database.
pub fn start<F>(
    locks: Arc<dyn Locks>,
    name: &'static str,
    supervisor: &Supervisor,
    work: impl Fn() -> F + Send + Sync + 'static,
) -> Result<(), Invalid>
where
    F: Future<Output = ()> + Send + 'static,
{
    let lock = Id::new(&format!("runner:{name}")).map_err(|reason| Invalid::new(name, reason))?;
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

/// How a turn ended.
#[derive(PartialEq)]
enum Ended {
    Returned,
    Lost,
    Stopped,
}

impl Runner {
    async fn run<F: Future<Output = ()>>(&self, work: &(impl Fn() -> F + Sync)) {
        let mut troubled = false;
        while !self.stop.is_cancelled() {
            let acquired = self.locks.acquire(&self.lock).await;
            let was_troubled = std::mem::replace(&mut troubled, acquired.is_err());
            let pause = match acquired {
                Ok(Acquired::Granted(grant)) => {
                    self.turn(grant, work).await;
                    Duration::ZERO
                }
                Ok(Acquired::Taken(ends)) => ends.unwrap_or(Duration::MAX),
                Err(error) => {
                    if !was_troubled {
                        tracing::warn!(runner = self.name, %error, "whose turn it is cannot be found out");
                    }
                    self.locks.ttl() / 30
                }
            };
            self.pause(pause).await;
        }
    }

    /// Not longer than a third of a lease: who leaves in order releases before its lease ends.
    async fn pause(&self, wanted: Duration) {
        let longest = self.locks.ttl() / 3;
        let spread = Duration::from_millis(random::between(0, 50));
        let pause = wanted.min(longest).max(LEAST_PAUSE) + spread;
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }

    async fn turn<F: Future<Output = ()>>(&self, mut grant: Grant, work: &(impl Fn() -> F + Sync)) {
        tracing::info!(runner = self.name, "runs here");
        let until = Mutex::new(grant.until());
        let ended = tokio::select! {
            biased;
            () = self.stop.cancelled() => Ended::Stopped,
            () = self.keep(&mut grant, &until) => Ended::Lost,
            () = end_of(&until) => Ended::Lost,
            ended = while_held(work(), &until) => ended,
        };
        if ended == Ended::Lost {
            tracing::warn!(runner = self.name, "does not run here any more: its lease was lost");
        } else {
            // What does not arrive ends with the lease.
            let _ = self.locks.release(&grant).await;
        }
    }

    /// Renews the lock until it cannot be renewed any more.
    async fn keep(&self, grant: &mut Grant, until: &Mutex<Instant>) {
        let third = self.locks.ttl() / 3;
        let mut pause = third;
        loop {
            tokio::time::sleep(pause).await;
            pause = match self.locks.renew(grant).await {
                Ok(true) => {
                    *until.lock().unwrap_or_else(PoisonError::into_inner) = grant.until();
                    third
                }
                Ok(false) => return,
                // As long as the lease lasts there is time to try.
                Err(_) => third / 10,
            };
        }
    }
}

/// Waits for the end of the lease, which moves while it is renewed.
async fn end_of(until: &Mutex<Instant>) {
    loop {
        let ends = *until.lock().unwrap_or_else(PoisonError::into_inner);
        if ends <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(ends.into()).await;
    }
}

/// Takes no step of the work after the lease has ended, also when the process stood still and nobody noticed yet.
async fn while_held(work: impl Future<Output = ()>, until: &Mutex<Instant>) -> Ended {
    let mut work = pin!(work);
    poll_fn(|context| {
        if *until.lock().unwrap_or_else(PoisonError::into_inner) <= Instant::now() {
            return Poll::Ready(Ended::Lost);
        }
        work.as_mut().poll(context).map(|()| Ended::Returned)
    })
    .await
}
