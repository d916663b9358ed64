//! Who gets an inbox entry of a published event: in registered mode only members of the room; in open mode the named
//! recipients or, without `recipients`, the registered members; never the publisher.

use bongsu_testkit::{Api, Hub, wait};
use serde_json::{Value, json};

use super::{WAIT_TIMEOUT, delete, put};
use crate::BONGSU;

const ROOM_PATH: &str = "/api/v1/rooms/42";
/// Members of the room, a member of another room, a publisher who is not a member, and a stranger.
const PEOPLE: [u64; 7] = [1, 2, 3, 4, 5, 9, 99];

/// One event: its `publisherId`, its `recipients` (null: left out), and who gets an entry.
struct Case {
    publisher: Value,
    recipients: Value,
    notified: &'static [u64],
}

fn case(publisher: Value, recipients: Value, notified: &'static [u64]) -> Case {
    Case { publisher, recipients, notified }
}

/// A hub in which 1, 2 and 3 are members of room 42, and 4 is a member of room 43.
async fn hub_with_rooms(mode: &str) -> (Hub, Api) {
    let hub = Hub::builder(BONGSU).records().env("ROOMS_MODE", mode).start().await;
    let api = Api::new(&hub);
    for path in ["42", "43", "42/members/1", "42/members/2", "42/members/3", "43/members/4"] {
        put(&api, &format!("/api/v1/rooms/{path}")).await;
    }
    (hub, api)
}

/// Publishes event number `n`; returns its stream id.
async fn publish(api: &Api, n: usize, case: &Case) -> String {
    let mut event = json!({"roomId": 42, "eventType": "comment.created", "data": {"n": n}});
    for (field, value) in [("publisherId", &case.publisher), ("recipients", &case.recipients)] {
        if !value.is_null() {
            event[field] = value.clone();
        }
    }
    api.publish(event).await.expect(200).result()["streamId"].as_str().unwrap().to_owned()
}

/// The numbers of the events in a person's inbox, oldest first. The unread count must match.
pub(crate) async fn numbers(api: &Api, person: u64) -> Vec<usize> {
    let page = api.person(person).get("/api/notifications?limit=100").await.expect(200);
    let items = page.result()["items"].as_array().cloned().unwrap_or_default();
    assert_eq!(page.result()["unread"], items.len(), "entries and the unread count of {person} differ");
    let number = |item: &Value| usize::try_from(item["payload"]["n"].as_u64().unwrap()).unwrap();
    items.iter().rev().map(number).collect()
}

/// Compares every inbox with the cases. Entries of one room are made in order, so the entry of the last event, which
/// member 2 gets, is made after all others.
async fn expect_inboxes(api: &Api, cases: &[Case]) {
    let last = cases.len() - 1;
    assert!(cases[last].notified.contains(&2), "the last case has to notify member 2");
    wait::until(WAIT_TIMEOUT, async || numbers(api, 2).await.last() == Some(&last)).await;
    for person in PEOPLE {
        let expected: Vec<usize> =
            (0..cases.len()).filter(|n| cases[*n].notified.contains(&person)).collect();
        assert_eq!(numbers(api, person).await, expected, "events that person {person} was notified of");
    }
}

#[tokio::test]
async fn registered_mode_notifies_members_only_and_never_the_publisher() {
    let (_hub, api) = hub_with_rooms("registered").await;
    let mut cases = vec![
        case(Value::Null, Value::Null, &[1, 2, 3]),
        case(json!(1), Value::Null, &[2, 3]),
        case(json!(99), Value::Null, &[1, 2, 3]),
        case(Value::Null, json!([]), &[]),
        case(json!(1), json!([1, 2]), &[2]),
        case(Value::Null, json!([3, 4, 9, 3]), &[3]),
        case(Value::Null, json!([4, 9]), &[]),
        case(json!(2), json!([2]), &[]),
    ];
    for (n, case) in cases.iter().enumerate() {
        publish(&api, n, case).await;
    }
    // A removed member gets no further entries, named or not; an added member gets those of later events.
    delete(&api, &format!("{ROOM_PATH}/members/3")).await;
    put(&api, &format!("{ROOM_PATH}/members/5")).await;
    for after in [case(Value::Null, Value::Null, &[1, 2, 5]), case(json!(1), json!([1, 2, 3, 5]), &[2, 5])] {
        publish(&api, cases.len(), &after).await;
        cases.push(after);
    }
    expect_inboxes(&api, &cases).await;
}

#[tokio::test]
async fn open_mode_notifies_the_named_recipients_or_else_the_registered_members() {
    let (_hub, api) = hub_with_rooms("open").await;
    let cases = [
        case(json!(1), Value::Null, &[2, 3]),
        case(Value::Null, json!([3, 4, 9]), &[3, 4, 9]),
        case(json!(9), json!([9]), &[]),
        case(Value::Null, json!([]), &[]),
        case(json!(99), json!([2, 99]), &[2]),
    ];
    for (n, case) in cases.iter().enumerate() {
        publish(&api, n, case).await;
    }
    expect_inboxes(&api, &cases).await;
}

#[tokio::test]
async fn a_member_can_mark_a_room_event_as_read_before_the_entry_exists() {
    let (_hub, api) = hub_with_rooms("open").await;
    for n in 0..10 {
        let id = publish(&api, n, &case(json!(1), Value::Null, &[2, 3])).await;
        let path = format!("/api/v1/notifications/42:{id}/read");
        api.person(2).call("PATCH", &path, "").await.expect(200);
        for person in [1, 4] {
            api.person(person).call("PATCH", &path, "").await.expect_error(404, "COMMON404");
        }
    }
}
