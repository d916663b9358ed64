//! Stream tickets: valid once, for 30 seconds, on streams only.

use std::time::Duration;

use bongsu_testkit::sse::Stream;
use bongsu_testkit::tokens::Claims;
use bongsu_testkit::{Answer, Api, Hub, tokens};
use serde_json::json;

use super::{EVENTS_PATH, STREAM_PATH, TICKETS_PATH, WAIT_TIMEOUT, hub, open_stream};
use crate::BONGSU;

async fn ticket(api: &Api) -> String {
    let answer = api.post(TICKETS_PATH, json!({})).await.expect(200);
    // A ticket never outlives its token, which in most tests is valid for an hour.
    assert!(
        (1..=30).contains(&answer.result()["expiresIn"].as_u64().unwrap_or_default()),
        "{}",
        answer.text()
    );
    answer.result()["ticket"].as_str().unwrap_or_default().to_owned()
}

async fn redeem(hub: &Hub, ticket: &str) -> Result<(), u16> {
    open_stream(hub, &format!("{STREAM_PATH}?ticket={ticket}"), &[]).await.map(Stream::close)
}

#[tokio::test]
async fn a_ticket_opens_one_stream() {
    let hub = hub().await;
    let person = Api::new(&hub).person(7);
    let ticket = ticket(&person).await;
    assert!(
        ticket.len() >= 32
            && ticket.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    );
    assert_eq!(redeem(&hub, &ticket).await, Ok(()));
    assert_eq!(redeem(&hub, &ticket).await, Err(401));
    let mut all = std::collections::BTreeSet::new();
    for _ in 0..50 {
        all.insert(self::ticket(&person).await);
    }
    assert_eq!(all.len(), 50);
    // Ten requests use one ticket at the same time: one is admitted.
    let ticket = all.pop_first().unwrap();
    let attempts = (0..10).map(|_| redeem(&hub, &ticket));
    let outcomes = futures_util::future::join_all(attempts).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
}

#[tokio::test]
async fn a_ticket_is_no_token_and_a_token_is_no_ticket() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let ticket = ticket(&api.person(7)).await;
    let refused = |answer: Answer| answer.expect_error(401, "AUTH4001");
    refused(api.raw("GET", &format!("{EVENTS_PATH}&ticket={ticket}"), &[], "").await);
    refused(api.raw("POST", &format!("{TICKETS_PATH}?ticket={ticket}"), &[], "").await);
    refused(api.bearer(&ticket).get(EVENTS_PATH).await);
    let token = tokens::token(7);
    for wrong in [token.as_str(), "", "x", "%00", &"x".repeat(5_000)] {
        assert_eq!(redeem(&hub, wrong).await, Err(401), "{wrong:?}");
    }
    assert_eq!(open_stream(&hub, &format!("{STREAM_PATH}?token={ticket}"), &[]).await.err(), Some(401));
    // After these refusals the ticket is still valid.
    assert_eq!(redeem(&hub, &ticket).await, Ok(()));
}

#[tokio::test]
async fn only_a_person_gets_a_ticket() {
    let hub = hub().await;
    let api = Api::new(&hub);
    for nobody in
        [api.anonymous(), api.clone(), api.admin(), api.bearer(&Claims::new(7).token_type("refresh").sign())]
    {
        nobody.post(TICKETS_PATH, json!({})).await.expect_error(401, "AUTH4001");
    }
    Api::http2(&hub).person(7).call("POST", TICKETS_PATH, "").await.expect(200);
}

#[tokio::test]
async fn a_stream_by_ticket_closes_when_its_token_expires() {
    let hub = Hub::builder(BONGSU).movable_clock().start().await;
    let token = Claims::new(7).expires_in(600).sign();
    let ticket = ticket(&Api::new(&hub).bearer(&token)).await;
    let mut stream = open_stream(&hub, &format!("{STREAM_PATH}?ticket={ticket}"), &[]).await.ok().unwrap();
    hub.move_clock(Duration::from_secs(600)).await;
    assert_eq!(stream.expect_event("system.close", WAIT_TIMEOUT).await.json()["code"], 3502);
}

#[tokio::test]
async fn a_ticket_is_valid_for_thirty_seconds() {
    let hub = Hub::builder(BONGSU).movable_clock().start().await;
    let person = Api::new(&hub).person(7);
    let (early, late) = (ticket(&person).await, ticket(&person).await);
    hub.move_clock(Duration::from_secs(20)).await;
    assert_eq!(redeem(&hub, &early).await, Ok(()));
    hub.move_clock(Duration::from_secs(10)).await;
    assert_eq!(redeem(&hub, &late).await, Err(401));
}
