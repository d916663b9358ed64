//! Every change sends exactly one event per outbox row; a request that changes nothing sends none.

use bongsu_testkit::sql::Flavour;
use serde_json::{Value, json};

use super::{
    CREATOR, Event, RECORDED_COUNTS, WAIT_TIMEOUT, as_person, decision_event, next, proposal_event, start,
    stream_request,
};

pub(super) async fn every_change_records_one_event_with_a_minimal_payload(flavour: Option<Flavour>) {
    let Some(test) = start(flavour).await else { return };
    let event = Event::create(&test.hub, 100, &[2, 3]).await;
    let mut stream = event.stream_from_start(&test.hub, 3).await;
    let criterion = event.propose(2, "criteria").await;
    let other = event.propose(3, "assumption").await;
    let voted = event.vote(2, criterion).await.expect(200);
    let shown = json!({"proposal_id": criterion, "proposal_type": "criteria", "status": "PENDING", "votes": 1, "voted": true});
    assert_eq!(*voted.result(), shown);
    event.withdraw(2, criterion).await.expect(200);
    let comment = event.comment(3, criterion).await.expect(200).result()["comment_id"].clone();
    let approved = event.decide(CREATOR, criterion, "approve").await.expect(200);
    let shown = json!({"proposal_id": criterion, "proposal_type": "criteria", "status": "APPROVED"});
    assert_eq!(*approved.result(), shown);
    event.decide(CREATOR, other, "reject").await.expect(200);
    event.comment(3, criterion).await.expect(200);
    let told = [
        proposal_event("proposal.created.v1", criterion, "criteria"),
        proposal_event("proposal.created.v1", other, "assumption"),
        proposal_event("proposal.vote.created.v1", criterion, "criteria"),
        proposal_event("proposal.vote.deleted.v1", criterion, "criteria"),
        ("comment.created.v1".to_owned(), json!({"comment_id": comment, "criterion_id": criterion})),
        decision_event("proposal.approved.v1", criterion, "criteria", "APPROVED"),
        decision_event("proposal.rejected.v1", other, "assumption", "REJECTED"),
    ];
    for expected in told {
        assert_eq!(next(&mut stream).await, expected);
    }
    assert_eq!(next(&mut stream).await.0, "comment.created.v1", "an approved criterion must accept comments");
    assert_eq!(test.numbers(RECORDED_COUNTS).await, [1, 0, 1, 1, 0, 2, 0, 3, 0, 8]);
    // The row of a change carries the `traceparent` of the request that made the change.
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let body = json!({"proposal_type": "criteria", "content": "Rain"});
    let traced = as_person(&event.api, 2).with_header("traceparent", trace);
    traced.post(&event.path("/proposals"), body).await.expect(200);
    let kept = format!("SELECT count(*) FROM outbox_events WHERE traceparent = '{trace}'");
    assert_eq!(test.numbers(&kept).await, [1]);
}

pub(super) async fn repeated_requests_change_nothing_and_record_no_event(flavour: Option<Flavour>) {
    let Some(test) = start(flavour).await else { return };
    let event = Event::create(&test.hub, 100, &[2, 3]).await;
    let proposal = event.propose(2, "assumption").await;
    let first = event.vote(2, proposal).await.expect(200);
    let before = test.numbers(RECORDED_COUNTS).await;
    assert_eq!(event.vote(2, proposal).await.expect(200).body, first.body);
    event.set_member_status(2, "ACCEPTED").await.expect(200);
    assert_eq!(test.numbers(RECORDED_COUNTS).await, before);
    let gone = event.withdraw(2, proposal).await.expect(200);
    let before = test.numbers(RECORDED_COUNTS).await;
    assert_eq!(event.withdraw(2, proposal).await.expect(200).body, gone.body);
    assert_eq!(event.withdraw(3, proposal).await.expect(200).result()["voted"], false, "no vote to withdraw");
    assert_eq!(test.numbers(RECORDED_COUNTS).await, before);
    for word in ["approve", "reject"] {
        let proposal = event.propose(2, "assumption").await;
        let first = event.decide(CREATOR, proposal, word).await.expect(200);
        let before = test.numbers(RECORDED_COUNTS).await;
        assert_eq!(event.decide(CREATOR, proposal, word).await.expect(200).body, first.body);
        assert_eq!(test.numbers(RECORDED_COUNTS).await, before);
    }
}

