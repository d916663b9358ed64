//! The contract of locks.

use std::sync::Arc;

use bongsu_coordination::Locks;
use bongsu_coordination::lock::{Acquired, Grant};
use bongsu_testkit::wait;
use tokio::task::JoinSet;

use crate::hub::{Engine, LEASE, PATIENCE, id};

/// The locks of two hubs.
async fn locks<E: Engine>(engine: &mut E) -> ([Arc<dyn Locks>; 2], [crate::hub::Hub; 2]) {
    let hubs = [engine.hub().await, engine.hub().await];
    (hubs.each_ref().map(|hub| hub.coordination.locks.clone()), hubs)
}

async fn granted(locks: &Arc<dyn Locks>, event: &str) -> Grant {
    match locks.acquire(&id(event)).await.unwrap() {
        Acquired::Granted(grant) => grant,
        Acquired::Taken(ends) => panic!("{event} is taken for {ends:?}"),
    }
}

async fn is_taken(locks: &Arc<dyn Locks>, event: &str) -> bool {
    match locks.acquire(&id(event)).await.unwrap() {
        Acquired::Granted(_) => false,
        Acquired::Taken(ends) => {
            assert!(ends.is_some_and(|ends| ends <= LEASE), "{ends:?}");
            true
        }
    }
}

pub(crate) async fn a_lock_has_one_owner<E: Engine>(mut engine: E) {
    let ([one, two], _hubs) = locks(&mut engine).await;
    let grant = granted(&one, "42").await;
    assert!(grant.is_held());
    assert!(is_taken(&one, "42").await);
    assert!(is_taken(&two, "42").await);
    let other = granted(&two, "43").await;
    assert!(other.is_held());
}

pub(crate) async fn a_lock_that_was_released_is_free<E: Engine>(mut engine: E) {
    let ([one, two], _hubs) = locks(&mut engine).await;
    let mut grant = granted(&one, "42").await;
    assert!(one.release(&grant).await.unwrap());
    let next = granted(&two, "42").await;
    // The first owner has nothing to say any more.
    assert!(!one.renew(&mut grant).await.unwrap());
    assert!(!one.release(&grant).await.unwrap());
    assert!(is_taken(&one, "42").await);
    assert!(two.release(&next).await.unwrap());
}

pub(crate) async fn a_lock_ends_by_itself_and_its_late_owner_cannot_touch_it<E: Engine>(mut engine: E) {
    let ([one, two], _hubs) = locks(&mut engine).await;
    let mut grant = granted(&one, "42").await;
    wait::until(PATIENCE, || async { !is_taken(&two, "42").await }).await;
    assert!(!grant.is_held(), "no later than for the others");
    assert!(!one.renew(&mut grant).await.unwrap());
    assert!(!one.release(&grant).await.unwrap());
    assert!(!grant.is_held());
    assert!(is_taken(&one, "42").await, "the next owner's lock is still there");
}

pub(crate) async fn a_lock_that_is_renewed_lasts<E: Engine>(mut engine: E) {
    let ([one, two], _hubs) = locks(&mut engine).await;
    let (mut grant, brief) = (granted(&one, "42").await, granted(&one, "43").await);
    // For as long as it takes the other one to end.
    let deadline = std::time::Instant::now() + PATIENCE;
    while !matches!(two.acquire(&id("43")).await.unwrap(), Acquired::Granted(_)) {
        assert!(std::time::Instant::now() < deadline, "a lock that nobody renews does not end");
        assert!(one.renew(&mut grant).await.unwrap());
        assert!(is_taken(&two, "42").await);
        // The owner's pause between two renewals.
        tokio::time::sleep(LEASE / 12).await;
    }
    assert!(grant.is_held() && !brief.is_held());
}

pub(crate) async fn of_many_at_once_one_gets_the_lock<E: Engine>(mut engine: E) {
    let (locks, _hubs) = locks(&mut engine).await;
    for round in 0..5 {
        let event = format!("event{round}");
        let mut tries = JoinSet::new();
        for n in 0..20 {
            let (locks, event) = (locks[n % 2].clone(), id(&event));
            tries.spawn(async move { matches!(locks.acquire(&event).await.unwrap(), Acquired::Granted(_)) });
        }
        let granted = tries.join_all().await.into_iter().filter(|granted| *granted).count();
        assert_eq!(granted, 1, "in round {round}");
    }
}
