//! Who is to be told beside the stream: written down with the event, for the inbox to read.

use std::path::Path;

use bongsu_testkit::{Api, Hub, engine};
use serde_json::{Value, json};

use super::{event, hub, names, stored};

const FILE: &str = "it reads the file; on Redis the log's own contract suite reads the same records";

/// What is to be done for people, in the order in which it was written.
async fn follow_ups(hub: &Hub) -> Vec<Value> {
    hub.terminate().await;
    read(&hub.data_dir().join("bongsu.db")).unwrap_or_else(|error| panic!("{error}"))
}

fn read(file: &Path) -> rusqlite::Result<Vec<Value>> {
    let database = rusqlite::Connection::open(file)?;
    let mut statement = database.prepare("SELECT record FROM follow_ups ORDER BY id")?;
    let records = statement.query_map([], |row| row.get::<_, String>(0))?;
    records.map(|record| record.map(|record| serde_json::from_str(&record).unwrap_or_default())).collect()
}

#[tokio::test]
async fn those_named_are_written_down_with_the_event_once_each_and_without_the_publisher() {
    if !engine::needs_embedded(FILE) {
        return;
    }
    let hub = hub().await;
    let api = Api::new(&hub);
    let named =
        json!({"publisherId": 1, "recipients": [3, "1", 2, "3", "anna", 1], "data": {"text": "안녕"}});
    let id = api.publish(event(&named)).await.expect(200).result()["streamId"].clone();
    api.publish(event(&json!({"recipients": []}))).await.expect(200);
    api.publish(event(&json!({"publisherId": 5, "recipients": [5]}))).await.expect(200);
    api.publish(event(&json!({}))).await.expect(200);
    let anonymous = api.publish(event(&json!({"roomId": "b", "recipients": ["5"]}))).await.expect(200);
    let records = follow_ups(&hub).await;
    assert_eq!(records.len(), 2, "{records:?}");
    let first = &records[0];
    assert_eq!((&first["streamId"], &first["subject"], &first["v"]), (&id, &json!("room:a"), &json!(1)));
    assert_eq!((&first["eventType"], &first["data"]), (&json!("comment.created"), &json!({"text": "안녕"})));
    assert_eq!((&first["publisherId"], &first["recipients"]), (&json!(1), &json!([2, 3, "anna"])));
    assert_eq!(
        (&records[1]["streamId"], &records[1]["recipients"]),
        (&anonymous.result()["streamId"], &json!([5]))
    );
}

#[tokio::test]
async fn a_thousand_may_be_named_and_one_more_is_refused() {
    if !engine::needs_embedded(FILE) {
        return;
    }
    let hub = hub().await;
    let api = Api::new(&hub).with_header("accept-language", "en");
    let people = |count: u32| json!({"recipients": (0..count).collect::<Vec<_>>()});
    names(api.publish(event(&people(1_001))).await, "COMMON400", "recipients");
    assert_eq!(stored(&hub, "a").await.len(), 0);
    api.publish(event(&people(1_000))).await.expect(200);
    let records = follow_ups(&hub).await;
    assert_eq!(records.len(), 1);
    assert_eq!(records[0]["recipients"].as_array().unwrap().len(), 1_000);
}

#[tokio::test]
async fn a_repeated_request_names_nobody_twice_and_trimming_takes_nobody_away() {
    if !engine::needs_embedded(FILE) {
        return;
    }
    let hub = Hub::builder(crate::BONGSU).env("STREAM_MAXLEN", 1).start().await;
    let api = Api::new(&hub);
    let once = event(&json!({"recipients": [1, 2], "idempotencyKey": "k"}));
    api.publish(&once).await.expect(200);
    assert_eq!(api.publish(&once).await.expect(200).result()["duplicate"], true);
    api.publish(event(&json!({"recipients": [3], "idempotencyKey": "k"})))
        .await
        .expect_error(409, "NOTIF4091");
    for n in 0..50 {
        api.publish(event(&json!({"data": {"n": n}}))).await.expect(200);
    }
    assert!(stored(&hub, "a").await.len() < 10);
    let records = follow_ups(&hub).await;
    assert_eq!(
        records.iter().map(|record| record["recipients"].clone()).collect::<Vec<_>>(),
        [json!([1, 2])]
    );
}
