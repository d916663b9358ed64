//! The contract of the registry.

use std::collections::BTreeMap;
use std::time::Instant;

use bongsu_coordination::registry::{About, Fleet, JoinError, Records, Standing};
use bongsu_testkit::wait;

use crate::hub::{Engine, Hub, LEASE, PATIENCE, Shared, about, id};

pub(crate) async fn who_joins_is_alive<E: Engine>(mut engine: E) {
    let hub = engine.hub().await;
    let registry = hub.registry();
    assert!(registry.holds());
    let Fleet { alive, seen_at, .. } = registry.fleet().borrow().clone();
    assert_eq!(alive.len(), 1);
    assert_eq!(alive[0].id, registry.me());
    let about = about(alive[0].about.records.clone());
    assert_eq!(alive[0].about, about);
    let joined_at = alive[0].joined_at;
    assert_eq!(registry.fleet().borrow().standing, Standing::Alive { joined_at });
    registry.join().await.unwrap();
    let again = registry.fleet().borrow().clone();
    assert_eq!(again.alive, alive, "joining again changes nothing");
    assert!(seen_at >= joined_at && again.seen_at >= seen_at);
}

pub(crate) async fn those_who_join_see_each_other_and_who_leaves_is_gone<E: Shared>(mut engine: E) {
    let [one, two, three] = [engine.hub().await, engine.hub().await, engine.hub().await];
    for hub in [&one, &two, &three] {
        hub.sees(&[&one, &two, &three]).await;
    }
    let gone = two.id().to_owned();
    two.stop().await;
    // At once: its lease would have lasted on.
    one.join().await;
    assert!(!one.alive().contains(&gone));
    for hub in [&one, &three] {
        hub.sees(&[&one, &three]).await;
    }
}

pub(crate) async fn who_is_killed_is_gone_when_its_lease_ends<E: Shared>(mut engine: E) {
    let [one, two] = [engine.hub().await, engine.hub().await];
    let before_it_joined = Instant::now();
    let three = engine.hub().await;
    for hub in [&one, &two] {
        hub.sees(&[&one, &two, &three]).await;
    }
    let told = [&one, &two].map(|hub| {
        let mut fleet = hub.registry().fleet();
        let before = fleet.borrow_and_update().clone();
        (fleet, before)
    });
    let killed = three.id().to_owned();
    three.kill();
    one.join().await;
    // Unless this test itself was held up for longer than that.
    let lasts_on = one.alive().contains(&killed);
    assert!(lasts_on || before_it_joined.elapsed() >= LEASE, "its lease lasts on");
    for (mut fleet, before) in told {
        let ended = fleet.wait_for(|fleet| fleet.ended_since(&before).count() > 0);
        let fleet = tokio::time::timeout(PATIENCE, ended).await.unwrap().unwrap();
        assert_eq!(fleet.ended_since(&before).map(|ended| &ended.id).collect::<Vec<_>>(), [&killed]);
    }
    assert!(one.registry().holds());
}

pub(crate) async fn who_stood_still_knows_that_it_was_given_up<E: Shared>(mut engine: E) {
    let [one, two] = [engine.hub().await, engine.hub().await];
    one.sees(&[&one, &two]).await;
    let registry = two.registry().clone();
    let before = one.registry().fleet().borrow().clone();
    let joined_at = |hub: &Hub| {
        let fleet = hub.registry().fleet().borrow().clone();
        fleet.alive.iter().find(|instance| instance.id == two.id()).map(|instance| instance.joined_at)
    };
    let first = joined_at(&one);
    two.island().pause(LEASE * 2);
    // While it stands, and without anybody telling it.
    wait::until(PATIENCE, || async { !registry.holds() }).await;
    wait::until(PATIENCE, || async { joined_at(&one).is_none() }).await;
    wait::until(PATIENCE, || async { registry.holds() }).await;
    let again = joined_at(&two);
    assert_ne!(again, first);
    wait::until(PATIENCE, || async { joined_at(&one) == again }).await;
    let now = one.registry().fleet().borrow().clone();
    let ended: Vec<_> = now.ended_since(&before).map(|ended| ended.id.as_str()).collect();
    assert_eq!(ended, [two.id()], "who missed the moment can still tell");
}