pub(super) async fn enough_votes_approve_a_proposal_and_decisions_are_final(flavour: Option<Flavour>) {
    let Some(test) = start(flavour).await else { return };
    // With 50 percent of five members, three votes are enough.
    let event = Event::create(&test.hub, 50, &[2, 3, 4, 5]).await;
    event.set_member_status(6, "PENDING").await.expect(200);
    let proposal = event.propose(2, "conclusion").await;
    for (person, status, votes) in [(2, "PENDING", 1), (3, "PENDING", 2), (4, "APPROVED", 3)] {
        let voted = event.vote(person, proposal).await.expect(200);
        assert_eq!((&voted.result()["status"], &voted.result()["votes"]), (&json!(status), &json!(votes)));
    }
    let before = test.numbers(RECORDED_COUNTS).await;
    let refused = event.vote(5, proposal).await.expect_error(409, "COMMON409");
    assert!(refused.message().contains("approved"), "{}", refused.message());
    event.withdraw(2, proposal).await.expect_error(409, "COMMON409");
    event.decide(CREATOR, proposal, "reject").await.expect_error(409, "COMMON409");
    // A repeated request gets the same answer, and a withdrawal without a vote succeeds.
    assert_eq!(event.vote(2, proposal).await.expect(200).result()["status"], "APPROVED");
    assert_eq!(event.withdraw(5, proposal).await.expect(200).result()["votes"], 3);
    event.decide(CREATOR, proposal, "approve").await.expect(200);
    assert_eq!(test.numbers(RECORDED_COUNTS).await, before);
    let criterion = event.propose(2, "criteria").await;
    event.decide(CREATOR, criterion, "reject").await.expect(200);
    let before = test.numbers(RECORDED_COUNTS).await;
    let votes = event.path(&format!("/proposals/{criterion}/votes"));
    let korean = event.api.person(3).call("POST", &votes, "").await.expect_error(409, "COMMON409");
    assert_eq!(korean.message(), "이미 기각된 제안입니다.");
    event.decide(CREATOR, criterion, "approve").await.expect_error(409, "COMMON409");
    event.comment(3, criterion).await.expect_error(409, "COMMON409");
    assert_eq!(test.numbers(RECORDED_COUNTS).await, before);
    let mut stream = event.stream_from_start(&test.hub, 2).await;
    let mut told = Vec::new();
    while told.last() != Some(&"proposal.rejected.v1".to_owned()) {
        told.push(next(&mut stream).await.0);
    }
    assert_eq!(told.iter().filter(|told| *told == "proposal.approved.v1").count(), 1);
}

pub(super) async fn an_ended_membership_removes_the_vote_and_closes_the_stream(flavour: Option<Flavour>) {
    let Some(test) = start(flavour).await else { return };
    let event = Event::create(&test.hub, 50, &[2, 3, 4]).await;
    let proposal = event.propose(2, "assumption").await;
    event.vote(2, proposal).await.expect(200);
    let mut stream = event.stream_from_start(&test.hub, 2).await;
    stream.take_events(2, WAIT_TIMEOUT).await;
    event.set_member_status(2, "REJECTED").await.expect(200);
    let close = stream.expect_event("system.close", WAIT_TIMEOUT).await;
    assert_eq!(close.json()["code"], 3501);
    let again = stream_request(&test.hub, &event.id.to_string(), 2).open().await;
    again.err().unwrap().expect_error(403, "COMMON403");
    assert_eq!(event.get_proposal(3, proposal).await["votes"], 0, "the vote of a removed member counts");
    // The vote of a removed member no longer counts: one vote of three members is not enough.
    assert_eq!(event.vote(3, proposal).await.expect(200).result()["status"], "PENDING");
    event.set_member_status(2, "ACCEPTED").await.expect(200);
    // The votes would now be enough, but the proposal is evaluated with the next vote only.
    let seen: Value = event.get_proposal(2, proposal).await;
    assert_eq!(
        (&seen["votes"], &seen["voted"], &seen["status"]),
        (&json!(2), &json!(true), &json!("PENDING"))
    );
    assert_eq!(event.vote(4, proposal).await.expect(200).result()["status"], "APPROVED");
}
