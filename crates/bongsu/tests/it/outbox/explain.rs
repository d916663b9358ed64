//! `bongsu explain` of an outbox row: how far it was processed, and why it went no further.

use std::process::Command;

use bongsu_testkit::hub::Builder;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::wait;
use serde_json::{Value, json};

use super::{OutboxTest, WAIT_TIMEOUT, is_split};
use crate::BONGSU;

/// The output about a row; empty when the row is unknown.
fn explain(test: &OutboxTest, id: u64, form: &[&str]) -> String {
    explain_with(test, id, form, &[])
}

/// The output under other settings.
pub(super) fn explain_with(test: &OutboxTest, id: u64, form: &[&str], settings: &[(&str, &str)]) -> String {
    let mut command = Command::new(BONGSU);
    command.args(["explain", &format!("outbox:{id}")]).args(form);
    command.env_clear().envs(settings.iter().copied());
    match &test.database {
        None => command.env("DATA_DIR", test.hub.data_dir()),
        Some((_, url)) => command.env("DATABASE_URL", url),
    };
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

fn explained(test: &OutboxTest, id: u64) -> Value {
    serde_json::from_str(&explain(test, id, &["--json"])).unwrap_or_default()
}

pub(super) async fn explain_reports_the_state_of_a_row(flavour: Option<Flavour>) {
    let with = |builder: Builder| builder.env("OUTBOX_RELAY", "proposal.created.v1=room");
    let Some(test) = OutboxTest::start_with(flavour, with).await else { return };
    // Four rows: one is relayed; one is no valid room event, so it is given up; one cannot be sent to streams; one
    // has no relay rule.
    test
        .sql(
            "INSERT INTO outbox_events (id, event_type, payload, target_event_id) VALUES \
             (11, 'proposal.created.v1', '{\"proposal_id\": 1}', '42'), (12, 'proposal.created.v1', '[2]', '42'), \
             (13, 'No Type', '{}', '42'), (14, 'other.v1', '{}', '43')",
        )
        .await;
    let status = |id| explained(&test, id)["outbox"]["status"].clone();
    wait::until(WAIT_TIMEOUT, async || (status(11), status(12)) == (json!("DONE"), json!("FAILED"))).await;
    let done = explained(&test, 11);
    let row = &done["outbox"];
    assert_eq!((&row["id"], &row["type"]), (&json!(11), &json!("proposal.created.v1")), "{done}");
    assert_eq!((&row["targetEventId"], &row["notTold"]), (&json!("42"), &Value::Null), "{done}");
    assert!(row["position"].is_u64() && row["createdAt"].as_str().unwrap().ends_with('Z'), "{done}");
    assert_eq!((&done["accepted"], &done["derived"]), (&Value::Null, &Value::Null), "{done}");
    let failed = explained(&test, 12);
    assert!(failed["outbox"]["reason"].as_str().unwrap().contains("object"), "{failed}");
    let fault = explained(&test, 13);
    assert!(fault["outbox"]["notTold"].as_str().unwrap().contains("event_type"), "{fault}");
    let other = explained(&test, 14);
    assert_eq!((&other["outbox"]["status"], &other["outbox"]["reason"]), (&json!("PENDING"), &Value::Null));
    let text = explain(&test, 12, &[]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("event      outbox:12") && lines[1].starts_with("outbox     row 12, "),
        "{text}"
    );
    assert!(
        lines[2].starts_with("streams    position ") && lines[3].starts_with("work       FAILED"),
        "{text}"
    );
    assert_eq!(explain(&test, 99, &[]), "", "there is no such row");
    // A valid `traceparent` of the row continues with the event of the room.
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    test
        .sql(&format!(
            "INSERT INTO outbox_events (id, event_type, payload, target_event_id, traceparent) VALUES \
             (21, 'proposal.created.v1', '{{}}', '42', 'nonsense'), (22, 'proposal.created.v1', '{{}}', '42', '{trace}')"
        ))
        .await;
    wait::until(WAIT_TIMEOUT, async || status(22) == "DONE").await;
    assert_eq!(explained(&test, 21)["traceparent"], Value::Null);
    assert_eq!(explained(&test, 22)["traceparent"], trace);
    if is_split(flavour) {
        // The log is in Redis, so the query below does not apply.
        return;
    }
    let file = rusqlite::Connection::open(test.hub.data_dir().join("bongsu.db")).unwrap();
    let query = "SELECT group_concat(coalesce(traceparent, '-'), ' ') FROM entries";
    let traces: String = file.query_row(query, [], |row| row.get(0)).unwrap();
    assert_eq!(traces, format!("- - {trace}"), "rows 11, 21 and 22");
}
