//! What happens when Redis is killed, stands still or forgets, and when the way to it is cut.

use std::sync::Arc;
use std::time::Duration;

use bongsu_coordination::Locks;
use bongsu_coordination::lock::Acquired;
use bongsu_coordination::lock::redis::RedisLocks;
use bongsu_coordination::registry::{Records, Standing};
use bongsu_testkit::proxy::Direction;
use bongsu_testkit::redis::Cluster;
use bongsu_testkit::{Proxy, Redis, tier, wait};

use crate::hub::{Hub, PATIENCE, id, kick, revoke};
use crate::orders_contract::some_orders;
use crate::runner_contract::{Diary, run, run_quietly};

/// A Redis, one hub on it, and another one behind a proxy. None where there is no Redis.
async fn redis_with_hubs() -> Option<(Redis, Hub, Proxy, Hub)> {
    if !tier::needs_engine("redis") {
        return None;
    }
    let redis = Redis::start().await;
    let proxy = Proxy::start(redis.addr()).await;
    let near = Hub::start(&redis.url(), "", Records::Off).await;
    let far = Hub::start(&format!("redis://{}", proxy.addr()), "", Records::Off).await;
    for hub in [&near, &far] {
        hub.join().await;
        hub.is_current().await;
    }
    Some((redis, near, proxy, far))
}

async fn becomes_uncertain(hub: &Hub) {
    wait::until(PATIENCE, || async { !hub.coordination.orders.is_current() }).await;
}

/// Catches up as soon as that is possible.
async fn catches_up(hub: &Hub) {
    wait::until(PATIENCE, || async { hub.coordination.orders.catch_up().await.is_ok() }).await;
}

#[tokio::test]
async fn orders_that_were_given_while_the_bus_was_cut_are_applied_before_catch_up_returns() {
    let Some((_redis, near, proxy, far)) = redis_with_hubs().await else { return };
    assert_eq!(far.revoked("anna").await, None);
    proxy.cut();
    becomes_uncertain(&far).await;
    // More than are read at once.
    let orders = [some_orders(300), vec![revoke("anna", 100)]].concat();
    for order in &orders {
        near.give(order.clone()).await;
    }
    assert!(far.coordination.orders.catch_up().await.is_err(), "Redis cannot be asked");
    assert!(
        far.coordination.orders.revoked_before(&id("anna")).await.is_err(),
        "nor whether that still holds"
    );
    assert!(!far.coordination.orders.is_current());
    assert_eq!(far.applied.orders(), []);
    proxy.heal();
    catches_up(&far).await;
    assert_eq!(far.applied.orders(), orders, "all of them, when it returned");
    assert_eq!(far.revoked("anna").await, Some(100));
    far.is_current().await;
    assert_eq!((far.applied.orders().len(), far.applied.missed()), (301, 1));
}

#[tokio::test]
async fn a_hub_that_was_away_for_longer_than_the_feed_holds_is_told_that_it_missed_something() {
    let Some((redis, near, proxy, far)) = redis_with_hubs().await else { return };
    near.give(kick("before")).await;
    far.applied.comes_to(&[kick("before")]).await;
    proxy.cut();
    near.give(revoke("anna", 100)).await;
    near.give(kick("ben")).await;
    redis.command(&["XTRIM", "{orders}:feed", "MAXLEN", "1"]).await.accepted();
    proxy.heal();
    catches_up(&far).await;
    assert_eq!((far.applied.orders(), far.applied.missed()), (vec![kick("before")], 2));
    assert_eq!(far.revoked("anna").await, Some(100));
    near.give(kick("cho")).await;
    far.applied.comes_to(&[kick("before"), kick("cho")]).await;
    assert_eq!(near.applied.missed(), 1);
}

#[tokio::test]
async fn an_order_whose_message_was_lost_in_silence_is_found() {
    let Some((_redis, near, proxy, far)) = redis_with_hubs().await else { return };
    assert_eq!(far.revoked("anna").await, None);
    proxy.drop_next_message(b"revoke anna");
    near.give(revoke("anna", 100)).await;
    // Without another message that would show the gap.
    far.applied.comes_to(&[revoke("anna", 100)]).await;
    wait::until(PATIENCE, || async { proxy.dropped() == 1 }).await;
    assert_eq!(far.revoked("anna").await, Some(100));
    proxy.drop_next_message(b"disconnect ben");
    near.give(kick("ben")).await;
    near.give(kick("cho")).await;
    far.applied.comes_to(&[revoke("anna", 100), kick("ben"), kick("cho")]).await;
}

