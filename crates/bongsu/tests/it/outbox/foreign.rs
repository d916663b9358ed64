//! Tables that belong to another program: the hub uses them under their own names, refuses to start and changes
//! nothing, or runs without the outbox.

use bongsu_testkit::Api;
use bongsu_testkit::sql::Flavour;
use serde_json::json;

use super::explain::explain_with;
use super::{OutboxTest, WAIT_TIMEOUT, numbers, open};

pub(super) async fn tables_of_another_program_are_not_changed(flavour: Option<Flavour>) {
    let off = |builder: bongsu_testkit::hub::Builder| builder.env("OUTBOX", "off");
    let Some(test) = OutboxTest::start_with(flavour, off).await else { return };
    let api = Api::new(&test.hub);
    api.person(7).get("/events/42/stream").await.expect_error(503, "COMMON503");
    let letters = api.admin().get("/api/admin/dlq").await.expect(200);
    let queues = json!([{"queue": "follow-ups", "depth": 0}, {"queue": "notification_queue", "depth": 0}]);
    assert_eq!(letters.result()["queues"], queues, "no queue of the outbox");
    test.hub.kill9().await;
    test.sql("CREATE TABLE memberships (person INTEGER, club INTEGER)").await;
    let (status, output) = test.hub.restart_expecting_failure(&[("OUTBOX", "on")]).await;
    assert!(!status.success());
    assert!(
        output.contains("event_id") || output.contains("status"),
        "the error must name a missing column: {output}"
    );
    test.hub.restart().await;
    test.sql("INSERT INTO memberships VALUES (1, 2)").await;
    // Once the other program's table is gone, the outbox can be switched on; a hub with OUTBOX=off does not use it
    // afterwards.
    test.sql("DROP TABLE memberships").await;
    test.hub.restart_with(&[("OUTBOX", "on")]).await;
    test.accept("42", &[7]).await;
    let mut stream = open(test.stream_request("42", 7)).await;
    test.write("42", [1]).await;
    assert_eq!(numbers(&stream.take_events(1, WAIT_TIMEOUT).await), [1]);
    drop(stream);
    test.hub.restart().await;
    api.person(7).get("/events/42/stream").await.expect_error(503, "COMMON503");
}

pub(super) async fn tables_of_another_program_are_used_under_their_own_names(flavour: Option<Flavour>) {
    let off = |builder: bongsu_testkit::hub::Builder| builder.env("OUTBOX", "off");
    let Some(test) = OutboxTest::start_with(flavour, off).await else { return };
    test.hub.kill9().await;
    // A `memberships` table of another program, and a table under another name that holds the memberships.
    let [text, bytes] = match flavour {
        None => ["TEXT", ""],
        Some(Flavour::Postgres) => ["VARCHAR(64)", ""],
        Some(Flavour::MariaDb) => ["VARCHAR(64)", "CHARACTER SET ascii COLLATE ascii_bin"],
    };
    test.sql("CREATE TABLE memberships (person INTEGER, club INTEGER)").await;
    let columns = ["project", "account", "state"].map(|column| format!("{column} {text} {bytes}")).join(", ");
    test.sql(&format!("CREATE TABLE project_members ({columns}, PRIMARY KEY (project, account))")).await;
    let names = [
        ("OUTBOX", "on"),
        ("OUTBOX_TABLE", "project_events"),
        ("OUTBOX_MEMBERSHIP_TABLE", "project_members"),
        ("OUTBOX_MEMBERSHIP_COLUMNS", "project,account,state"),
    ];
    test.hub.restart_with(&names).await;
    let event = |number: u64| {
        let payload = format!("'{{\"proposal_id\": {number}}}'");
        format!(
            "INSERT INTO project_events (event_type, payload, target_event_id) VALUES ('a.b', {payload}, '42')"
        )
    };
    test.sql("INSERT INTO project_members VALUES ('42', '7', 'ACCEPTED'), ('42', '8', 'ACCEPTED')").await;
    let (mut gone, mut stays) =
        (open(test.stream_request("42", 7)).await, open(test.stream_request("42", 8)).await);
    test.sql(&event(1)).await;
    test.sql("DELETE FROM project_members WHERE account = '7'").await;
    test.sql(&event(2)).await;
    assert_eq!(numbers(&gone.take_events(1, WAIT_TIMEOUT).await), [1]);
    assert_eq!(gone.expect_event("system.close", WAIT_TIMEOUT).await.json()["code"], 3501);
    assert_eq!(numbers(&stays.take_events(2, WAIT_TIMEOUT).await), [1, 2]);
    let explained = explain_with(&test, 1, &[], &names);
    assert!(explained.contains("outbox     row 1, "), "{explained}");
    // With the default names the start is refused, because the tables exist under other names.
    let (status, output) = test.hub.restart_expecting_failure(&[("OUTBOX", "on")]).await;
    assert_eq!(status.code(), Some(3), "{output}");
    assert!(output.contains("project_events, project_members (project, account, state)"), "{output}");
}
