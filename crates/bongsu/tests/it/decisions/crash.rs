//! The process ends between a change and its outbox row: neither of them is stored.

use bongsu_testkit::sql::Flavour;
use bongsu_testkit::wait;
use serde_json::json;

use super::{
    CREATOR, Event, RECORDED_COUNTS, WAIT_TIMEOUT, as_person, decision_event, next, proposal_event, start,
};
use crate::crash_points;

pub(super) async fn a_hub_that_dies_between_a_change_and_its_event_keeps_neither(flavour: Option<Flavour>) {
    let Some(test) = start(flavour).await else { return };
    let event = Event::create(&test.hub, 100, &[2]).await;
    let criterion = event.propose(2, "criteria").await;
    event.vote(2, criterion).await.expect(200);
    let before = test.numbers(RECORDED_COUNTS).await;
    let proposed = json!({"proposal_type": "criteria", "content": "x"}).to_string();
    let said = json!({"content": "x"}).to_string();
    let changes = [
        ("POST", "/proposals".to_owned(), proposed, 1),
        ("DELETE", format!("/proposals/{criterion}/votes"), String::new(), 1),
        ("POST", format!("/proposals/{criterion}/votes"), String::new(), 1),
        // The deciding vote writes two outbox rows: here the process dies before the second.
        ("POST", format!("/proposals/{criterion}/votes"), String::new(), 2),
        ("POST", format!("/proposals/{criterion}/approve"), String::new(), 1),
        ("POST", format!("/proposals/{criterion}/reject"), String::new(), 1),
        ("POST", format!("/criteria/{criterion}/comments"), said, 1),
    ];
    let points = crash_points::of("a_hub_that_dies_between_a_change_and_its_event_keeps_neither");
    for (point, (method, path, body, time)) in
        points.iter().flat_map(|point| changes.clone().map(|change| (point, change)))
    {
        crash_points::arm(&test.hub, point, time).await;
        // Only person 2 has a vote to withdraw.
        let person = as_person(&event.api, if method == "DELETE" { 2 } else { CREATOR });
        let answer = person.try_call(method, &event.path(&path), body).await;
        assert!(answer.is_err(), "{method} {path} was answered: {answer:?}");
        crash_points::wait_dead(&test.hub, point, WAIT_TIMEOUT).await;
        // A database server may need a moment to notice that its client is gone.
        let same = async || test.numbers(RECORDED_COUNTS).await == before;
        assert!(wait::holds_within(WAIT_TIMEOUT, same).await, "{method} {path} stored a row");
    }
    test.hub.restart().await;
    assert_eq!(test.numbers(RECORDED_COUNTS).await, before);
    assert_eq!(event.vote(CREATOR, criterion).await.expect(200).result()["status"], "APPROVED");
    let mut stream = event.stream_from_start(&test.hub, 2).await;
    for expected in [
        proposal_event("proposal.created.v1", criterion, "criteria"),
        proposal_event("proposal.vote.created.v1", criterion, "criteria"),
        proposal_event("proposal.vote.created.v1", criterion, "criteria"),
        decision_event("proposal.approved.v1", criterion, "criteria", "APPROVED"),
    ] {
        assert_eq!(next(&mut stream).await, expected);
    }
}
