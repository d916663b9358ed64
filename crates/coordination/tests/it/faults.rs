//! Coordination while Redis is killed, suspended or emptied, and while the connection to it is cut.

use std::sync::Arc;
use std::time::Duration;

use bongsu_coordination::Locks;
use bongsu_coordination::lock::AcquireOutcome;
use bongsu_coordination::lock::redis::RedisLocks;
use bongsu_coordination::registry::{LeaseState, RecordsLocation};
use bongsu_testkit::proxy::Direction;
use bongsu_testkit::redis::Cluster;
use bongsu_testkit::{Proxy, Redis, tier, wait};

use crate::access_command_contract::sample_commands;
use crate::hub::{Hub, WAIT_TIMEOUT, disconnect, id, revoke};
use crate::runner_contract::{RunHistory, run, run_pending};

/// A Redis, a hub `near` with a direct connection, and a hub `far` behind a proxy. None if Redis is not available in
/// this run.
async fn redis_with_hubs() -> Option<(Redis, Hub, Proxy, Hub)> {
    if !tier::needs_engine("redis") {
        return None;
    }
    let redis = Redis::start().await;
    let proxy = Proxy::start(redis.addr()).await;
    let near = Hub::start(&redis.url(), "", RecordsLocation::Off).await;
    let far = Hub::start(&format!("redis://{}", proxy.addr()), "", RecordsLocation::Off).await;
    for hub in [&near, &far] {
        hub.join().await;
        hub.wait_until_current().await;
    }
    Some((redis, near, proxy, far))
}

async fn wait_until_not_current(hub: &Hub) {
    wait::until(WAIT_TIMEOUT, || async { !hub.coordination.access_commands.is_current() }).await;
}

/// Retries until the hub has caught up.
async fn wait_until_caught_up(hub: &Hub) {
    wait::until(WAIT_TIMEOUT, || async { hub.coordination.access_commands.catch_up().await.is_ok() }).await;
}

#[tokio::test]
async fn commands_issued_while_the_bus_is_cut_are_applied_before_catch_up_returns() {
    let Some((_redis, near, proxy, far)) = redis_with_hubs().await else { return };
    assert_eq!(far.revoked("anna").await, None);
    proxy.cut();
    wait_until_not_current(&far).await;
    // `near` issues more commands than one read returns.
    let commands = [sample_commands(300), vec![revoke("anna", 100)]].concat();
    for command in &commands {
        near.issue(command.clone()).await;
    }
    assert!(far.coordination.access_commands.catch_up().await.is_err(), "Redis is unreachable");
    assert!(
        far.coordination.access_commands.revoked_before(&id("anna")).await.is_err(),
        "a cached answer is not used without Redis"
    );
    assert!(!far.coordination.access_commands.is_current());
    assert_eq!(far.recorder.commands(), []);
    proxy.heal();
    wait_until_caught_up(&far).await;
    assert_eq!(far.recorder.commands(), commands, "all commands are applied when catch_up returns");
    assert_eq!(far.revoked("anna").await, Some(100));
    far.wait_until_current().await;
    assert_eq!((far.recorder.commands().len(), far.recorder.missed_count()), (301, 1));
}

#[tokio::test]
async fn an_instance_that_is_behind_the_trimmed_feed_reports_missed_commands() {
    let Some((redis, near, proxy, far)) = redis_with_hubs().await else { return };
    near.issue(disconnect("before")).await;
    far.recorder.wait_for_commands(&[disconnect("before")]).await;
    proxy.cut();
    near.issue(revoke("anna", 100)).await;
    near.issue(disconnect("ben")).await;
    redis.command(&["XTRIM", "{orders}:feed", "MAXLEN", "1"]).await.expect_ok();
    proxy.heal();
    wait_until_caught_up(&far).await;
    assert_eq!((far.recorder.commands(), far.recorder.missed_count()), (vec![disconnect("before")], 2));
    assert_eq!(far.revoked("anna").await, Some(100));
    near.issue(disconnect("cho")).await;
    far.recorder.wait_for_commands(&[disconnect("before"), disconnect("cho")]).await;
    assert_eq!(near.recorder.missed_count(), 1);
}

#[tokio::test]
async fn a_command_whose_message_is_lost_is_found() {
    let Some((_redis, near, proxy, far)) = redis_with_hubs().await else { return };
    assert_eq!(far.revoked("anna").await, None);
    proxy.drop_next_message(b"revoke anna");
    near.issue(revoke("anna", 100)).await;
    // No later message shows the gap.
    far.recorder.wait_for_commands(&[revoke("anna", 100)]).await;
    wait::until(WAIT_TIMEOUT, || async { proxy.dropped_messages() == 1 }).await;
    assert_eq!(far.revoked("anna").await, Some(100));
    proxy.drop_next_message(b"disconnect ben");
    near.issue(disconnect("ben")).await;
    near.issue(disconnect("cho")).await;
    far.recorder.wait_for_commands(&[revoke("anna", 100), disconnect("ben"), disconnect("cho")]).await;
}

