//! The contract of the instance registry.

use std::collections::BTreeMap;
use std::time::Instant;

use bongsu_coordination::registry::{Fleet, InstanceInfo, JoinError, LeaseState, RecordsLocation};
use bongsu_testkit::wait;

use crate::hub::{Engine, FleetEngine, Hub, LEASE_TTL, WAIT_TIMEOUT, id, instance_info};

pub(crate) async fn a_joined_instance_is_alive<E: Engine>(mut engine: E) {
    let hub = engine.hub().await;
    let registry = hub.registry();
    assert!(registry.is_lease_held());
    let Fleet { alive, seen_at, .. } = registry.fleet().borrow().clone();
    assert_eq!(alive.len(), 1);
    assert_eq!(alive[0].id, registry.instance_id());
    let info = instance_info(alive[0].info.records.clone());
    assert_eq!(alive[0].info, info);
    let joined_at = alive[0].joined_at;
    assert_eq!(registry.fleet().borrow().lease_state, LeaseState::Alive { joined_at });
    registry.join().await.unwrap();
    let again = registry.fleet().borrow().clone();
    assert_eq!(again.alive, alive, "joining again changes nothing");
    assert!(seen_at >= joined_at && again.seen_at >= seen_at);
}

pub(crate) async fn joined_instances_see_each_other_until_they_stop<E: FleetEngine>(mut engine: E) {
    let [one, two, three] = [engine.hub().await, engine.hub().await, engine.hub().await];
    for hub in [&one, &two, &three] {
        hub.wait_until_alive(&[&one, &two, &three]).await;
    }
    let stopped = two.id().to_owned();
    two.stop().await;
    // Without a wait: a stopping instance removes its lease before the lease ends.
    one.join().await;
    assert!(!one.alive().contains(&stopped));
    for hub in [&one, &three] {
        hub.wait_until_alive(&[&one, &three]).await;
    }
}

pub(crate) async fn a_killed_instance_is_removed_when_its_lease_ends<E: FleetEngine>(mut engine: E) {
    let [one, two] = [engine.hub().await, engine.hub().await];
    let before_join = Instant::now();
    let three = engine.hub().await;
    for hub in [&one, &two] {
        hub.wait_until_alive(&[&one, &two, &three]).await;
    }
    let watched = [&one, &two].map(|hub| {
        let mut fleet = hub.registry().fleet();
        let before = fleet.borrow_and_update().clone();
        (fleet, before)
    });
    let killed = three.id().to_owned();
    three.kill();
    one.join().await;
    // Without the second condition the test would fail if the machine delayed it for longer than the lease.
    let is_alive = one.alive().contains(&killed);
    assert!(is_alive || before_join.elapsed() >= LEASE_TTL, "the lease ended early");
    for (mut fleet, before) in watched {
        let ended = fleet.wait_for(|fleet| fleet.ended_since(&before).count() > 0);
        let fleet = tokio::time::timeout(WAIT_TIMEOUT, ended).await.unwrap().unwrap();
        assert_eq!(fleet.ended_since(&before).map(|ended| &ended.id).collect::<Vec<_>>(), [&killed]);
    }
    assert!(one.registry().is_lease_held());
}

pub(crate) async fn a_suspended_instance_notices_that_its_lease_has_ended<E: FleetEngine>(mut engine: E) {
    let [one, two] = [engine.hub().await, engine.hub().await];
    one.wait_until_alive(&[&one, &two]).await;
    let registry = two.registry().clone();
    let before = one.registry().fleet().borrow().clone();
    let joined_at = |hub: &Hub| {
        let fleet = hub.registry().fleet().borrow().clone();
        fleet.alive.iter().find(|instance| instance.id == two.id()).map(|instance| instance.joined_at)
    };
    let first = joined_at(&one);
    two.runtime().pause(LEASE_TTL * 2);
    // The suspended instance sees by its own clock that its lease has ended, without a message from Redis.
    wait::until(WAIT_TIMEOUT, || async { !registry.is_lease_held() }).await;
    wait::until(WAIT_TIMEOUT, || async { joined_at(&one).is_none() }).await;
    wait::until(WAIT_TIMEOUT, || async { registry.is_lease_held() }).await;
    let again = joined_at(&two);
    assert_ne!(again, first);
    wait::until(WAIT_TIMEOUT, || async { joined_at(&one) == again }).await;
    let now = one.registry().fleet().borrow().clone();
    let ended: Vec<_> = now.ended_since(&before).map(|ended| ended.id.as_str()).collect();
    assert_eq!(
        ended,
        [two.id()],
        "a comparison with an old view also finds the instance that left and joined again"
    );
}

