//! The contract of access commands.

use bongsu_coordination::AccessCommand;
use tokio::task::JoinSet;

use crate::hub::{Engine, FleetEngine, disconnect, revoke};

pub(crate) fn sample_commands(count: u64) -> Vec<AccessCommand> {
    (0..count)
        .map(
            |n| if n % 3 == 0 { revoke(&format!("user{n}"), n + 1) } else { disconnect(&format!("user{n}")) },
        )
        .collect()
}

pub(crate) async fn commands_are_applied_once_and_in_order<E: Engine>(mut engine: E) {
    let hub = engine.hub().await;
    hub.wait_until_current().await;
    let commands = sample_commands(60);
    for command in &commands {
        hub.issue(command.clone()).await;
    }
    hub.recorder.wait_for_commands(&commands).await;
    for _ in 0..3 {
        hub.catch_up().await;
    }
    assert_eq!(hub.recorder.commands(), commands);
}

pub(crate) async fn catch_up_returns_after_all_issued_commands_are_applied<E: Engine>(mut engine: E) {
    let hubs = [engine.hub().await, engine.hub().await];
    for hub in &hubs {
        hub.catch_up().await;
    }
    for (n, command) in sample_commands(40).into_iter().enumerate() {
        hubs[n % 2].issue(command.clone()).await;
        let other = &hubs[(n + 1) % 2];
        other.catch_up().await;
        assert_eq!(other.recorder.commands().last(), Some(&command), "command {n}");
    }
}

pub(crate) async fn concurrent_catch_ups_each_apply_the_commands_issued_before<E: Engine>(mut engine: E) {
    let hubs = [engine.hub().await, engine.hub().await];
    hubs[1].catch_up().await;
    let mut many = JoinSet::new();
    for (n, command) in sample_commands(60).into_iter().enumerate() {
        let [issuing, applying] = hubs.each_ref().map(|hub| hub.coordination.access_commands.clone());
        let recorder = hubs[1].recorder.clone();
        many.spawn(async move {
            issuing.issue(command.clone()).await.unwrap();
            applying.catch_up().await.unwrap();
            assert!(recorder.commands().contains(&command), "command {n}");
        });
    }
    while let Some(outcome) = many.join_next().await {
        outcome.unwrap();
    }
    assert_eq!(hubs[1].recorder.commands().len(), 60);
}

pub(crate) async fn a_revocation_never_moves_to_an_earlier_time<E: Engine>(mut engine: E) {
    let hubs = [engine.hub().await, engine.hub().await];
    for hub in &hubs {
        assert_eq!(hub.revoked("anna").await, None);
    }
    for (issued_before, expected) in [(100, 100), (300, 300), (200, 300)] {
        hubs[0].issue(revoke("anna", issued_before)).await;
        hubs[0].issue(disconnect("ben")).await;
        for hub in &hubs {
            hub.catch_up().await;
            assert_eq!(hub.revoked("anna").await, Some(expected));
            assert_eq!(hub.revoked("ben").await, None, "a disconnect leaves tokens alone");
            hub.wait_until_current().await;
            assert_eq!(hub.revoked("anna").await, Some(expected));
            assert_eq!(hub.revoked("ben").await, None);
        }
    }
}

pub(crate) async fn a_revocation_survives_a_kill<E: Engine>(mut engine: E) {
    let hub = engine.hub().await;
    for issued_before in [100, 300, 200] {
        hub.issue(revoke("anna", issued_before)).await;
    }
    hub.issue(disconnect("ben")).await;
    engine.kill(vec![hub]).await;
    let hub = engine.hub().await;
    assert_eq!(hub.revoked("anna").await, Some(300));
    assert_eq!(hub.revoked("ben").await, None);
    hub.catch_up().await;
    assert_eq!(hub.recorder.commands(), [], "the new process had no streams then");
}

pub(crate) async fn every_instance_applies_the_same_commands<E: FleetEngine>(mut engine: E) {
    let hubs = [engine.hub().await, engine.hub().await, engine.hub().await];
    for hub in &hubs {
        hub.wait_until_current().await;
    }
    // All instances issue concurrently. Any order of the commands is correct, but it is the same for all instances.
    let commands = sample_commands(60);
    let issues = commands.iter().enumerate().map(|(n, command)| {
        let (access_commands, command) = (hubs[n % 3].coordination.access_commands.clone(), command.clone());
        hubs[n % 3].runtime().run(async move { access_commands.issue(command).await.unwrap() })
    });
    for issue in issues.collect::<Vec<_>>() {
        issue.await;
    }
    for hub in &hubs {
        hub.catch_up().await;
    }
    let applied = hubs[0].recorder.commands();
    assert_eq!(applied.len(), 60);
    for hub in &hubs {
        assert_eq!(hub.recorder.commands(), applied);
        assert_eq!(hub.recorder.missed_count(), 1, "once at start, and never after");
    }
    assert!(commands.iter().all(|command| applied.contains(command)));
}

pub(crate) async fn a_new_instance_knows_revocations_and_applies_new_commands<E: FleetEngine>(mut engine: E) {
    let old = engine.hub().await;
    old.issue(revoke("anna", 100)).await;
    let new = engine.hub().await;
    new.wait_until_current().await;
    assert_eq!(new.revoked("anna").await, Some(100));
    assert_eq!(new.revoked("ben").await, None);
    assert_eq!(new.recorder.commands(), []);
    old.issue(revoke("ben", 200)).await;
    new.recorder.wait_for_commands(&[revoke("ben", 200)]).await;
    assert_eq!(new.revoked("ben").await, Some(200), "the cached absence of a revocation is replaced");
}
