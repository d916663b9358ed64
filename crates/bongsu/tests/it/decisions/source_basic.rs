//! The first five cases of the original project's test list: the stream works, and every change is recorded in the
//! outbox and sent on the stream.

use bongsu_testkit::sql::Flavour;
use bongsu_testkit::sse::Item;
use serde_json::json;

use super::{CREATOR, Event, WAIT_TIMEOUT, decision_event, next, open, proposal_event, start};
use crate::outbox::{OutboxTest, stream_request};

/// How many outbox rows of this type an event has.
async fn recorded(test: &OutboxTest, event: &Event, event_type: &str) -> i64 {
    let sql = format!(
        "SELECT count(*) FROM outbox_events WHERE target_event_id = '{}' AND event_type = '{event_type}'",
        event.id
    );
    test.numbers(&sql).await[0]
}

pub(super) async fn source_1_a_stream_connects_and_works(flavour: Option<Flavour>) {
    let Some(test) = start(flavour).await else { return };
    let event = Event::create(&test.hub, 50, &[2]).await;
    for person in [CREATOR, 2] {
        let mut stream = open(stream_request(&test.hub, &event.id.to_string(), person)).await;
        assert_eq!(stream.next(WAIT_TIMEOUT).await, Some(Item::Retry(5_000)));
    }
}

pub(super) async fn source_2_a_new_proposal_is_recorded_in_the_outbox_and_streamed(flavour: Option<Flavour>) {
    let Some(test) = start(flavour).await else { return };
    let event = Event::create(&test.hub, 50, &[2, 3]).await;
    let mut stream = event.stream_from_start(&test.hub, 3).await;
    for proposal_type in ["assumption", "criteria", "conclusion"] {
        let proposal = event.propose(2, proposal_type).await;
        assert_eq!(next(&mut stream).await, proposal_event("proposal.created.v1", proposal, proposal_type));
    }
    assert_eq!(recorded(&test, &event, "proposal.created.v1").await, 3);
}

pub(super) async fn source_3_votes_added_and_removed_are_recorded_in_the_outbox_and_streamed(
    flavour: Option<Flavour>,
) {
    let Some(test) = start(flavour).await else { return };
    let event = Event::create(&test.hub, 100, &[2, 3]).await;
    let proposal = event.propose(2, "assumption").await;
    let mut stream = event.stream_from_start(&test.hub, 3).await;
    next(&mut stream).await;
    event.vote(2, proposal).await.expect(200);
    assert_eq!(next(&mut stream).await, proposal_event("proposal.vote.created.v1", proposal, "assumption"));
    event.withdraw(2, proposal).await.expect(200);
    assert_eq!(next(&mut stream).await, proposal_event("proposal.vote.deleted.v1", proposal, "assumption"));
    for event_type in ["proposal.vote.created.v1", "proposal.vote.deleted.v1"] {
        assert_eq!(recorded(&test, &event, event_type).await, 1);
    }
}

pub(super) async fn source_4_an_approved_proposal_is_recorded_in_the_outbox_and_streamed(
    flavour: Option<Flavour>,
) {
    let Some(test) = start(flavour).await else { return };
    let event = Event::create(&test.hub, 100, &[2]).await;
    let proposal = event.propose(2, "conclusion").await;
    let mut stream = event.stream_from_start(&test.hub, 2).await;
    next(&mut stream).await;
    event.decide(CREATOR, proposal, "approve").await.expect(200);
    let approved = decision_event("proposal.approved.v1", proposal, "conclusion", "APPROVED");
    assert_eq!(next(&mut stream).await, approved);
    assert_eq!(recorded(&test, &event, "proposal.approved.v1").await, 1);
}

pub(super) async fn source_5_a_new_comment_is_recorded_in_the_outbox_and_streamed(flavour: Option<Flavour>) {
    let Some(test) = start(flavour).await else { return };
    let event = Event::create(&test.hub, 50, &[2]).await;
    let criterion = event.propose(CREATOR, "criteria").await;
    let mut stream = event.stream_from_start(&test.hub, CREATOR).await;
    next(&mut stream).await;
    let comment = event.comment(2, criterion).await.expect(200).result()["comment_id"].clone();
    let payload = json!({"comment_id": comment, "criterion_id": criterion});
    assert_eq!(next(&mut stream).await, ("comment.created.v1".to_owned(), payload));
    assert_eq!(recorded(&test, &event, "comment.created.v1").await, 1);
}
