//! The first five cases of the source's list of tests: that the stream works, and that what happens is recorded in the
//! outbox and told on it.

use bongsu_testkit::sql::Flavour;
use bongsu_testkit::sse::Item;
use serde_json::json;

use super::{CREATOR, Event, SOON, next, of_decision, of_proposal, open, start};
use crate::outbox::{Scene, follow};

/// How many rows of a type there are about an event.
async fn recorded(scene: &Scene, event: &Event, event_type: &str) -> i64 {
    let sql = format!(
        "SELECT count(*) FROM outbox_events WHERE target_event_id = '{}' AND event_type = '{event_type}'",
        event.id
    );
    scene.numbers(&sql).await[0]
}

pub(super) async fn source_1_a_stream_connects_and_works(flavour: Option<Flavour>) {
    let Some(scene) = start(flavour).await else { return };
    let event = Event::create(&scene.hub, 50, &[2]).await;
    for person in [CREATOR, 2] {
        let mut stream = open(follow(&scene.hub, &event.id.to_string(), person)).await;
        assert_eq!(stream.next(SOON).await, Some(Item::Retry(5_000)));
    }
}

pub(super) async fn source_2_a_new_proposal_is_recorded_in_the_outbox_and_streamed(flavour: Option<Flavour>) {
    let Some(scene) = start(flavour).await else { return };
    let event = Event::create(&scene.hub, 50, &[2, 3]).await;
    let mut stream = event.follow(&scene.hub, 3).await;
    for proposal_type in ["assumption", "criteria", "conclusion"] {
        let proposal = event.propose(2, proposal_type).await;
        assert_eq!(next(&mut stream).await, of_proposal("proposal.created.v1", proposal, proposal_type));
    }
    assert_eq!(recorded(&scene, &event, "proposal.created.v1").await, 3);
}

pub(super) async fn source_3_votes_added_and_removed_are_recorded_in_the_outbox_and_streamed(
    flavour: Option<Flavour>,
) {
    let Some(scene) = start(flavour).await else { return };
    let event = Event::create(&scene.hub, 100, &[2, 3]).await;
    let proposal = event.propose(2, "assumption").await;
    let mut stream = event.follow(&scene.hub, 3).await;
    next(&mut stream).await;
    event.vote(2, proposal).await.expect(200);
    assert_eq!(next(&mut stream).await, of_proposal("proposal.vote.created.v1", proposal, "assumption"));
    event.withdraw(2, proposal).await.expect(200);
    assert_eq!(next(&mut stream).await, of_proposal("proposal.vote.deleted.v1", proposal, "assumption"));
    for event_type in ["proposal.vote.created.v1", "proposal.vote.deleted.v1"] {
        assert_eq!(recorded(&scene, &event, event_type).await, 1);
    }
}

pub(super) async fn source_4_an_approved_proposal_is_recorded_in_the_outbox_and_streamed(
    flavour: Option<Flavour>,
) {
    let Some(scene) = start(flavour).await else { return };
    let event = Event::create(&scene.hub, 100, &[2]).await;
    let proposal = event.propose(2, "conclusion").await;
    let mut stream = event.follow(&scene.hub, 2).await;
    next(&mut stream).await;
    event.decide(CREATOR, proposal, "approve").await.expect(200);
    let approved = of_decision("proposal.approved.v1", proposal, "conclusion", "APPROVED");
    assert_eq!(next(&mut stream).await, approved);
    assert_eq!(recorded(&scene, &event, "proposal.approved.v1").await, 1);
}

pub(super) async fn source_5_a_new_comment_is_recorded_in_the_outbox_and_streamed(flavour: Option<Flavour>) {
    let Some(scene) = start(flavour).await else { return };
    let event = Event::create(&scene.hub, 50, &[2]).await;
    let criterion = event.propose(CREATOR, "criteria").await;
    let mut stream = event.follow(&scene.hub, CREATOR).await;
    next(&mut stream).await;
    let comment = event.comment(2, criterion).await.expect(200).result()["comment_id"].clone();
    let payload = json!({"comment_id": comment, "criterion_id": criterion});
    assert_eq!(next(&mut stream).await, ("comment.created.v1".to_owned(), payload));
    assert_eq!(recorded(&scene, &event, "comment.created.v1").await, 1);
}
