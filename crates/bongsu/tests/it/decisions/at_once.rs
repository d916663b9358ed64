//! Many who do something at the same moment, at one hub and at two.

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::{Api, Hub, tier};
use futures_util::future::{join, join_all};
use serde_json::json;

use super::{CREATOR, Event, RECORDED, next, of_decision, of_proposal, start};
use crate::BONGSU;

const PEOPLE: u64 = 30;

fn people() -> Vec<u64> {
    (101..=100 + PEOPLE).collect()
}

/// All vote at once, each of them twice, by these ways to the event.
async fn all_vote(ways: &[&Event], proposal: u64) -> Vec<u16> {
    let people = people();
    let vote = |(at, person): (usize, &u64)| ways[at % ways.len()].vote(*person, proposal);
    let answers = join_all(people.iter().chain(&people).enumerate().map(vote)).await;
    answers.iter().map(|answer| answer.status).collect()
}

/// What a proposal that enough voted for looks like, by its events.
async fn approved_once(event: &Event, hub: &Hub, proposal: u64, statuses: &[u16]) {
    assert!(statuses.iter().all(|status| [200, 409].contains(status)), "{statuses:?}");
    let seen = event.look(CREATOR, proposal).await;
    let votes = seen["votes"].as_u64().unwrap();
    // Sixteen of thirty-one, and from then on nobody.
    assert_eq!((&seen["status"], votes), (&json!("APPROVED"), 16), "{seen}");
    assert_eq!(statuses.iter().filter(|status| **status == 200).count() as u64, 2 * votes);
    let mut stream = event.follow(hub, CREATOR).await;
    assert_eq!(next(&mut stream).await, of_proposal("proposal.created.v1", proposal, "conclusion"));
    for _ in 0..votes {
        assert_eq!(next(&mut stream).await, of_proposal("proposal.vote.created.v1", proposal, "conclusion"));
    }
    let approved = of_decision("proposal.approved.v1", proposal, "conclusion", "APPROVED");
    assert_eq!(next(&mut stream).await, approved, "with the vote that was enough, and after it");
    let comment = event.propose(CREATOR, "criteria").await;
    assert_eq!(
        next(&mut stream).await,
        of_proposal("proposal.created.v1", comment, "criteria"),
        "and no more"
    );
}

pub(super) async fn thirty_people_who_vote_at_once_approve_exactly_once(flavour: Option<Flavour>) {
    let Some(scene) = start(flavour).await else { return };
    let event = Event::create(&scene.hub, 50, &people()).await;
    let proposal = event.propose(CREATOR, "conclusion").await;
    let statuses = all_vote(&[&event], proposal).await;
    approved_once(&event, &scene.hub, proposal, &statuses).await;
    // Sixteen votes, an approval and two proposals.
    assert_eq!(scene.numbers(RECORDED).await, [1, 1, 1, 0, 16, 0, 0, 31, 0, 19]);
    // Where all are needed, all are counted.
    let all = Event::create(&scene.hub, 100, &people()).await;
    let proposal = all.propose(CREATOR, "assumption").await;
    let statuses = all_vote(&[&all], proposal).await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let seen = all.look(CREATOR, proposal).await;
    assert_eq!((&seen["votes"], &seen["status"]), (&json!(PEOPLE), &json!("PENDING")));
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
    approved_once(&event, &other, proposal, &statuses).await;
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
    let Some(scene) = start(flavour).await else { return };
    let event = Event::create(&scene.hub, 1, &[2]).await;
    for round in 0..tier::size(5, 50) {
        let proposal = event.propose(2, "assumption").await;
        let words = ["approve", "reject", "approve", "reject"];
        let words = join_all(words.map(|word| event.decide(CREATOR, proposal, word)));
        let (decided, voted) = join(words, event.vote(2, proposal)).await;
        let status = event.look(2, proposal).await["status"].as_str().unwrap().to_owned();
        for (at, answer) in decided.iter().enumerate() {
            let expected = if (status == "APPROVED") == (at % 2 == 0) { 200 } else { 409 };
            assert_eq!(answer.status, expected, "{status} in round {round}: {}", answer.text());
        }
        assert!([200, 409].contains(&voted.status), "{}", voted.text());
        let told = format!(
            "SELECT count(*) FROM outbox_events WHERE event_type IN ('proposal.approved.v1', 'proposal.rejected.v1') \
             AND payload LIKE '%\"proposal_id\":{proposal},%'"
        );
        assert_eq!(scene.numbers(&told).await, [1], "round {round}");
    }
}

pub(super) async fn who_is_removed_meanwhile_votes_before_it_or_not_at_all(flavour: Option<Flavour>) {
    let Some(scene) = start(flavour).await else { return };
    let event = Event::create(&scene.hub, 100, &[2, 3]).await;
    for round in 0..tier::size(5, 50) {
        let proposal = event.propose(3, "assumption").await;
        let (voted, removed) = join(event.vote(2, proposal), event.admit(2, "REJECTED")).await;
        removed.expect(200);
        // The row of the vote has the smaller id, or there is none.
        let after = format!(
            "SELECT count(*) FROM outbox_events WHERE event_type = 'proposal.vote.created.v1' \
             AND payload LIKE '%\"proposal_id\":{proposal},%' \
             AND id > (SELECT max(id) FROM outbox_events WHERE event_type = 'system.removed')"
        );
        assert_eq!(scene.numbers(&after).await, [0], "round {round}");
        let votes = format!("SELECT count(*) FROM decision_votes WHERE proposal_id = {proposal}");
        let expected = match voted.status {
            200 => 1,
            403 => 0,
            _ => panic!("{}", voted.text()),
        };
        assert_eq!(scene.numbers(&votes).await, [expected], "round {round}");
        event.admit(2, "ACCEPTED").await.expect(200);
    }
}
