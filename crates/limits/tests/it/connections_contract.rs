//! The contract of [`Connections`](bongsu_limits::Connections), tested with every adapter.
//!
//! Properties of both policies are tested with `Refuse`, because its result shows at once whether a connection counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bongsu_kernel::Id;
use bongsu_limits::connections::ConnectionLimitError;
use bongsu_testkit::wait;
use futures_util::future::join_all;
use tokio::task::JoinSet;

use crate::hub::{
    Engine, LEASE, OpenConnection, WAIT_TIMEOUT, assert_oldest_replaced, refuse, replace, two_hubs,
};

pub(crate) async fn refuse_admits_up_to_the_limit<E: Engine>(mut engine: E) {
    let hubs = two_hubs(&mut engine, refuse(5)).await;
    let mut open = Vec::new();
    for n in 0..5 {
        open.push(hubs[n % 2].acquire("anna").await.unwrap());
    }
    for hub in &hubs {
        assert!(hub.is_full("anna").await);
    }
    // A released connection does not count any more, at once on its own instance.
    drop(open.pop());
    let again = hubs[0].acquire("anna").await.unwrap();
    assert!(hubs[1].is_full("anna").await);
    assert!(open.iter().chain([&again]).all(|open| !open.is_replaced()));
}

pub(crate) async fn refuse_admits_a_connection_on_any_instance_after_a_release<E: Engine>(mut engine: E) {
    let [one, two] = two_hubs(&mut engine, refuse(1)).await;
    for _ in 0..10 {
        let open = one.acquire_soon("anna").await;
        assert!(two.is_full("anna").await);
        drop(open);
        let open = two.acquire_soon("anna").await;
        assert!(one.is_full("anna").await);
        drop(open);
    }
}

pub(crate) async fn persons_have_separate_limits<E: Engine>(mut engine: E) {
    let hubs = two_hubs(&mut engine, refuse(1)).await;
    let mut open = Vec::new();
    for n in 0..40 {
        open.push(hubs[n % 2].acquire(&format!("user{n}")).await.unwrap());
    }
    for n in 0..40 {
        assert!(hubs[(n + 1) % 2].is_full(&format!("user{n}")).await, "user{n}");
    }
    drop(open);
    for n in 0..40 {
        drop(hubs[(n + 1) % 2].acquire_soon(&format!("user{n}")).await);
    }
}

