//! `bongsu explain` of a row: how far it has come, and why it went no further.

use std::process::Command;

use bongsu_testkit::hub::Builder;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::wait;
use serde_json::{Value, json};

use super::{SOON, Scene, is_split};
use crate::BONGSU;

/// What it prints about a row; empty when it knows nothing.
fn explain(scene: &Scene, id: u64, form: &[&str]) -> String {
    explain_with(scene, id, form, &[])
}

/// The same under other settings.
pub(super) fn explain_with(scene: &Scene, id: u64, form: &[&str], settings: &[(&str, &str)]) -> String {
    let mut command = Command::new(BONGSU);
    command.args(["explain", &format!("outbox:{id}")]).args(form);
    command.env_clear().envs(settings.iter().copied());
    match &scene.database {
        None => command.env("DATA_DIR", scene.hub.data_dir()),
        Some((_, url)) => command.env("DATABASE_URL", url),
    };
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

fn explained(scene: &Scene, id: u64) -> Value {
    serde_json::from_str(&explain(scene, id, &["--json"])).unwrap_or_default()
}

pub(super) async fn what_became_of_a_row_is_explained(flavour: Option<Flavour>) {
    let with = |builder: Builder| builder.env("OUTBOX_RELAY", "proposal.created.v1=room");
    let Some(scene) = Scene::start_with(flavour, with).await else { return };
    // Relayed; no event of a room, so given up; nothing that streams can be told of; nobody's work.
    scene
        .sql(
            "INSERT INTO outbox_events (id, event_type, payload, target_event_id) VALUES \
             (11, 'proposal.created.v1', '{\"proposal_id\": 1}', '42'), (12, 'proposal.created.v1', '[2]', '42'), \
             (13, 'No Type', '{}', '42'), (14, 'other.v1', '{}', '43')",
        )
        .await;
    let status = |id| explained(&scene, id)["outbox"]["status"].clone();
    wait::until(SOON, async || (status(11), status(12)) == (json!("DONE"), json!("FAILED"))).await;
    let done = explained(&scene, 11);
    let row = &done["outbox"];
    assert_eq!((&row["id"], &row["type"]), (&json!(11), &json!("proposal.created.v1")), "{done}");
    assert_eq!((&row["targetEventId"], &row["notTold"]), (&json!("42"), &Value::Null), "{done}");
    assert!(row["position"].is_u64() && row["createdAt"].as_str().unwrap().ends_with('Z'), "{done}");
    assert_eq!((&done["accepted"], &done["derived"]), (&Value::Null, &Value::Null), "{done}");
    let failed = explained(&scene, 12);
    assert!(failed["outbox"]["reason"].as_str().unwrap().contains("object"), "{failed}");
    let fault = explained(&scene, 13);
    assert!(fault["outbox"]["notTold"].as_str().unwrap().contains("event_type"), "{fault}");
    let other = explained(&scene, 14);
    assert_eq!((&other["outbox"]["status"], &other["outbox"]["reason"]), (&json!("PENDING"), &Value::Null));
    let text = explain(&scene, 12, &[]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("event      outbox:12") && lines[1].starts_with("outbox     row 12, "),
        "{text}"
    );
    assert!(
        lines[2].starts_with("streams    position ") && lines[3].starts_with("work       FAILED"),
        "{text}"
    );
    assert_eq!(explain(&scene, 99, &[]), "", "there is no such row");
    // Its trace, in whatever form programs write it, goes on with the event of the room.
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    scene
        .sql(&format!(
            "INSERT INTO outbox_events (id, event_type, payload, target_event_id, traceparent) VALUES \
             (21, 'proposal.created.v1', '{{}}', '42', 'nonsense'), (22, 'proposal.created.v1', '{{}}', '42', '{trace}')"
        ))
        .await;
    wait::until(SOON, async || status(22) == "DONE").await;
    assert_eq!(explained(&scene, 21)["traceparent"], Value::Null);
    assert_eq!(explained(&scene, 22)["traceparent"], trace);
    if is_split(flavour) {
        // The log is in Redis.
        return;
    }
    let file = rusqlite::Connection::open(scene.hub.data_dir().join("bongsu.db")).unwrap();
    let query = "SELECT group_concat(coalesce(traceparent, '-'), ' ') FROM entries";
    let traces: String = file.query_row(query, [], |row| row.get(0)).unwrap();
    assert_eq!(traces, format!("- - {trace}"), "rows 11, 21 and 22");
}
