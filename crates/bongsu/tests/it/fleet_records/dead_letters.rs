//! Follow-up records in Redis that the hub cannot parse become dead letters, byte for byte, and the records around
//! them become inbox entries.

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::{Api, Hub, wait};
use serde_json::{Value, json};

use super::{WAIT_TIMEOUT, can_run};
use crate::BONGSU;

const DLQ_PATH: &str = "/api/admin/dlq/follow-ups";
/// The list of follow-up records of room 42.
const QUEUE_KEY: &str = "{room:events:42}:follow-ups";

/// A record that is not JSON, one that is not UTF-8, and one of a later version.
fn unusable() -> [Vec<u8>; 3] {
    let later = json!({"v": 9, "subject": "room:42", "streamId": "5-0", "eventType": "a.b", "data": {},
        "publisherId": null, "timestamp": 5, "recipients": [7]});
    [b"no JSON".to_vec(), b"{\xff\x00\xfe".to_vec(), later.to_string().into_bytes()]
}

async fn unusable_follow_up_records_become_dead_letters(flavour: Flavour) {
    if !can_run(flavour) {
        return;
    }
    let (redis, database) = (Redis::start().await, flavour.database().await);
    let hub = Hub::builder(BONGSU).env("REDIS_URL", redis.url()).env("DATABASE_URL", &database).start().await;
    let api = Api::at(&hub.url(""));
    let event = json!({"roomId": 42, "eventType": "a.b", "data": {}, "recipients": [7]});
    let unread = async || {
        let count = api.person(7).get("/api/v1/notifications/unread").await.expect(200);
        count.result()["count"].as_u64().unwrap()
    };
    for (n, record) in unusable().into_iter().enumerate() {
        redis.command(&[b"RPUSH", QUEUE_KEY.as_bytes(), &record]).await.expect_ok();
        // Publishing adds the room to the index, and its record comes after the unusable one.
        api.publish(&event).await.expect(200);
        wait::until(WAIT_TIMEOUT, async || unread().await == n as u64 + 1).await;
    }
    let admin = api.admin();
    let letters =
        async || admin.get(DLQ_PATH).await.expect(200).result()["letters"].as_array().unwrap().clone();
    wait::until(WAIT_TIMEOUT, async || letters().await.len() == 3).await;
    wait::until(WAIT_TIMEOUT, async || redis.command(&["LLEN", QUEUE_KEY]).await.integer() == 0).await;
    let given_up = letters().await;
    for (letter, record) in given_up.iter().zip(unusable()) {
        assert_eq!(letter["payload"], *String::from_utf8_lossy(&record), "{letter}");
        assert_eq!((&letter["attempts"], &letter["reason"].is_string()), (&json!(1), &true), "{letter}");
        assert_eq!(letter["key"], "room:42", "{letter}");
    }
    let ids: Vec<&Value> = given_up.iter().map(|letter| &letter["id"]).collect();
    let redriven = admin.post(&format!("{DLQ_PATH}/redrive"), json!({"ids": ids})).await.expect(202);
    assert_eq!(redriven.result()["letters"], 0, "unusable records must stay dead letters");
    admin.call("DELETE", &format!("{DLQ_PATH}/{}", ids[0]), "").await.expect(200);
    let again = letters().await;
    assert_eq!((again.len(), &again[0]["id"], &again[0]["attempts"]), (2, ids[1], &json!(2)));
    let queues = admin.get("/api/admin/dlq").await.expect(200).result()["queues"].clone();
    assert_eq!(queues[1], json!({"queue": "follow-ups", "depth": 2}));
    assert_eq!(unread().await, 3);
}

#[tokio::test]
async fn unusable_follow_up_records_become_dead_letters_on_postgres() {
    unusable_follow_up_records_become_dead_letters(Flavour::Postgres).await;
}

#[tokio::test]
async fn unusable_follow_up_records_become_dead_letters_on_mariadb() {
    unusable_follow_up_records_become_dead_letters(Flavour::MariaDb).await;
}