pub(crate) async fn an_instance_with_other_records_is_refused<E: FleetEngine>(mut engine: E) {
    let shared = |database: &str| RecordsLocation::Shared(id(database));
    for (first, second, allowed) in [
        (RecordsLocation::Off, RecordsLocation::Off, true),
        (shared("a"), shared("a"), true),
        (shared("a"), shared("b"), false),
        (RecordsLocation::Off, shared("a"), false),
        (RecordsLocation::Own, RecordsLocation::Off, false),
        (shared("a"), RecordsLocation::Own, false),
        (RecordsLocation::Own, RecordsLocation::Own, false),
    ] {
        let case = format!("{first:?} and {second:?}");
        let one = engine.hub_with_records(first).await;
        one.join().await;
        let two = engine.hub_with_records(second).await;
        let joined = two.registry().join().await;
        if allowed {
            assert_eq!(joined, Ok(()), "{case}");
            assert!(two.registry().is_lease_held());
        } else {
            let Err(JoinError::Refused(refused)) = joined else { panic!("the second of {case} joined") };
            assert_eq!(refused.other.id, one.id());
            let message = refused.to_string();
            assert!(message.contains(one.id()) && message.contains("hub.test:8083"), "{message}");
            assert!(!two.registry().is_lease_held());
            assert!(matches!(two.registry().fleet().borrow().lease_state, LeaseState::Refused(_)));
            one.join().await;
            assert_eq!(one.alive(), [one.id()], "{case}");
        }
        two.stop().await;
        one.stop().await;
    }
}

pub(crate) async fn an_instance_with_other_required_settings_is_refused<E: FleetEngine>(mut engine: E) {
    let one = engine.hub_with_records(RecordsLocation::Off).await;
    one.join().await;
    let with_settings = |settings: &[(&str, &str)]| {
        let named = settings.iter().map(|(name, value)| (String::from(*name), String::from(*value)));
        InstanceInfo { required_settings: named.collect(), ..instance_info(RecordsLocation::Off) }
    };
    let two = engine.hub_with_info(&with_settings(&[("MODE", "registered")])).await;
    let Err(JoinError::Refused(refused)) = two.registry().join().await else {
        panic!("the second instance joined")
    };
    let message = refused.to_string();
    for part in [one.id(), "hub.test:8083", "MODE=open", "MODE=registered"] {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    assert!(!two.registry().is_lease_held());
    two.stop().await;
    // A setting that only one instance names is not compared, and different hashes do not refuse an instance.
    let hashes = Some(BTreeMap::from([("KEY".to_owned(), "fedcba9876543210".to_owned())]));
    let others = [
        with_settings(&[("MODE", "open"), ("LATER", "1")]),
        with_settings(&[]),
        InstanceInfo { setting_hashes: hashes, ..instance_info(RecordsLocation::Off) },
    ];
    for info in others {
        let other = engine.hub_with_info(&info).await;
        other.join().await;
        let seen = seen_info(&one, &other).await;
        assert_eq!(seen, info);
        other.stop().await;
    }
}

/// The info of another instance, as `hub` reads it from the registry.
async fn seen_info(hub: &Hub, other: &Hub) -> InstanceInfo {
    hub.join().await;
    let alive = hub.registry().fleet().borrow().alive.clone();
    alive.into_iter().find(|instance| instance.id == other.id()).unwrap().info
}

pub(crate) async fn one_of_many_instances_with_their_own_records_joins<E: FleetEngine>(mut engine: E) {
    let mut hubs = Vec::new();
    for _ in 0..4 {
        hubs.push(engine.hub_with_records(RecordsLocation::Own).await);
    }
    let joins: Vec<_> = hubs
        .iter()
        .map(|hub| {
            let registry = hub.registry().clone();
            hub.runtime().run(async move { registry.join().await.is_ok() })
        })
        .collect();
    let mut joined = 0;
    for join in joins {
        joined += usize::from(join.await);
    }
    assert_eq!(joined, 1);
    assert_eq!(hubs.iter().filter(|hub| hub.registry().is_lease_held()).count(), 1);
}

pub(crate) async fn another_instance_can_join_after_the_lease_of_a_killed_one_ends<E: FleetEngine>(
    mut engine: E,
) {
    let one = engine.hub_with_records(RecordsLocation::Own).await;
    let before_join = Instant::now();
    one.join().await;
    let two = engine.hub_with_records(RecordsLocation::Own).await;
    assert!(two.registry().join().await.is_err());
    one.kill();
    // Without the second condition the test would fail if the machine delayed it for longer than the lease.
    let is_refused = two.registry().join().await.is_err();
    assert!(is_refused || before_join.elapsed() >= LEASE_TTL, "the lease ended early");
    // The registry keeps retrying in the background.
    wait::until(WAIT_TIMEOUT, || async { two.registry().is_lease_held() }).await;
    assert_eq!(two.alive(), [two.id()]);
}
