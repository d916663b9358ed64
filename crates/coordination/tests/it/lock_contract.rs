//! The contract of locks.

use std::sync::Arc;

use bongsu_coordination::Locks;
use bongsu_coordination::lock::{AcquireOutcome, LockLease};
use bongsu_testkit::wait;
use tokio::task::JoinSet;

use crate::hub::{Engine, LEASE_TTL, WAIT_TIMEOUT, id};

/// The lock clients of two hubs.
async fn locks<E: Engine>(engine: &mut E) -> ([Arc<dyn Locks>; 2], [crate::hub::Hub; 2]) {
    let hubs = [engine.hub().await, engine.hub().await];
    (hubs.each_ref().map(|hub| hub.coordination.locks.clone()), hubs)
}

async fn acquire(locks: &Arc<dyn Locks>, event: &str) -> LockLease {
    match locks.acquire(&id(event)).await.unwrap() {
        AcquireOutcome::Acquired(lease) => lease,
        AcquireOutcome::Taken(remaining) => panic!("{event} is taken for {remaining:?}"),
    }
}

async fn is_taken(locks: &Arc<dyn Locks>, event: &str) -> bool {
    match locks.acquire(&id(event)).await.unwrap() {
        AcquireOutcome::Acquired(_) => false,
        AcquireOutcome::Taken(remaining) => {
            assert!(remaining.is_some_and(|remaining| remaining <= LEASE_TTL), "{remaining:?}");
            true
        }
    }
}

pub(crate) async fn a_lock_has_one_owner<E: Engine>(mut engine: E) {
    let ([one, two], _hubs) = locks(&mut engine).await;
    let lease = acquire(&one, "42").await;
    assert!(lease.is_held());
    assert!(is_taken(&one, "42").await);
    assert!(is_taken(&two, "42").await);
    let other = acquire(&two, "43").await;
    assert!(other.is_held());
}

pub(crate) async fn a_released_lock_can_be_acquired<E: Engine>(mut engine: E) {
    let ([one, two], _hubs) = locks(&mut engine).await;
    let mut lease = acquire(&one, "42").await;
    assert!(one.release(&lease).await.unwrap());
    let next = acquire(&two, "42").await;
    // The former owner can neither renew nor release the lock.
    assert!(!one.renew(&mut lease).await.unwrap());
    assert!(!one.release(&lease).await.unwrap());
    assert!(is_taken(&one, "42").await);
    assert!(two.release(&next).await.unwrap());
}

pub(crate) async fn an_expired_lock_can_be_acquired_and_its_former_owner_cannot_renew_or_release_it<
    E: Engine,
>(
    mut engine: E,
) {
    let ([one, two], _hubs) = locks(&mut engine).await;
    let mut lease = acquire(&one, "42").await;
    wait::until(WAIT_TIMEOUT, || async { !is_taken(&two, "42").await }).await;
    assert!(!lease.is_held(), "the owner sees its lease end no later than others do");
    assert!(!one.renew(&mut lease).await.unwrap());
    assert!(!one.release(&lease).await.unwrap());
    assert!(!lease.is_held());
    assert!(is_taken(&one, "42").await, "the next owner's lock is still there");
}

pub(crate) async fn a_renewed_lock_does_not_expire<E: Engine>(mut engine: E) {
    let ([one, two], _hubs) = locks(&mut engine).await;
    let (mut lease, not_renewed) = (acquire(&one, "42").await, acquire(&one, "43").await);
    // Renews until the other lock has expired.
    let deadline = std::time::Instant::now() + WAIT_TIMEOUT;
    while !matches!(two.acquire(&id("43")).await.unwrap(), AcquireOutcome::Acquired(_)) {
        assert!(std::time::Instant::now() < deadline, "a lock that is not renewed does not expire");
        assert!(one.renew(&mut lease).await.unwrap());
        assert!(is_taken(&two, "42").await);
        // Time between two renewals.
        tokio::time::sleep(LEASE_TTL / 12).await;
    }
    assert!(lease.is_held() && !not_renewed.is_held());
}

pub(crate) async fn one_of_many_concurrent_requests_acquires_the_lock<E: Engine>(mut engine: E) {
    let (locks, _hubs) = locks(&mut engine).await;
    for round in 0..5 {
        let event = format!("event{round}");
        let mut requests = JoinSet::new();
        for n in 0..20 {
            let (locks, event) = (locks[n % 2].clone(), id(&event));
            requests.spawn(async move {
                matches!(locks.acquire(&event).await.unwrap(), AcquireOutcome::Acquired(_))
            });
        }
        let acquired_count = requests.join_all().await.into_iter().filter(|acquired| *acquired).count();
        assert_eq!(acquired_count, 1, "in round {round}");
    }
}