#[tokio::test]
async fn while_only_the_bus_is_down_nobody_is_current_but_catching_up_works() {
    let Some((redis, near, _proxy, _far)) = redis_with_hubs().await else { return };
    let allow = async |channels: &str| {
        redis.command(&["ACL", "SETUSER", "deaf", "on", ">word", "~*", "+@all", channels]).await.accepted();
    };
    allow("allchannels").await;
    let url = redis.url().replace("redis://", "redis://deaf:word@");
    let deaf = Hub::start(&url, "", Records::Off).await;
    deaf.is_current().await;
    // Its subscriptions are ended, and new ones refused; all else goes on.
    allow("resetchannels").await;
    becomes_uncertain(&deaf).await;
    for n in 1..20 {
        near.give(revoke("anna", n)).await;
        deaf.catch_up().await;
        assert_eq!(deaf.revoked("anna").await, Some(n));
        assert!(!deaf.coordination.orders.is_current());
    }
    allow("allchannels").await;
    deaf.is_current().await;
    assert_eq!((deaf.applied.orders().len(), deaf.applied.missed()), (19, 1));
}

#[tokio::test]
async fn a_hub_on_a_dead_wire_is_not_current() {
    let Some((_redis, near, proxy, far)) = redis_with_hubs().await else { return };
    // Nothing closes: only silence.
    proxy.stall(Direction::ToClient);
    becomes_uncertain(&far).await;
    near.give(kick("anna")).await;
    assert!(far.coordination.orders.catch_up().await.is_err());
    proxy.heal();
    catches_up(&far).await;
    assert_eq!(far.applied.orders(), [kick("anna")]);
    far.is_current().await;
}

#[tokio::test]
async fn a_redis_that_was_killed_loses_no_order_no_lock_and_no_instance_for_good() {
    let Some((redis, near, _proxy, far)) = redis_with_hubs().await else { return };
    let own = near.process.as_ref().unwrap().redis.clone();
    let locks: Arc<dyn Locks> = Arc::new(RedisLocks::new(own, Duration::from_secs(600)));
    let Acquired::Granted(mut grant) = locks.acquire(&id("42")).await.unwrap() else { panic!("it is free") };
    near.give(revoke("anna", 100)).await;
    redis.kill9().await;
    becomes_uncertain(&near).await;
    assert!(near.coordination.orders.give(kick("ben")).await.is_err());
    assert!(locks.acquire(&id("43")).await.is_err());
    redis.restart().await;
    catches_up(&far).await;
    assert_eq!(far.applied.orders(), [revoke("anna", 100)]);
    wait::until(PATIENCE, || async { near.coordination.locks.acquire(&id("44")).await.is_ok() }).await;
    assert_eq!(locks.renew(&mut grant).await, Ok(true));
    assert!(matches!(far.coordination.locks.acquire(&id("42")).await, Ok(Acquired::Taken(_))));
    for hub in [&near, &far] {
        hub.sees(&[&near, &far]).await;
        hub.is_current().await;
    }
    near.give(kick("cho")).await;
    for hub in [&near, &far] {
        hub.applied.comes_to(&[revoke("anna", 100), kick("cho")]).await;
        assert_eq!(hub.applied.missed(), 1, "only before its first look");
    }
}

#[tokio::test]
async fn while_redis_stands_still_nobody_runs_and_everybody_counts_as_lost() {
    let Some((redis, near, _proxy, far)) = redis_with_hubs().await else { return };
    let diary = Arc::new(Diary::default());
    for (who, hub) in [&near, &far].into_iter().enumerate() {
        run(hub, who, &diary);
    }
    let (_, turn) = diary.runs_on().await;
    let quiet = Arc::new(Diary::default());
    run_quietly(&near, &quiet);
    wait::until(PATIENCE, || async { quiet.running() == 1 }).await;
    redis.pause();
    wait::until(PATIENCE, || async { diary.running() == 0 && quiet.running() == 0 }).await;
    for hub in [&near, &far] {
        let registry = hub.registry();
        wait::until(PATIENCE, || async { registry.fleet().borrow().standing == Standing::Lost }).await;
        assert!(!registry.holds());
        assert!(!hub.coordination.orders.is_current());
    }
    redis.resume();
    assert!(diary.runs_on().await.1 > turn);
    assert!(diary.was_in_order());
    for hub in [&near, &far] {
        wait::until(PATIENCE, || async { hub.registry().holds() }).await;
        hub.sees(&[&near, &far]).await;
        hub.is_current().await;
    }
}

