//! The process ends between a change and the row that tells of it: neither is there afterwards.

use bongsu_testkit::sql::Flavour;
use bongsu_testkit::wait;
use serde_json::json;

use super::{CREATOR, Event, RECORDED, SOON, as_person, next, of_decision, of_proposal, start};
use crate::crash_points;

pub(super) async fn a_hub_that_dies_between_a_change_and_its_event_keeps_neither(flavour: Option<Flavour>) {
    let Some(scene) = start(flavour).await else { return };
    let event = Event::create(&scene.hub, 100, &[2]).await;
    let criterion = event.propose(2, "criteria").await;
    event.vote(2, criterion).await.expect(200);
    let before = scene.numbers(RECORDED).await;
    let proposed = json!({"proposal_type": "criteria", "content": "x"}).to_string();
    let said = json!({"content": "x"}).to_string();
    let changes = [
        ("POST", "/proposals".to_owned(), proposed, 1),
        ("DELETE", format!("/proposals/{criterion}/votes"), String::new(), 1),
        ("POST", format!("/proposals/{criterion}/votes"), String::new(), 1),
        // The vote that is enough tells two things: here it dies before the second.
        ("POST", format!("/proposals/{criterion}/votes"), String::new(), 2),
        ("POST", format!("/proposals/{criterion}/approve"), String::new(), 1),
        ("POST", format!("/proposals/{criterion}/reject"), String::new(), 1),
        ("POST", format!("/criteria/{criterion}/comments"), said, 1),
    ];
    let points = crash_points::of("a_hub_that_dies_between_a_change_and_its_event_keeps_neither");
    for (point, (method, path, body, time)) in
        points.iter().flat_map(|point| changes.clone().map(|change| (point, change)))
    {
        crash_points::arm(&scene.hub, point, time).await;
        // Only the second person has a vote to take back.
        let person = as_person(&event.api, if method == "DELETE" { 2 } else { CREATOR });
        let answer = person.try_call(method, &event.path(&path), body).await;
        assert!(answer.is_err(), "{method} {path} was answered: {answer:?}");
        crash_points::wait_dead(&scene.hub, point, SOON).await;
        // A server may need a moment until it has noticed that nobody is there any more.
        let same = async || scene.numbers(RECORDED).await == before;
        assert!(wait::holds_within(SOON, same).await, "{method} {path} left something behind");
    }
    scene.hub.restart().await;
    assert_eq!(scene.numbers(RECORDED).await, before);
    assert_eq!(event.vote(CREATOR, criterion).await.expect(200).result()["status"], "APPROVED");
    let mut stream = event.follow(&scene.hub, 2).await;
    for expected in [
        of_proposal("proposal.created.v1", criterion, "criteria"),
        of_proposal("proposal.vote.created.v1", criterion, "criteria"),
        of_proposal("proposal.vote.created.v1", criterion, "criteria"),
        of_decision("proposal.approved.v1", criterion, "criteria", "APPROVED"),
    ] {
        assert_eq!(next(&mut stream).await, expected);
    }
}
