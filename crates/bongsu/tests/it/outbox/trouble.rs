//! What other programs do behind the hub's back: a right that is taken without a word ends streams all the same, and who
//! looks after the hub sees when rows get stuck.

use bongsu_testkit::sql::Flavour;
use bongsu_testkit::{Api, Hub, wait};
use serde_json::Value;

use super::fleet::{Fleet, LONG};
use super::{follow, open, rows};

const EVENT: &str = "42";

/// Takes a right so that no trigger says so.
async fn a_right_that_is_taken_without_a_word_ends(flavour: Option<Flavour>) {
    let Some(fleet) = Fleet::start(flavour).await else { return };
    fleet.accept(EVENT, &[7, 8]);
    fleet.accept("43", &[7]);
    let hub = &fleet.hubs[0];
    let mut gone = open(follow(hub, EVENT, 7)).await;
    let mut stay = [open(follow(hub, EVENT, 8)).await, open(follow(hub, "43", 7)).await];
    fleet.sql(match flavour {
        None => "DROP TRIGGER bongsu_membership_deleted; DELETE FROM memberships WHERE event_id = '42' AND user_id = '7'",
        Some(Flavour::Postgres) => {
            "ALTER TABLE memberships DISABLE TRIGGER ALL; DELETE FROM memberships WHERE event_id = '42' AND user_id = '7'"
        }
        Some(Flavour::MariaDb) => {
            "TRUNCATE memberships; INSERT INTO memberships VALUES ('42', '8', 'ACCEPTED'), ('43', '7', 'ACCEPTED')"
        }
    });
    // Two looks, of which the first says nothing yet.
    let close = gone.expect_event("system.close", LONG * 2).await;
    assert_eq!(close.json()["code"], 3501, "{}", fleet.name());
    fleet.sql(&rows(EVENT, [1]));
    fleet.sql(&rows("43", [2]));
    for stream in &mut stay {
        assert_eq!(stream.next_event(LONG).await.expect("it goes on").event, "message");
    }
}

#[tokio::test]
async fn a_right_that_is_taken_without_a_word_ends_as_well() {
    let (postgres, mariadb) = (Some(Flavour::Postgres), Some(Flavour::MariaDb));
    // At the same time: each takes about a minute, most of which is waiting.
    tokio::join!(
        a_right_that_is_taken_without_a_word_ends(None),
        a_right_that_is_taken_without_a_word_ends(postgres),
        a_right_that_is_taken_without_a_word_ends(mariadb),
    );
}

/// How many processes of a hub cannot read on: a worker has a tail as well, which wakes those who relay.
async fn failing(hub: &Hub) -> f64 {
    hub.metrics().await.get("outbox_failing", &[("part", "tail")])
}

async fn degraded(hub: &Hub) -> Value {
    Api::at(&hub.url("")).get("/health").await.expect(200).result()["degraded"].clone()
}

/// Somebody changes the table so that nothing goes on, and changes it back.
async fn rows_that_get_stuck_show_in_health_and_go_on(flavour: Option<Flavour>) {
    let Some(fleet) = Fleet::start(flavour).await else { return };
    fleet.accept(EVENT, &[7]);
    let hub = &fleet.hubs[0];
    let mut stream = open(follow(hub, EVENT, 7)).await;
    fleet.sql("ALTER TABLE outbox_events RENAME COLUMN position TO place");
    for hub in &fleet.hubs {
        wait::until(LONG, async || degraded(hub).await.to_string().contains("outbox")).await;
        let processes = if hub.worker().is_some() { 2.0 } else { 1.0 };
        wait::until(LONG, async || failing(hub).await == processes).await;
    }
    fleet.sql("ALTER TABLE outbox_events RENAME COLUMN place TO position");
    fleet.sql(&rows(EVENT, [1]));
    assert_eq!(stream.next_event(LONG).await.expect("it goes on").event, "message");
    for hub in &fleet.hubs {
        wait::until(LONG, async || degraded(hub).await.as_array().is_some_and(Vec::is_empty)).await;
        wait::until(LONG, async || failing(hub).await == 0.0).await;
    }
}

#[tokio::test]
async fn rows_that_get_stuck_show_in_health_and_go_on_on_postgres() {
    rows_that_get_stuck_show_in_health_and_go_on(Some(Flavour::Postgres)).await;
}

#[tokio::test]
async fn rows_that_get_stuck_show_in_health_and_go_on_on_mariadb() {
    rows_that_get_stuck_show_in_health_and_go_on(Some(Flavour::MariaDb)).await;
}

#[tokio::test]
async fn rows_that_get_stuck_show_in_health_and_go_on_in_the_embedded_file() {
    rows_that_get_stuck_show_in_health_and_go_on(None).await;
}
