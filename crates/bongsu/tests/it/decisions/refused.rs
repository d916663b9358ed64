//! Refused requests change nothing and write no outbox row.

use bongsu_testkit::sql::Flavour;
use bongsu_testkit::tokens::Claims;
use bongsu_testkit::wait;
use serde_json::json;

use super::{CREATOR, Event, RECORDED_COUNTS, WAIT_TIMEOUT, as_person, start};

/// Every request that a person can make in an event: method, path and body.
fn all_requests(proposal: u64) -> Vec<(&'static str, String, String)> {
    let proposed = json!({"proposal_type": "criteria", "content": "x"}).to_string();
    let said = json!({"content": "x"}).to_string();
    vec![
        ("GET", String::new(), String::new()),
        ("GET", "/proposals".to_owned(), String::new()),
        ("POST", "/proposals".to_owned(), proposed),
        ("POST", format!("/proposals/{proposal}/votes"), String::new()),
        ("DELETE", format!("/proposals/{proposal}/votes"), String::new()),
        ("POST", format!("/proposals/{proposal}/approve"), String::new()),
        ("POST", format!("/proposals/{proposal}/reject"), String::new()),
        ("GET", format!("/criteria/{proposal}/comments"), String::new()),
        ("POST", format!("/criteria/{proposal}/comments"), said),
        ("PUT", "/members/77".to_owned(), json!({"status": "ACCEPTED"}).to_string()),
    ]
}

pub(super) async fn only_accepted_members_take_part(flavour: Option<Flavour>) {
    let Some(test) = start(flavour).await else { return };
    let event = Event::create(&test.hub, 50, &[2, 5]).await;
    event.set_member_status(3, "PENDING").await.expect(200);
    event.set_member_status(4, "REJECTED").await.expect(200);
    let proposal = event.propose(2, "criteria").await;
    event.set_member_status(5, "REJECTED").await.expect(200);
    let before = test.numbers(RECORDED_COUNTS).await;
    for (method, path, body) in all_requests(proposal) {
        let path = event.path(&path);
        for stranger in [3, 4, 5, 6] {
            let refused = as_person(&event.api, stranger).call(method, &path, body.clone()).await;
            let told = refused.expect_error(403, "COMMON403").message().to_owned();
            assert!(told.contains("member"), "{method} {path}: {told}");
        }
        let nobody = event.api.anonymous().call(method, &path, body.clone()).await;
        nobody.expect_error(401, "AUTH4001");
        let service = bongsu_testkit::Api::at(&test.hub.url("")).call(method, &path, body).await;
        service.expect_error(401, "AUTH4001");
    }
    event.api.anonymous().post("/events", json!({"title": "x"})).await.expect_error(401, "AUTH4001");
    assert_eq!(test.numbers(RECORDED_COUNTS).await, before);
}

pub(super) async fn only_the_creator_decides_proposals_and_sets_memberships(flavour: Option<Flavour>) {
    let Some(test) = start(flavour).await else { return };
    let event = Event::create(&test.hub, 100, &[2]).await;
    let proposal = event.propose(2, "criteria").await;
    let before = test.numbers(RECORDED_COUNTS).await;
    for word in ["approve", "reject"] {
        let refused = event.decide(2, proposal, word).await.expect_error(403, "COMMON403");
        assert!(refused.message().contains("creator"), "{}", refused.message());
    }
    let member = |person: u64| event.path(&format!("/members/{person}"));
    let put = |status: &str| json!({"status": status}).to_string();
    as_person(&event.api, 2).call("PUT", &member(3), put("ACCEPTED")).await.expect_error(403, "COMMON403");
    for status in ["PENDING", "REJECTED"] {
        let stays = event.set_member_status(CREATOR, status).await.expect_error(403, "COMMON403");
        assert!(stays.message().contains("creator"), "{}", stays.message());
    }
    let wrong = event.api.anonymous().with_header("x-admin-key", "wrong");
    wrong.call("PUT", &member(3), put("ACCEPTED")).await.expect_error(401, "AUTH4001");
    assert_eq!(test.numbers(RECORDED_COUNTS).await, before);
    // Operators authenticate by key or by role, and need no membership.
    let role = event.api.bearer(&Claims::new(99).role("admin").sign());
    for (operator, person) in [(event.api.admin(), 3), (role, 4)] {
        operator.call("PUT", &member(person), put("ACCEPTED")).await.expect(200);
        event.vote(person, proposal).await.expect(200);
    }
    // Operators may also end the creator's membership; the creator can then decide no proposal.
    event.api.admin().call("PUT", &member(CREATOR), put("REJECTED")).await.expect(200);
    let before = test.numbers(RECORDED_COUNTS).await;
    event.decide(CREATOR, proposal, "approve").await.expect_error(403, "COMMON403");
    event.set_member_status(5, "ACCEPTED").await.expect_error(403, "COMMON403");
    assert_eq!(test.numbers(RECORDED_COUNTS).await, before);
}

