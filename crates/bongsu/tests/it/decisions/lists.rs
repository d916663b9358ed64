//! Reads of members: an event with its counts, and the pages of its proposals and comments.

use bongsu_testkit::sql::Flavour;
use serde_json::{Value, json};

use super::{CREATOR, Event, as_person, start};

pub(super) async fn an_event_is_shown_with_its_counts(flavour: Option<Flavour>) {
    let Some(test) = start(flavour).await else { return };
    let event = Event::create(&test.hub, 60, &[2]).await;
    event.set_member_status(3, "PENDING").await.expect(200);
    event.set_member_status(4, "REJECTED").await.expect(200);
    let criterion = event.propose(2, "criteria").await;
    event.comment(2, criterion).await.expect(200);
    let shown = event.call("GET", 2, "").await.expect(200);
    let mut shown = shown.result().clone();
    let created_at = shown.as_object_mut().unwrap().remove("created_at").unwrap();
    assert!(created_at.as_str().unwrap().ends_with('Z'), "{created_at}");
    assert_eq!(
        shown,
        json!({"event_id": event.id, "title": "Where to go", "auto_approve_percent": 60, "creator_id": CREATOR,
            "membership_status": "ACCEPTED", "counts": {"members": 2, "proposals": 1, "comments": 1}})
    );
    let usual =
        as_person(&event.api, 9).post("/events", json!({"title": "t", "unknown": 1})).await.expect(200);
    assert_eq!(usual.result()["auto_approve_percent"], 50);
    let none = json!({"members": 1, "proposals": 0, "comments": 0});
    assert_eq!((&usual.result()["creator_id"], &usual.result()["counts"]), (&json!(9), &none));
    let admitted = event.set_member_status(5, "PENDING").await.expect(200);
    assert_eq!(*admitted.result(), json!({"event_id": event.id, "user_id": 5, "status": "PENDING"}));
}

/// All items of a list, and the number of pages.
async fn all(event: &Event, person: u64, list: &str, limit: usize) -> (Vec<Value>, usize) {
    let (mut items, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    for _ in 0..1_000 {
        let page =
            event.call("GET", person, &format!("{list}?limit={limit}&cursor={cursor}")).await.expect(200);
        let some = page.result()["items"].as_array().unwrap();
        assert!(some.len() <= limit, "{}", page.text());
        items.extend(some.iter().cloned());
        pages += 1;
        match page.result()["next_cursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => return (items, pages),
        }
    }
    panic!("the pages of {list} have no end");
}

pub(super) async fn proposals_and_comments_come_in_pages(flavour: Option<Flavour>) {
    let Some(test) = start(flavour).await else { return };
    let event = Event::create(&test.hub, 100, &[2, 3]).await;
    let other = Event::create(&test.hub, 100, &[2]).await;
    let mut proposed = Vec::new();
    for _ in 0..5 {
        proposed.push(event.propose(2, "criteria").await);
        other.propose(2, "criteria").await;
    }
    event.vote(2, proposed[1]).await.expect(200);
    event.vote(3, proposed[1]).await.expect(200);
    event.decide(CREATOR, proposed[4], "reject").await.expect(200);
    let ids = |items: &[Value], name: &str| -> Vec<u64> {
        items.iter().map(|item| item[name].as_u64().unwrap()).collect()
    };
    let newest_first: Vec<u64> = proposed.iter().rev().copied().collect();
    for (limit, pages) in [(2, 3), (5, 1), (1, 5), (100, 1)] {
        let (items, had) = all(&event, 2, "/proposals", limit).await;
        assert_eq!((ids(&items, "proposal_id"), had), (newest_first.clone(), pages));
        let told = |at: usize| {
            let item = &items[at];
            (item["status"].as_str().unwrap().to_owned(), item["votes"].as_u64(), item["voted"].as_bool())
        };
        assert_eq!(told(0), ("REJECTED".to_owned(), Some(0), Some(false)));
        assert_eq!(told(3), ("PENDING".to_owned(), Some(2), Some(true)));
        assert!(items[0]["decided_at"].is_string() && items[3]["decided_at"].is_null());
        assert_eq!(
            (&items[0]["proposer_id"], &items[0]["content"]),
            (&json!(2), &json!("Two hours at most"))
        );
    }
    assert_eq!(event.get_proposal(CREATOR, proposed[1]).await["voted"], false, "the creator has not voted");
    for _ in 0..3 {
        event.comment(3, proposed[0]).await.expect(200);
        event.comment(3, proposed[1]).await.expect(200);
    }
    let (comments, pages) = all(&event, 2, &format!("/criteria/{}/comments", proposed[0]), 2).await;
    assert_eq!((comments.len(), pages), (3, 2));
    assert!(ids(&comments, "comment_id").is_sorted_by(|newer, older| newer > older));
    let shown = (&comments[0]["author_id"], &comments[0]["content"], &comments[0]["criterion_id"]);
    assert_eq!(shown, (&json!(3), &json!("Three?"), &json!(proposed[0])));
    let usual = event.call("GET", 2, "/proposals").await.expect(200);
    assert_eq!(usual.result()["items"].as_array().unwrap().len(), 5);
    assert_eq!(usual.result()["next_cursor"], Value::Null);
}

pub(super) async fn text_is_stored_unchanged(flavour: Option<Flavour>) {
    let Some(test) = start(flavour).await else { return };
    let event = Event::create(&test.hub, 50, &[2]).await;
    // The longest allowed text, in characters of four bytes.
    for content in ["봉수 🔥 'x' \"y\" \\ %s :name ", "first\n\tsecond\r\n", &"🔥".repeat(2_000), " x "]
    {
        let body = json!({"proposal_type": "criteria", "content": content});
        let proposed = event.post(2, "/proposals", body).await.expect(200);
        let criterion = proposed.result()["proposal_id"].as_u64().unwrap();
        assert_eq!(event.get_proposal(2, criterion).await["content"], content);
        let comments = format!("/criteria/{criterion}/comments");
        event.post(2, &comments, json!({"content": content})).await.expect(200);
        let said = event.call("GET", CREATOR, &comments).await.expect(200);
        assert_eq!(said.result()["items"][0]["content"], content);
    }
    let title = "🔥".repeat(200);
    let created = as_person(&event.api, 2).post("/events", json!({"title": title})).await.expect(200);
    assert_eq!(created.result()["title"], title);
}

pub(super) async fn event_ids_of_other_programs_are_skipped(flavour: Option<Flavour>) {
    let Some(test) = start(flavour).await else { return };
    let first = Event::create(&test.hub, 50, &[]).await.id;
    let [members, rows] = [first + 1, first + 2];
    test.sql(&format!("INSERT INTO memberships VALUES ('{members}', '7', 'ACCEPTED')")).await;
    let row = "INSERT INTO outbox_events (event_type, payload, target_event_id)";
    test.sql(&format!("{row} VALUES ('a.b', '{{}}', '{rows}')")).await;
    let event = Event::create(&test.hub, 50, &[]).await;
    assert!(event.id > rows, "{} is an event id of another program", event.id);
    let strange = as_person(&event.api, 7).get(&format!("/events/{members}")).await;
    strange.expect_error(404, "COMMON404");
}