#[tokio::test]
async fn without_the_bus_an_instance_is_not_current_but_can_catch_up() {
    let Some((redis, near, _proxy, _far)) = redis_with_hubs().await else { return };
    let allow = async |channels: &str| {
        redis.command(&["ACL", "SETUSER", "deaf", "on", ">word", "~*", "+@all", channels]).await.expect_ok();
    };
    allow("allchannels").await;
    let url = redis.url().replace("redis://", "redis://deaf:word@");
    let deaf = Hub::start(&url, "", RecordsLocation::Off).await;
    deaf.wait_until_current().await;
    // Redis ends the subscriptions of this user and refuses new ones; all other commands work.
    allow("resetchannels").await;
    wait_until_not_current(&deaf).await;
    for n in 1..20 {
        near.issue(revoke("anna", n)).await;
        deaf.catch_up().await;
        assert_eq!(deaf.revoked("anna").await, Some(n));
        assert!(!deaf.coordination.access_commands.is_current());
    }
    allow("allchannels").await;
    deaf.wait_until_current().await;
    assert_eq!((deaf.recorder.commands().len(), deaf.recorder.missed_count()), (19, 1));
}

#[tokio::test]
async fn an_instance_with_a_stalled_connection_is_not_current() {
    let Some((_redis, near, proxy, far)) = redis_with_hubs().await else { return };
    // The connection stays open, but delivers no bytes.
    proxy.stall(Direction::ToClient);
    wait_until_not_current(&far).await;
    near.issue(disconnect("anna")).await;
    assert!(far.coordination.access_commands.catch_up().await.is_err());
    proxy.heal();
    wait_until_caught_up(&far).await;
    assert_eq!(far.recorder.commands(), [disconnect("anna")]);
    far.wait_until_current().await;
}

#[tokio::test]
async fn a_restarted_redis_has_lost_no_command_lock_or_instance() {
    let Some((redis, near, _proxy, far)) = redis_with_hubs().await else { return };
    let client = near.process.as_ref().unwrap().redis.clone();
    let locks: Arc<dyn Locks> = Arc::new(RedisLocks::new(client, Duration::from_secs(600)));
    let AcquireOutcome::Acquired(mut lease) = locks.acquire(&id("42")).await.unwrap() else {
        panic!("the lock is not free")
    };
    near.issue(revoke("anna", 100)).await;
    redis.kill9().await;
    wait_until_not_current(&near).await;
    assert!(near.coordination.access_commands.issue(disconnect("ben")).await.is_err());
    assert!(locks.acquire(&id("43")).await.is_err());
    redis.restart().await;
    wait_until_caught_up(&far).await;
    assert_eq!(far.recorder.commands(), [revoke("anna", 100)]);
    wait::until(WAIT_TIMEOUT, || async { near.coordination.locks.acquire(&id("44")).await.is_ok() }).await;
    assert_eq!(locks.renew(&mut lease).await, Ok(true));
    assert!(matches!(far.coordination.locks.acquire(&id("42")).await, Ok(AcquireOutcome::Taken(_))));
    for hub in [&near, &far] {
        hub.wait_until_alive(&[&near, &far]).await;
        hub.wait_until_current().await;
    }
    near.issue(disconnect("cho")).await;
    for hub in [&near, &far] {
        hub.recorder.wait_for_commands(&[revoke("anna", 100), disconnect("cho")]).await;
        assert_eq!(hub.recorder.missed_count(), 1, "only once at start");
    }
}

#[tokio::test]
async fn while_redis_is_suspended_no_loop_runs_and_every_lease_is_lost() {
    let Some((redis, near, _proxy, far)) = redis_with_hubs().await else { return };
    let history = Arc::new(RunHistory::default());
    for (index, hub) in [&near, &far].into_iter().enumerate() {
        run(hub, index, &history);
    }
    let (_, run_before) = history.wait_for_next_step().await;
    let pending = Arc::new(RunHistory::default());
    run_pending(&near, &pending);
    wait::until(WAIT_TIMEOUT, || async { pending.running() == 1 }).await;
    redis.pause();
    wait::until(WAIT_TIMEOUT, || async { history.running() == 0 && pending.running() == 0 }).await;
    for hub in [&near, &far] {
        let registry = hub.registry();
        wait::until(WAIT_TIMEOUT, || async { registry.fleet().borrow().lease_state == LeaseState::Lost })
            .await;
        assert!(!registry.is_lease_held());
        assert!(!hub.coordination.access_commands.is_current());
    }
    redis.resume();
    assert!(history.wait_for_next_step().await.1 > run_before);
    assert!(history.is_in_order());
    for hub in [&near, &far] {
        wait::until(WAIT_TIMEOUT, || async { hub.registry().is_lease_held() }).await;
        hub.wait_until_alive(&[&near, &far]).await;
        hub.wait_until_current().await;
    }
}

