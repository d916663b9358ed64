//! The contract of orders.

use bongsu_coordination::Order;
use tokio::task::JoinSet;

use crate::hub::{Engine, Shared, kick, revoke};

pub(crate) fn some_orders(count: u64) -> Vec<Order> {
    (0..count)
        .map(|n| if n % 3 == 0 { revoke(&format!("user{n}"), n + 1) } else { kick(&format!("user{n}")) })
        .collect()
}

pub(crate) async fn orders_are_applied_once_and_in_order<E: Engine>(mut engine: E) {
    let hub = engine.hub().await;
    hub.is_current().await;
    let orders = some_orders(60);
    for order in &orders {
        hub.give(order.clone()).await;
    }
    hub.applied.comes_to(&orders).await;
    for _ in 0..3 {
        hub.catch_up().await;
    }
    assert_eq!(hub.applied.orders(), orders);
}

pub(crate) async fn what_was_given_is_applied_when_catch_up_returns<E: Engine>(mut engine: E) {
    let hubs = [engine.hub().await, engine.hub().await];
    for hub in &hubs {
        hub.catch_up().await;
    }
    for (n, order) in some_orders(40).into_iter().enumerate() {
        hubs[n % 2].give(order.clone()).await;
        let other = &hubs[(n + 1) % 2];
        other.catch_up().await;
        assert_eq!(other.applied.orders().last(), Some(&order), "order {n}");
    }
}

pub(crate) async fn many_catch_up_at_once_and_each_has_what_was_given_before<E: Engine>(mut engine: E) {
    let hubs = [engine.hub().await, engine.hub().await];
    hubs[1].catch_up().await;
    let mut many = JoinSet::new();
    for (n, order) in some_orders(60).into_iter().enumerate() {
        let [giving, applying] = hubs.each_ref().map(|hub| hub.coordination.orders.clone());
        let applied = hubs[1].applied.clone();
        many.spawn(async move {
            giving.give(order.clone()).await.unwrap();
            applying.catch_up().await.unwrap();
            assert!(applied.orders().contains(&order), "order {n}");
        });
    }
    while let Some(outcome) = many.join_next().await {
        outcome.unwrap();
    }
    assert_eq!(hubs[1].applied.orders().len(), 60);
}

pub(crate) async fn a_revocation_is_known_and_never_falls_back<E: Engine>(mut engine: E) {
    let hubs = [engine.hub().await, engine.hub().await];
    for hub in &hubs {
        assert_eq!(hub.revoked("anna").await, None);
    }
    for (given, before) in [(100, 100), (300, 300), (200, 300)] {
        hubs[0].give(revoke("anna", given)).await;
        hubs[0].give(kick("ben")).await;
        for hub in &hubs {
            hub.catch_up().await;
            assert_eq!(hub.revoked("anna").await, Some(before));
            assert_eq!(hub.revoked("ben").await, None, "a kick leaves tokens alone");
            hub.is_current().await;
            assert_eq!(hub.revoked("anna").await, Some(before));
            assert_eq!(hub.revoked("ben").await, None);
        }
    }
}

pub(crate) async fn a_revocation_outlasts_a_kill<E: Engine>(mut engine: E) {
    let hub = engine.hub().await;
    for before in [100, 300, 200] {
        hub.give(revoke("anna", before)).await;
    }
    hub.give(kick("ben")).await;
    engine.kill(vec![hub]).await;
    let hub = engine.hub().await;
    assert_eq!(hub.revoked("anna").await, Some(300));
    assert_eq!(hub.revoked("ben").await, None);
    hub.catch_up().await;
    assert_eq!(hub.applied.orders(), [], "nobody here has had anything open then");
}

pub(crate) async fn every_hub_applies_the_same_orders<E: Shared>(mut engine: E) {
    let hubs = [engine.hub().await, engine.hub().await, engine.hub().await];
    for hub in &hubs {
        hub.is_current().await;
    }
    // Given by all at once: somebody's order is the first, and it is so for all.
    let orders = some_orders(60);
    let given = orders.iter().enumerate().map(|(n, order)| {
        let (of, order) = (hubs[n % 3].coordination.orders.clone(), order.clone());
        hubs[n % 3].island().run(async move { of.give(order).await.unwrap() })
    });
    for given in given.collect::<Vec<_>>() {
        given.await;
    }
    for hub in &hubs {
        hub.catch_up().await;
    }
    let applied = hubs[0].applied.orders();
    assert_eq!(applied.len(), 60);
    for hub in &hubs {
        assert_eq!(hub.applied.orders(), applied);
        assert_eq!(hub.applied.missed(), 1, "before its first look, and never after");
    }
    assert!(orders.iter().all(|order| applied.contains(order)));
}

pub(crate) async fn a_new_hub_knows_revocations_and_applies_what_comes<E: Shared>(mut engine: E) {
    let old = engine.hub().await;
    old.give(revoke("anna", 100)).await;
    let new = engine.hub().await;
    new.is_current().await;
    assert_eq!(new.revoked("anna").await, Some(100));
    assert_eq!(new.revoked("ben").await, None);
    assert_eq!(new.applied.orders(), []);
    old.give(revoke("ben", 200)).await;
    new.applied.comes_to(&[revoke("ben", 200)]).await;
    assert_eq!(new.revoked("ben").await, Some(200), "also when it was known that there was none");
}
