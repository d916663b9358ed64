//! Changes that bypass the hub: a membership removed without a `system.removed` row still closes its streams, and
//! operators see when rows get stuck.

use bongsu_testkit::sql::Flavour;
use bongsu_testkit::{Api, Hub, wait};
use serde_json::Value;

use super::fleet::{FLEET_TIMEOUT, Fleet};
use super::{open, rows, stream_request};

const EVENT_ID: &str = "42";

/// Removes a membership without firing a trigger, and checks that only its stream is closed.
async fn expect_stream_closed_without_a_removal_row(flavour: Option<Flavour>) {
    let Some(fleet) = Fleet::start(flavour).await else { return };
    fleet.accept(EVENT_ID, &[7, 8]);
    fleet.accept("43", &[7]);
    let hub = &fleet.hubs[0];
    let mut gone = open(stream_request(hub, EVENT_ID, 7)).await;
    let mut stay = [open(stream_request(hub, EVENT_ID, 8)).await, open(stream_request(hub, "43", 7)).await];
    fleet.sql(match flavour {
        None => "DROP TRIGGER bongsu_membership_deleted; DELETE FROM memberships WHERE event_id = '42' AND user_id = '7'",
        Some(Flavour::Postgres) => {
            "ALTER TABLE memberships DISABLE TRIGGER ALL; DELETE FROM memberships WHERE event_id = '42' AND user_id = '7'"
        }
        Some(Flavour::MariaDb) => {
            "TRUNCATE memberships; INSERT INTO memberships VALUES ('42', '8', 'ACCEPTED'), ('43', '7', 'ACCEPTED')"
        }
    });
    // Two consecutive checks must miss the membership before the stream is closed.
    let close = gone.expect_event("system.close", FLEET_TIMEOUT * 2).await;
    assert_eq!(close.json()["code"], 3501, "{}", fleet.name());
    fleet.sql(&rows(EVENT_ID, [1]));
    fleet.sql(&rows("43", [2]));
    for stream in &mut stay {
        assert_eq!(stream.next_event(FLEET_TIMEOUT).await.expect("an open stream").event, "message");
    }
}

#[tokio::test]
async fn a_membership_removed_without_a_row_closes_the_stream() {
    let (postgres, mariadb) = (Some(Flavour::Postgres), Some(Flavour::MariaDb));
    // All databases concurrently: each run takes about a minute, most of which is waiting.
    tokio::join!(
        expect_stream_closed_without_a_removal_row(None),
        expect_stream_closed_without_a_removal_row(postgres),
        expect_stream_closed_without_a_removal_row(mariadb),
    );
}

/// How many processes of a hub cannot read rows: a worker also runs a tail, which wakes the relay.
async fn failing(hub: &Hub) -> f64 {
    hub.metrics().await.get("outbox_failing", &[("part", "tail")])
}

async fn degraded(hub: &Hub) -> Value {
    Api::at(&hub.url("")).get("/health").await.expect(200).result()["degraded"].clone()
}

/// Renames a column so that the hubs cannot read rows, and renames it back.
async fn rows_that_are_stuck_are_reported_in_health_and_continue_later(flavour: Option<Flavour>) {
    let Some(fleet) = Fleet::start(flavour).await else { return };
    fleet.accept(EVENT_ID, &[7]);
    let hub = &fleet.hubs[0];
    let mut stream = open(stream_request(hub, EVENT_ID, 7)).await;
    fleet.sql("ALTER TABLE outbox_events RENAME COLUMN position TO place");
    for hub in &fleet.hubs {
        wait::until(FLEET_TIMEOUT, async || degraded(hub).await.to_string().contains("outbox")).await;
        let processes = if hub.worker().is_some() { 2.0 } else { 1.0 };
        wait::until(FLEET_TIMEOUT, async || failing(hub).await == processes).await;
    }
    fleet.sql("ALTER TABLE outbox_events RENAME COLUMN place TO position");
    fleet.sql(&rows(EVENT_ID, [1]));
    assert_eq!(stream.next_event(FLEET_TIMEOUT).await.expect("an open stream").event, "message");
    for hub in &fleet.hubs {
        wait::until(FLEET_TIMEOUT, async || degraded(hub).await.as_array().is_some_and(Vec::is_empty)).await;
        wait::until(FLEET_TIMEOUT, async || failing(hub).await == 0.0).await;
    }
}

#[tokio::test]
async fn rows_that_are_stuck_are_reported_in_health_and_continue_later_on_postgres() {
    rows_that_are_stuck_are_reported_in_health_and_continue_later(Some(Flavour::Postgres)).await;
}

#[tokio::test]
async fn rows_that_are_stuck_are_reported_in_health_and_continue_later_on_mariadb() {
    rows_that_are_stuck_are_reported_in_health_and_continue_later(Some(Flavour::MariaDb)).await;
}

#[tokio::test]
async fn rows_that_are_stuck_are_reported_in_health_and_continue_later_in_the_embedded_file() {
    rows_that_are_stuck_are_reported_in_health_and_continue_later(None).await;
}