#[tokio::test]
async fn every_instance_notices_that_redis_lost_its_data() {
    let Some((redis, near, _proxy, far)) = redis_with_hubs().await else { return };
    near.issue(revoke("anna", 100)).await;
    for hub in [&near, &far] {
        hub.recorder.wait_for_commands(&[revoke("anna", 100)]).await;
        assert_eq!(hub.revoked("ben").await, None);
    }
    let joined = near.registry().fleet().borrow().alive.clone();
    redis.command(&["FLUSHALL"]).await.expect_ok();
    redis.command(&["SET", "{orders}:revoked:ben", "200"]).await.expect_ok();
    for hub in [&near, &far] {
        wait::until(WAIT_TIMEOUT, || async { hub.recorder.missed_count() == 2 }).await;
        assert_eq!(hub.revoked("anna").await, Some(100), "the instance remembers it");
        assert_eq!(hub.revoked("ben").await, Some(200), "the cached absence of a revocation is dropped");
    }
    for hub in [&near, &far] {
        hub.wait_until_current().await;
    }
    near.issue(disconnect("cho")).await;
    for hub in [&near, &far] {
        wait::until(WAIT_TIMEOUT, || async { hub.recorder.commands().last() == Some(&disconnect("cho")) })
            .await;
        // A restored revocation may be applied a second time.
        let mut applied = hub.recorder.commands();
        applied.dedup();
        assert_eq!(applied, [revoke("anna", 100), disconnect("cho")]);
        let alive = || hub.registry().fleet().borrow().alive.clone();
        wait::until(WAIT_TIMEOUT, || async {
            alive().len() == 2 && alive().iter().all(|instance| !joined.contains(instance))
        })
        .await;
    }
}

#[tokio::test]
async fn revocations_that_redis_lost_are_restored_from_the_memory_of_instances() {
    let Some((redis, near, proxy, far)) = redis_with_hubs().await else { return };
    // Only `near` knows the revocation: `far` missed its message, and Redis loses it before `far` is connected again.
    proxy.cut();
    near.issue(revoke("anna", 100)).await;
    near.recorder.wait_for_commands(&[revoke("anna", 100)]).await;
    // `near` issues more revocations than one batch restores.
    let many = tier::size(600, 20_000) as u64;
    for n in 0..many {
        near.issue(revoke(&format!("user{n}"), n + 1)).await;
    }
    redis.command(&["FLUSHALL"]).await.expect_ok();
    proxy.heal();
    let users = [0, many / 2, many - 1].map(|n| (format!("user{n}"), n + 1));
    let known: Vec<_> = users.into_iter().chain([("anna".to_owned(), 100)]).collect();
    let exists = async |user: &str| redis.command(&["EXISTS", &format!("{{orders}}:revoked:{user}")]).await;
    // In the second round Redis loses only the restored revocations.
    for round in 0..2 {
        for (user, _) in &known {
            wait::until(WAIT_TIMEOUT, || async { exists(user).await.integer() == 1 }).await;
        }
        let new = Hub::start(&redis.url(), "", RecordsLocation::Off).await;
        for hub in [&near, &far, &new] {
            hub.wait_until_current().await;
            for (user, before) in &known {
                assert_eq!(hub.revoked(user).await, Some(*before), "{user} in round {round}");
            }
            assert_eq!(hub.revoked("ben").await, None);
        }
        new.stop().await;
        redis.command(&["FLUSHALL"]).await.expect_ok();
    }
}

#[tokio::test]
async fn commands_continue_while_their_slot_migrates() {
    if !tier::needs_engine("redis") {
        return;
    }
    let cluster = Cluster::start().await;
    let hubs = [
        Hub::start(&cluster.url(), "", RecordsLocation::Off).await,
        Hub::start(&cluster.url(), "", RecordsLocation::Off).await,
    ];
    for hub in &hubs {
        hub.wait_until_current().await;
    }
    let slot = Cluster::slot_of("{orders}:feed");
    let to = (cluster.node_of(slot).await + 1) % 3;
    let mut issued = vec![disconnect("before")];
    hubs[0].issue(disconnect("before")).await;
    let mut migration = cluster.start_migration(slot, to).await;
    migration.move_keys(1).await;
    issued.push(disconnect("meanwhile"));
    wait::until(WAIT_TIMEOUT, || async {
        hubs[1].coordination.access_commands.issue(disconnect("meanwhile")).await.is_ok()
    })
    .await;
    let mut moves = 0..1_000;
    while migration.move_keys(100).await > 0 {
        assert!(moves.next().is_some(), "the migration of slot {slot} does not finish");
    }
    migration.finish().await;
    issued.push(revoke("after", 5));
    wait::until(WAIT_TIMEOUT, || async {
        hubs[0].coordination.access_commands.issue(revoke("after", 5)).await.is_ok()
    })
    .await;
    for hub in &hubs {
        wait_until_caught_up(hub).await;
        assert_eq!(hub.recorder.commands(), issued);
        hub.wait_until_current().await;
        assert_eq!((hub.revoked("after").await, hub.recorder.missed_count()), (Some(5), 1));
    }
}