pub(super) async fn unknown_events_and_proposals_are_not_found(flavour: Option<Flavour>) {
    let Some(test) = start(flavour).await else { return };
    let event = Event::create(&test.hub, 50, &[2]).await;
    let other = Event::create(&test.hub, 50, &[2]).await;
    let elsewhere = other.propose(2, "criteria").await;
    let proposal = event.propose(2, "assumption").await;
    let before = test.numbers(RECORDED_COUNTS).await;
    for unknown in ["9999999", "0", "01", "-1", "abc", "9223372036854775807", "99999999999999999999"] {
        for (method, path, body) in all_requests(proposal) {
            let path = format!("/events/{unknown}{path}");
            as_person(&event.api, 2).call(method, &path, body.clone()).await.expect_error(404, "COMMON404");
        }
        let operator = event.api.admin();
        let body = json!({"status": "ACCEPTED"}).to_string();
        operator
            .call("PUT", &format!("/events/{unknown}/members/2"), body)
            .await
            .expect_error(404, "COMMON404");
    }
    for unknown in ["9999999", "0", "01", "abc", &elsewhere.to_string()] {
        for (method, word) in
            [("POST", "votes"), ("DELETE", "votes"), ("POST", "approve"), ("POST", "reject")]
        {
            let path = format!("/proposals/{unknown}/{word}");
            event.call(method, CREATOR, &path).await.expect_error(404, "COMMON404");
        }
    }
    // A proposal that is not a criterion accepts no comments.
    for unknown in ["9999999", "abc", &elsewhere.to_string(), &proposal.to_string()] {
        let path = format!("/criteria/{unknown}/comments");
        event.post(2, &path, json!({"content": "x"})).await.expect_error(404, "COMMON404");
        event.call("GET", 2, &path).await.expect_error(404, "COMMON404");
    }
    assert_eq!(test.numbers(RECORDED_COUNTS).await, before);
}

pub(super) async fn bodies_and_pages_that_are_wrong_name_their_field(flavour: Option<Flavour>) {
    let Some(test) = start(flavour).await else { return };
    let event = Event::create(&test.hub, 50, &[2]).await;
    let criterion = event.propose(2, "criteria").await;
    let before = test.numbers(RECORDED_COUNTS).await;
    let person = as_person(&event.api, CREATOR);
    let refused = async |method: &str, path: &str, body: &str, field: &str| {
        let answer = person.call(method, path, body.to_owned()).await.expect_error(400, "COMMON400");
        let message = answer.message();
        assert!(message.starts_with(&format!("{field}: ")), "{method} {path} {body}: {message}");
    };
    for body in ["", "{", "[]", "1"] {
        refused("POST", "/events", body, "body").await;
    }
    let long = |characters: usize| "가".repeat(characters);
    for title in
        [json!(null), json!(""), json!("  "), json!(7), json!(long(201)), json!("a\nb"), json!("a\u{0}")]
    {
        refused("POST", "/events", &json!({"title": title}).to_string(), "title").await;
    }
    for percent in [json!(0), json!(101), json!(-1), json!(50.5), json!("50"), json!([])] {
        let body = json!({"title": "x", "auto_approve_percent": percent}).to_string();
        refused("POST", "/events", &body, "auto_approve_percent").await;
    }
    let proposals = event.path("/proposals");
    for proposal_type in [json!(null), json!("CRITERIA"), json!("criterion"), json!(1), json!("")] {
        let body = json!({"proposal_type": proposal_type, "content": "x"}).to_string();
        refused("POST", &proposals, &body, "proposal_type").await;
    }
    let comments = event.path(&format!("/criteria/{criterion}/comments"));
    for content in [
        json!(null),
        json!(""),
        json!(" \n"),
        json!({}),
        json!(long(2_001)),
        json!("a\u{0}"),
        json!("\u{1b}"),
    ] {
        let body = json!({"proposal_type": "criteria", "content": content}).to_string();
        refused("POST", &proposals, &body, "content").await;
        refused("POST", &comments, &body, "content").await;
    }
    for status in [json!(null), json!("accepted"), json!("REMOVED"), json!(1)] {
        let body = json!({"status": status}).to_string();
        refused("PUT", &event.path("/members/3"), &body, "status").await;
    }
    for (path, field) in [("/events/a%20b", "event_id"), ("/events/%EB%B0%A9", "event_id")] {
        refused("GET", path, "", field).await;
    }
    refused("POST", &event.path("/proposals/a%20b/votes"), "", "proposal_id").await;
    refused("POST", &event.path("/criteria/a%20b/comments"), r#"{"content":"x"}"#, "criterion_id").await;
    refused("PUT", &event.path("/members/a%20b"), r#"{"status":"ACCEPTED"}"#, "user_id").await;
    for list in [&proposals, &comments] {
        for cursor in ["0", "-1", "x", "1.5", "99999999999999999999", "1,2"] {
            refused("GET", &format!("{list}?cursor={cursor}"), "", "cursor").await;
        }
        for limit in ["0", "101", "-1", "x", ""] {
            refused("GET", &format!("{list}?limit={limit}"), "", "limit").await;
        }
    }
    assert_eq!(test.numbers(RECORDED_COUNTS).await, before);
}

#[tokio::test]
async fn changes_are_refused_with_503_while_another_program_locks_the_file() {
    let test = start(None).await.unwrap();
    let event = Event::create(&test.hub, 50, &[2]).await;
    let file = rusqlite::Connection::open(test.hub.data_dir().join("bongsu.db")).unwrap();
    file.execute_batch("BEGIN IMMEDIATE").unwrap();
    let body = json!({"proposal_type": "criteria", "content": "x"});
    event.post(2, "/proposals", body.clone()).await.expect_error(503, "COMMON503");
    file.execute_batch("ROLLBACK").unwrap();
    let api = as_person(&event.api, 2);
    wait::until(WAIT_TIMEOUT, async || api.post(&event.path("/proposals"), body.clone()).await.status == 200)
        .await;
}
