//! Tables of the same names that are another program's: the hub says so and changes nothing, and does without if it is told to.

use bongsu_testkit::Api;
use bongsu_testkit::sql::Flavour;
use serde_json::json;

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
