//! Tables that are another program's: the hub uses them under their own names, or says that it cannot and changes nothing, or
//! does without them.

use bongsu_testkit::Api;
use bongsu_testkit::sql::Flavour;
use serde_json::json;

use super::explain::explain_with;
use super::{SOON, Scene, numbers, open};

pub(super) async fn another_programs_tables_are_left_alone(flavour: Option<Flavour>) {
    let off = |builder: bongsu_testkit::hub::Builder| builder.env("OUTBOX", "off");
    let Some(scene) = Scene::start_with(flavour, off).await else { return };
    let api = Api::new(&scene.hub);
    api.person(7).get("/events/42/stream").await.expect_error(503, "COMMON503");
    let letters = api.admin().get("/api/admin/dlq").await.expect(200);
    assert_eq!(letters.result()["queues"], json!([{"queue": "follow-ups", "depth": 0}]));
    scene.hub.kill9().await;
    scene.sql("CREATE TABLE memberships (person INTEGER, club INTEGER)").await;
    let (status, output) = scene.hub.restart_expecting_failure(&[("OUTBOX", "on")]).await;
    assert!(!status.success());
    assert!(output.contains("event_id") || output.contains("status"), "it says what it misses: {output}");
    scene.hub.restart().await;
    scene.sql("INSERT INTO memberships VALUES (1, 2)").await;
    // Once they are gone it may be used, and not any more later.
    scene.sql("DROP TABLE memberships").await;
    scene.hub.restart_with(&[("OUTBOX", "on")]).await;
    scene.accept("42", &[7]).await;
    let mut stream = open(scene.follow("42", 7)).await;
    scene.write("42", [1]).await;
    assert_eq!(numbers(&stream.take_events(1, SOON).await), [1]);
    drop(stream);
    scene.hub.restart().await;
    api.person(7).get("/events/42/stream").await.expect_error(503, "COMMON503");
}

pub(super) async fn another_programs_tables_are_used_under_their_own_names(flavour: Option<Flavour>) {
    let off = |builder: bongsu_testkit::hub::Builder| builder.env("OUTBOX", "off");
    let Some(scene) = Scene::start_with(flavour, off).await else { return };
    scene.hub.kill9().await;
    // A table of members that is none of ours, and another one that says who may follow.
    let [text, bytes] = match flavour {
        None => ["TEXT", ""],
        Some(Flavour::Postgres) => ["VARCHAR(64)", ""],
        Some(Flavour::MariaDb) => ["VARCHAR(64)", "CHARACTER SET ascii COLLATE ascii_bin"],
    };
    scene.sql("CREATE TABLE memberships (person INTEGER, club INTEGER)").await;
    let columns = ["project", "account", "state"].map(|column| format!("{column} {text} {bytes}")).join(", ");
    scene.sql(&format!("CREATE TABLE project_members ({columns}, PRIMARY KEY (project, account))")).await;
    let names = [
        ("OUTBOX", "on"),
        ("OUTBOX_TABLE", "project_events"),
        ("OUTBOX_MEMBERSHIP_TABLE", "project_members"),
        ("OUTBOX_MEMBERSHIP_COLUMNS", "project,account,state"),
    ];
    scene.hub.restart_with(&names).await;
    let event = |number: u64| {
        let payload = format!("'{{\"proposal_id\": {number}}}'");
        format!(
            "INSERT INTO project_events (event_type, payload, target_event_id) VALUES ('a.b', {payload}, '42')"
        )
    };
    scene.sql("INSERT INTO project_members VALUES ('42', '7', 'ACCEPTED'), ('42', '8', 'ACCEPTED')").await;
    let (mut gone, mut stays) = (open(scene.follow("42", 7)).await, open(scene.follow("42", 8)).await);
    scene.sql(&event(1)).await;
    scene.sql("DELETE FROM project_members WHERE account = '7'").await;
    scene.sql(&event(2)).await;
    assert_eq!(numbers(&gone.take_events(1, SOON).await), [1]);
    assert_eq!(gone.expect_event("system.close", SOON).await.json()["code"], 3501);
    assert_eq!(numbers(&stays.take_events(2, SOON).await), [1, 2]);
    let explained = explain_with(&scene, 1, &[], &names);
    assert!(explained.contains("outbox     row 1, "), "{explained}");
    // Other names are no reason to make other tables.
    let (status, output) = scene.hub.restart_expecting_failure(&[("OUTBOX", "on")]).await;
    assert_eq!(status.code(), Some(3), "{output}");
    assert!(output.contains("project_events, project_members (project, account, state)"), "{output}");
}