pub(crate) async fn records_decide_who_may_join<E: Shared>(mut engine: E) {
    let shared = |database: &str| Records::Shared(id(database));
    for (first, second, allowed) in [
        (Records::Off, Records::Off, true),
        (shared("a"), shared("a"), true),
        (shared("a"), shared("b"), false),
        (Records::Off, shared("a"), false),
        (Records::Own, Records::Off, false),
        (shared("a"), Records::Own, false),
        (Records::Own, Records::Own, false),
    ] {
        let what = format!("{first:?} and {second:?}");
        let one = engine.hub_with(first).await;
        one.join().await;
        let two = engine.hub_with(second).await;
        let joined = two.registry().join().await;
        if allowed {
            assert_eq!(joined, Ok(()), "{what}");
            assert!(two.registry().holds());
        } else {
            let Err(JoinError::Refused(refused)) = joined else { panic!("{what} went together") };
            assert_eq!(refused.other.id, one.id());
            let told = refused.to_string();
            assert!(told.contains(one.id()) && told.contains("hub.test:8083"), "{told}");
            assert!(!two.registry().holds());
            assert!(matches!(two.registry().fleet().borrow().standing, Standing::Refused(_)));
            one.join().await;
            assert_eq!(one.alive(), [one.id()], "{what}");
        }
        two.stop().await;
        one.stop().await;
    }
}

pub(crate) async fn required_settings_decide_who_may_join<E: Shared>(mut engine: E) {
    let one = engine.hub_with(Records::Off).await;
    one.join().await;
    let with = |settings: &[(&str, &str)]| {
        let named = settings.iter().map(|(name, value)| (String::from(*name), String::from(*value)));
        About { required_settings: named.collect(), ..about(Records::Off) }
    };
    let two = engine.hub_as(&with(&[("MODE", "registered")])).await;
    let Err(JoinError::Refused(refused)) = two.registry().join().await else { panic!("it joined") };
    let told = refused.to_string();
    for part in [one.id(), "hub.test:8083", "MODE=open", "MODE=registered"] {
        assert!(told.contains(part), "{part:?} is not in {told:?}");
    }
    assert!(!two.registry().holds());
    two.stop().await;
    // What the other one does not name is nothing to differ in, and what is only hashed keeps nobody out.
    let hashes = Some(BTreeMap::from([("KEY".to_owned(), "fedcba9876543210".to_owned())]));
    let others = [
        with(&[("MODE", "open"), ("LATER", "1")]),
        with(&[]),
        About { setting_hashes: hashes, ..about(Records::Off) },
    ];
    for about in others {
        let other = engine.hub_as(&about).await;
        other.join().await;
        let alive = one_sees(&one, &other).await;
        assert_eq!(alive, about, "what it says of itself");
        other.stop().await;
    }
}

/// What one hub sees of another one that is alive.
async fn one_sees(one: &Hub, other: &Hub) -> About {
    one.join().await;
    let alive = one.registry().fleet().borrow().alive.clone();
    alive.into_iter().find(|instance| instance.id == other.id()).unwrap().about
}

pub(crate) async fn of_many_with_records_of_their_own_one_joins<E: Shared>(mut engine: E) {
    let mut hubs = Vec::new();
    for _ in 0..4 {
        hubs.push(engine.hub_with(Records::Own).await);
    }
    let joins: Vec<_> = hubs
        .iter()
        .map(|hub| {
            let registry = hub.registry().clone();
            hub.island().run(async move { registry.join().await.is_ok() })
        })
        .collect();
    let mut joined = 0;
    for join in joins {
        joined += usize::from(join.await);
    }
    assert_eq!(joined, 1);
    assert_eq!(hubs.iter().filter(|hub| hub.registry().holds()).count(), 1);
}

pub(crate) async fn the_place_of_one_that_was_killed_is_free_after_its_lease<E: Shared>(mut engine: E) {
    let one = engine.hub_with(Records::Own).await;
    let before_it_joined = Instant::now();
    one.join().await;
    let two = engine.hub_with(Records::Own).await;
    assert!(two.registry().join().await.is_err());
    one.kill();
    // Unless this test itself was held up for longer than that.
    let lasts_on = two.registry().join().await.is_err();
    assert!(lasts_on || before_it_joined.elapsed() >= LEASE, "its lease lasts on");
    // It goes on trying by itself.
    wait::until(PATIENCE, || async { two.registry().holds() }).await;
    assert_eq!(two.alive(), [two.id()]);
}
