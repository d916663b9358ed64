//! Many concurrent requests, at one hub and at two.

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::{Api, Hub, tier};
use futures_util::future::{join, join_all};
use serde_json::json;

use super::{CREATOR, Event, RECORDED_COUNTS, decision_event, next, proposal_event, start};
use crate::BONGSU;

const PERSON_COUNT: u64 = 30;

fn people() -> Vec<u64> {
    (101..=100 + PERSON_COUNT).collect()
}

/// Every person votes twice, all concurrently, spread over these hubs; returns the statuses.
async fn all_vote(ways: &[&Event], proposal: u64) -> Vec<u16> {
    let people = people();
    let vote = |(at, person): (usize, &u64)| ways[at % ways.len()].vote(*person, proposal);
    let answers = join_all(people.iter().chain(&people).enumerate().map(vote)).await;
    answers.iter().map(|answer| answer.status).collect()
}

/// Checks the proposal and its events after enough people have voted for it.
async fn expect_approved_once(event: &Event, hub: &Hub, proposal: u64, statuses: &[u16]) {
    assert!(statuses.iter().all(|status| [200, 409].contains(status)), "{statuses:?}");
    let seen = event.get_proposal(CREATOR, proposal).await;
    let votes = seen["votes"].as_u64().unwrap();
    // 16 of 31 members are enough; later votes are refused.
    assert_eq!((&seen["status"], votes), (&json!("APPROVED"), 16), "{seen}");
    assert_eq!(statuses.iter().filter(|status| **status == 200).count() as u64, 2 * votes);
    let mut stream = event.stream_from_start(hub, CREATOR).await;
    assert_eq!(next(&mut stream).await, proposal_event("proposal.created.v1", proposal, "conclusion"));
    for _ in 0..votes {
        assert_eq!(
            next(&mut stream).await,
            proposal_event("proposal.vote.created.v1", proposal, "conclusion")
        );
    }
    let approved = decision_event("proposal.approved.v1", proposal, "conclusion", "APPROVED");
    assert_eq!(next(&mut stream).await, approved, "the approval must follow the deciding vote");
    let comment = event.propose(CREATOR, "criteria").await;
    assert_eq!(
        next(&mut stream).await,
        proposal_event("proposal.created.v1", comment, "criteria"),
        "no other event must come before it"
    );
}

pub(super) async fn thirty_people_who_vote_at_once_approve_exactly_once(flavour: Option<Flavour>) {
    let Some(test) = start(flavour).await else { return };
    let event = Event::create(&test.hub, 50, &people()).await;
    let proposal = event.propose(CREATOR, "conclusion").await;
    let statuses = all_vote(&[&event], proposal).await;
    expect_approved_once(&event, &test.hub, proposal, &statuses).await;
    // 16 votes, one approval and two proposals.
    assert_eq!(test.numbers(RECORDED_COUNTS).await, [1, 1, 1, 0, 16, 0, 0, 31, 0, 19]);
    // At 100 percent every vote is needed, and every vote is counted.
    let all = Event::create(&test.hub, 100, &people()).await;
    let proposal = all.propose(CREATOR, "assumption").await;
    let statuses = all_vote(&[&all], proposal).await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let seen = all.get_proposal(CREATOR, proposal).await;
    assert_eq!((&seen["votes"], &seen["status"]), (&json!(PERSON_COUNT), &json!("PENDING")));
    assert_eq!(all.vote(CREATOR, proposal).await.expect(200).result()["status"], "APPROVED");
}

async fn two_hubs_approve_exactly_once(flavour: Flavour) {
    if !(tier::needs_engine("redis") && tier::needs_engine(flavour.name())) {
        return;
    }
    let (redis, database) = (Redis::start().await, flavour.database().await);
    let hub = || {
        let hub = Hub::builder(BONGSU).env("REDIS_URL", redis.url()).env("DATABASE_URL", &database);
        hub.env("ROLES", "all").env("SSE_MAX_CONNECTIONS_PER_USER", 0).start()
    };
    let (one, other) = join(hub(), hub()).await;
    let event = Event::create(&one, 50, &people()).await;
    let far = Event { api: Api::at(&other.url("")).anonymous(), id: event.id };
    let proposal = event.propose(CREATOR, "conclusion").await;
    let statuses = all_vote(&[&event, &far], proposal).await;
    expect_approved_once(&event, &other, proposal, &statuses).await;
}

#[tokio::test]
async fn two_hubs_on_postgres_approve_exactly_once() {
    two_hubs_approve_exactly_once(Flavour::Postgres).await;
}

#[tokio::test]
async fn two_hubs_on_mariadb_approve_exactly_once() {
    two_hubs_approve_exactly_once(Flavour::MariaDb).await;
}

pub(super) async fn a_proposal_is_decided_once_however_many_decide(flavour: Option<Flavour>) {
    let Some(test) = start(flavour).await else { return };
    let event = Event::create(&test.hub, 1, &[2]).await;
    for round in 0..tier::size(5, 50) {
        let proposal = event.propose(2, "assumption").await;
        let words = ["approve", "reject", "approve", "reject"];
        let words = join_all(words.map(|word| event.decide(CREATOR, proposal, word)));
        let (decided, voted) = join(words, event.vote(2, proposal)).await;
        let status = event.get_proposal(2, proposal).await["status"].as_str().unwrap().to_owned();
        for (at, answer) in decided.iter().enumerate() {
            let expected = if (status == "APPROVED") == (at % 2 == 0) { 200 } else { 409 };
            assert_eq!(answer.status, expected, "{status} in round {round}: {}", answer.text());
        }
        assert!([200, 409].contains(&voted.status), "{}", voted.text());
        let told = format!(
            "SELECT count(*) FROM outbox_events WHERE event_type IN ('proposal.approved.v1', 'proposal.rejected.v1') \
             AND payload LIKE '%\"proposal_id\":{proposal},%'"
        );
        assert_eq!(test.numbers(&told).await, [1], "round {round}");
    }
}

pub(super) async fn a_concurrently_removed_member_votes_before_the_removal_or_not_at_all(
    flavour: Option<Flavour>,
) {
    let Some(test) = start(flavour).await else { return };
    let event = Event::create(&test.hub, 100, &[2, 3]).await;
    for round in 0..tier::size(5, 50) {
        let proposal = event.propose(3, "assumption").await;
        let (voted, removed) = join(event.vote(2, proposal), event.set_member_status(2, "REJECTED")).await;
        removed.expect(200);
        // Either the row of the vote has a smaller id than the removal, or there is no row of the vote.
        let after = format!(
            "SELECT count(*) FROM outbox_events WHERE event_type = 'proposal.vote.created.v1' \
             AND payload LIKE '%\"proposal_id\":{proposal},%' \
             AND id > (SELECT max(id) FROM outbox_events WHERE event_type = 'system.removed')"
        );
        assert_eq!(test.numbers(&after).await, [0], "round {round}");
        let votes = format!("SELECT count(*) FROM decision_votes WHERE proposal_id = {proposal}");
        let expected = match voted.status {
            200 => 1,
            403 => 0,
            _ => panic!("{}", voted.text()),
        };
        assert_eq!(test.numbers(&votes).await, [expected], "round {round}");
        event.set_member_status(2, "ACCEPTED").await.expect(200);
    }
}