#[tokio::test]
async fn a_redis_that_lost_everything_is_noticed_by_all() {
    let Some((redis, near, _proxy, far)) = redis_with_hubs().await else { return };
    near.give(revoke("anna", 100)).await;
    for hub in [&near, &far] {
        hub.applied.comes_to(&[revoke("anna", 100)]).await;
        assert_eq!(hub.revoked("ben").await, None);
    }
    let joined = near.registry().fleet().borrow().alive.clone();
    redis.command(&["FLUSHALL"]).await.accepted();
    redis.command(&["SET", "{orders}:revoked:ben", "200"]).await.accepted();
    for hub in [&near, &far] {
        wait::until(PATIENCE, || async { hub.applied.missed() == 2 }).await;
        assert_eq!(hub.revoked("anna").await, Some(100), "what it knew itself");
        assert_eq!(hub.revoked("ben").await, Some(200), "that there was none is no longer believed");
    }
    for hub in [&near, &far] {
        hub.is_current().await;
    }
    near.give(kick("cho")).await;
    for hub in [&near, &far] {
        wait::until(PATIENCE, || async { hub.applied.orders().last() == Some(&kick("cho")) }).await;
        // What was written back may have been applied a second time.
        let mut applied = hub.applied.orders();
        applied.dedup();
        assert_eq!(applied, [revoke("anna", 100), kick("cho")]);
        let again = || hub.registry().fleet().borrow().alive.clone();
        wait::until(PATIENCE, || async {
            again().len() == 2 && again().iter().all(|instance| !joined.contains(instance))
        })
        .await;
    }
}

#[tokio::test]
async fn revocations_that_redis_has_lost_are_written_back_by_those_who_remember_them() {
    let Some((redis, near, proxy, far)) = redis_with_hubs().await else { return };
    // Only the one that gives it knows it: the other one has missed it, and Redis loses it before it is back.
    proxy.cut();
    near.give(revoke("anna", 100)).await;
    near.applied.comes_to(&[revoke("anna", 100)]).await;
    // More than are asked about at once.
    let many = tier::size(600, 20_000) as u64;
    for n in 0..many {
        near.give(revoke(&format!("user{n}"), n + 1)).await;
    }
    redis.command(&["FLUSHALL"]).await.accepted();
    proxy.heal();
    let users = [0, many / 2, many - 1].map(|n| (format!("user{n}"), n + 1));
    let known: Vec<_> = users.into_iter().chain([("anna".to_owned(), 100)]).collect();
    let is_back = async |user: &str| redis.command(&["EXISTS", &format!("{{orders}}:revoked:{user}")]).await;
    // The second time nothing but what was written back is lost.
    for round in 0..2 {
        for (user, _) in &known {
            wait::until(PATIENCE, || async { is_back(user).await.integer() == 1 }).await;
        }
        let new = Hub::start(&redis.url(), "", Records::Off).await;
        for hub in [&near, &far, &new] {
            hub.is_current().await;
            for (user, before) in &known {
                assert_eq!(hub.revoked(user).await, Some(*before), "{user} in round {round}");
            }
            assert_eq!(hub.revoked("ben").await, None);
        }
        new.stop().await;
        redis.command(&["FLUSHALL"]).await.accepted();
    }
}

#[tokio::test]
async fn orders_go_on_while_their_slot_moves() {
    if !tier::needs_engine("redis") {
        return;
    }
    let cluster = Cluster::start().await;
    let hubs = [
        Hub::start(&cluster.url(), "", Records::Off).await,
        Hub::start(&cluster.url(), "", Records::Off).await,
    ];
    for hub in &hubs {
        hub.is_current().await;
    }
    let slot = Cluster::slot_of("{orders}:feed");
    let to = (cluster.node_of(slot).await + 1) % 3;
    let mut given = vec![kick("before")];
    hubs[0].give(kick("before")).await;
    let mut migration = cluster.start_migration(slot, to).await;
    migration.move_keys(1).await;
    given.push(kick("meanwhile"));
    wait::until(PATIENCE, || async { hubs[1].coordination.orders.give(kick("meanwhile")).await.is_ok() })
        .await;
    let mut moves = 0..1_000;
    while migration.move_keys(100).await > 0 {
        assert!(moves.next().is_some(), "the keys of slot {slot} have no end");
    }
    migration.finish().await;
    given.push(revoke("after", 5));
    wait::until(PATIENCE, || async { hubs[0].coordination.orders.give(revoke("after", 5)).await.is_ok() })
        .await;
    for hub in &hubs {
        catches_up(hub).await;
        assert_eq!(hub.applied.orders(), given);
        hub.is_current().await;
        assert_eq!((hub.revoked("after").await, hub.applied.missed()), (Some(5), 1));
    }
}