pub(crate) async fn refuse_never_admits_more_than_the_limit_concurrently<E: Engine>(mut engine: E) {
    const LIMIT: usize = 5;
    let hubs = two_hubs(&mut engine, refuse(LIMIT)).await;
    let (inside, entered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tries = JoinSet::new();
    for n in 0..50_usize {
        let connections = hubs[n % 2].connections.clone();
        let (inside, entered) = (inside.clone(), entered.clone());
        tries.spawn(async move {
            let anna = Id::new("anna").unwrap();
            for round in 0..20_u64 {
                match connections.acquire(&anna, Box::new(|| panic!("no connection is replaced"))).await {
                    Ok(permit) => {
                        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                        assert!(now <= LIMIT, "{now} connections count");
                        entered.fetch_add(1, Ordering::SeqCst);
                        // The time for which the connection is open; below, the time before the next attempt.
                        tokio::time::sleep(Duration::from_millis(round % 3)).await;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    }
                    Err(ConnectionLimitError::Full) => {
                        tokio::time::sleep(Duration::from_millis(round % 4)).await;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    while let Some(outcome) = tries.join_next().await {
        outcome.unwrap();
    }
    assert!(entered.load(Ordering::SeqCst) >= LIMIT);
    // All connections are released: the limit can be reached again.
    let mut open = Vec::new();
    for n in 0..LIMIT {
        open.push(hubs[n % 2].acquire_soon("anna").await);
    }
    assert!(hubs[0].is_full("anna").await);
}

pub(crate) async fn a_cancelled_acquire_does_not_count<E: Engine>(mut engine: E) {
    let [one, two] = two_hubs(&mut engine, refuse(1)).await;
    for timeout in (0..20).map(|n| Duration::from_micros(n * 100)) {
        drop(tokio::time::timeout(timeout, one.acquire("anna")).await);
        drop(two.acquire_soon("anna").await);
        drop(one.acquire_soon("anna").await);
    }
}

pub(crate) async fn replace_closes_only_the_oldest<E: Engine>(mut engine: E) {
    let hubs = two_hubs(&mut engine, replace(3)).await;
    let mut open = Vec::new();
    for n in 0..6 {
        open.push(hubs[n % 2].acquire("anna").await.unwrap());
        assert_oldest_replaced(&open, open.len().saturating_sub(3)).await;
    }
    let other = hubs[1].acquire("ben").await.unwrap();
    assert_oldest_replaced(&[other], 0).await;
}

pub(crate) async fn replace_keeps_the_limit_of_concurrent_connections<E: Engine>(mut engine: E) {
    let hubs = two_hubs(&mut engine, replace(3)).await;
    let all_at_once = |count: usize| {
        let hubs = &hubs;
        join_all((0..count).map(async |n: usize| hubs[n % 2].acquire("anna").await.unwrap()))
    };
    let replaced = |open: &[OpenConnection]| open.iter().filter(|open| open.is_replaced()).count();
    let ten = all_at_once(10).await;
    wait::until(WAIT_TIMEOUT, || async { replaced(&ten) == 7 }).await;
    let newest = all_at_once(3).await;
    wait::until(WAIT_TIMEOUT, || async { replaced(&ten) == 10 }).await;
    assert_oldest_replaced(&newest, 0).await;
}

pub(crate) async fn replace_does_not_count_released_connections<E: Engine>(mut engine: E) {
    let [one, two] = two_hubs(&mut engine, replace(2)).await;
    let stays = [one.acquire("anna").await.unwrap()];
    for _ in 0..5 {
        // The release counts at once on its own instance, and is reported with the next connection there.
        drop(one.acquire("anna").await.unwrap());
    }
    let newest = one.acquire("anna").await.unwrap();
    assert_oldest_replaced(&stays, 0).await;
    drop(newest);
    let [oldest] = stays;
    let open = [oldest, two.acquire("anna").await.unwrap(), two.acquire("anna").await.unwrap()];
    assert_oldest_replaced(&open, 1).await;
}

pub(crate) async fn instances_may_have_different_limits<E: Engine>(mut engine: E) {
    let [one, two] = [engine.hub(refuse(3)).await, engine.hub(refuse(2)).await];
    let _open = [one.acquire("anna").await.unwrap(), two.acquire("anna").await.unwrap()];
    assert!(two.is_full("anna").await);
    assert!(!one.is_full("anna").await);
}

pub(crate) async fn refuse_counts_a_killed_instance_until_it_has_left_the_fleet<E: Engine>(mut engine: E) {
    let started = Instant::now();
    let [one, two] = two_hubs(&mut engine, refuse(3)).await;
    let [_first, _second] = [one.acquire("anna").await.unwrap(), one.acquire("anna").await.unwrap()];
    let held = two.acquire("anna").await.unwrap();
    one.kill();
    // The lease may have ended only if the test itself was delayed for longer than the lease.
    let is_counted = two.is_full("anna").await;
    assert!(is_counted || started.elapsed() >= LEASE, "the lease of the killed instance has not ended");
    let open = [two.acquire_soon("anna").await, two.acquire_soon("anna").await];
    assert!(two.is_full("anna").await, "the connections of the live instance still count");
    drop((open, held));
}

pub(crate) async fn connections_of_a_killed_instance_replace_no_others<E: Engine>(mut engine: E) {
    let [one, two] = two_hubs(&mut engine, replace(3)).await;
    let mut open = vec![two.acquire("anna").await.unwrap()];
    let _killed = [one.acquire("anna").await.unwrap(), one.acquire("anna").await.unwrap()];
    one.kill();
    // An instance that has reported within 500 ms counts as alive, and the instances are not asked.
    tokio::time::sleep(Duration::from_millis(600)).await;
    open.extend([two.acquire("anna").await.unwrap(), two.acquire("anna").await.unwrap()]);
    assert_oldest_replaced(&open, 0).await;
    open.push(two.acquire("anna").await.unwrap());
    assert_oldest_replaced(&open, 1).await;
}

pub(crate) async fn a_stopping_instance_releases_its_connections_at_once<E: Engine>(mut engine: E) {
    let [one, two] = two_hubs(&mut engine, refuse(1)).await;
    let _open = one.acquire("anna").await.unwrap();
    one.stop().await;
    drop(two.acquire("anna").await.unwrap());
}

pub(crate) async fn connections_count_beyond_one_lease<E: Engine>(mut engine: E) {
    let [one, two] = two_hubs(&mut engine, refuse(1)).await;
    let mut open = Vec::new();
    for n in 0..10 {
        open.push(one.acquire(&format!("user{n}")).await.unwrap());
    }
    // When the connection of a killed instance stops counting, a whole lease has passed.
    let killed = engine.hub(refuse(1)).await;
    let _open = killed.acquire("measure").await.unwrap();
    killed.kill();
    drop(two.acquire_soon("measure").await);
    for n in 0..10 {
        assert!(two.is_full(&format!("user{n}")).await, "user{n}");
    }
}

pub(crate) async fn a_paused_instance_restores_its_connections<E: Engine>(mut engine: E) {
    let [one, two] = two_hubs(&mut engine, refuse(2)).await;
    let _open = one.acquire("anna").await.unwrap();
    let others = [one.acquire("ben").await.unwrap(), one.acquire("ben").await.unwrap()];
    one.runtime().pause(LEASE * 2);
    // The paused instance has left the fleet, so its connections do not count.
    let admitted = [two.acquire_soon("anna").await, two.acquire_soon("anna").await];
    drop(two.acquire_soon("ben").await);
    // The instance is back and restores its connections: no connection is closed, and the limit is exceeded until one
    // is released.
    wait::until(WAIT_TIMEOUT, || async { two.is_full("ben").await }).await;
    drop(admitted);
    wait::until(WAIT_TIMEOUT, || async {
        let admitted = one.acquire("anna").await;
        admitted.is_ok() && two.is_full("anna").await
    })
    .await;
    drop(others);
    drop(two.acquire_soon("ben").await);
}
