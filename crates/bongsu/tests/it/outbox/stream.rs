//! The stream of an event's outbox rows.

use bongsu_testkit::sql::Flavour;
use bongsu_testkit::sse::Item;
use serde_json::json;

use super::{OutboxTest, WAIT_TIMEOUT, numbers, open};

pub(super) async fn committed_rows_arrive_live_and_by_catch_up(flavour: Option<Flavour>) {
    let Some(test) = OutboxTest::start(flavour).await else { return };
    test.accept("42", &[7, 8]).await;
    test.write("42", [1]).await;
    let mut stream = open(test.stream_request("42", 7)).await;
    assert_eq!(stream.next(WAIT_TIMEOUT).await, Some(Item::Retry(5_000)));
    test.write("other", [2]).await;
    test.write("42", [3, 4]).await;
    let mut told = stream.take_events(2, WAIT_TIMEOUT).await;
    if numbers(&told)[0] == 1 {
        // Row 1 got its position only after the stream had begun.
        told.remove(0);
        told.extend(stream.take_events(1, WAIT_TIMEOUT).await);
    }
    assert_eq!(numbers(&told), [3, 4]);
    let data = told[0].json();
    assert_eq!(data["event_type"], "proposal.created.v1");
    assert_eq!(data["payload"], json!({"proposal_id": 3}));
    assert!(data["created_at"].as_str().unwrap().ends_with('Z'), "{data}");
    assert_eq!(data.as_object().unwrap().len(), 4, "{data}");
    let last = stream.last_event_id().to_owned();
    drop(stream);
    test.write("42", [5, 6]).await;
    let mut back = open(test.stream_request("42", 7).last_event_id(&last)).await;
    let mut query = open(
        bongsu_testkit::sse::Stream::request(&test.hub, &format!("/events/42/stream?last_event_id={last}"))
            .person(8),
    )
    .await;
    assert_eq!(numbers(&back.take_events(2, WAIT_TIMEOUT).await), [5, 6]);
    assert_eq!(numbers(&query.take_events(2, WAIT_TIMEOUT).await), [5, 6]);
    test.write("42", [7]).await;
    assert_eq!(numbers(&back.take_events(1, WAIT_TIMEOUT).await), [7]);
    assert_eq!(numbers(&query.take_events(1, WAIT_TIMEOUT).await), [7]);
}

pub(super) async fn malformed_and_unknown_positions_are_reported(flavour: Option<Flavour>) {
    let Some(test) = OutboxTest::start(flavour).await else { return };
    test.accept("42", &[7]).await;
    for position in ["x", "1-0", "01", "1.5", "99999999999999999999"] {
        let refused =
            test.stream_request("42", 7).last_event_id(position).open().await.err().expect(position);
        assert!(refused.expect_error(400, "COMMON400").text().contains("Last-Event-ID"));
    }
    let mut empty = open(test.stream_request("42", 7)).await;
    assert_eq!(empty.next(WAIT_TIMEOUT).await, Some(Item::Retry(5_000)));
    assert_eq!(empty.last_event_id(), "0", "the position before the first row");
    test.write("42", 1..=3).await;
    assert_eq!(numbers(&empty.take_events(3, WAIT_TIMEOUT).await), [1, 2, 3]);
    let mut beginning = open(test.stream_request("42", 7).last_event_id("0")).await;
    assert_eq!(numbers(&beginning.take_events(3, WAIT_TIMEOUT).await), [1, 2, 3]);
    let mut unknown = open(test.stream_request("42", 7).last_event_id("999999")).await;
    let reset = unknown.expect_event("system.reset", WAIT_TIMEOUT).await;
    assert_eq!((reset.json()["reason"].clone(), reset.own_id), (json!("unknown"), None));
    assert_eq!(
        numbers(&unknown.take_events(3, WAIT_TIMEOUT).await),
        [1, 2, 3],
        "all rows must follow the reset"
    );
    test.write("42", [4]).await;
    for stream in [&mut empty, &mut beginning, &mut unknown] {
        assert_eq!(numbers(&stream.take_events(1, WAIT_TIMEOUT).await), [4]);
    }
}

pub(super) async fn more_rows_than_a_page_are_delivered_in_order(flavour: Option<Flavour>) {
    let Some(test) = OutboxTest::start(flavour).await else { return };
    test.accept("42", &[7]).await;
    let mut live = open(test.stream_request("42", 7)).await;
    // All rows have the same creation time.
    test.write("42", 1..=1_500).await;
    let all: Vec<u64> = (1..=1_500).collect();
    assert_eq!(numbers(&live.take_events(1_500, WAIT_TIMEOUT).await), all);
    let mut back = open(test.stream_request("42", 7).last_event_id("0")).await;
    assert_eq!(numbers(&back.take_events(1_500, WAIT_TIMEOUT).await), all);
}

pub(super) async fn a_withdrawal_closes_the_stream_at_its_position(flavour: Option<Flavour>) {
    let Some(test) = OutboxTest::start(flavour).await else { return };
    test.accept("42", &[7, 8]).await;
    let mut removed = open(test.stream_request("42", 7)).await;
    let mut stays = open(test.stream_request("42", 8)).await;
    test.sql(&format!(
        "BEGIN; {}; UPDATE memberships SET status = 'REJECTED' WHERE user_id = '7'; {}; COMMIT",
        super::rows("42", [1, 2]),
        super::rows("42", [3])
    ))
    .await;
    assert_eq!(numbers(&stays.take_events(3, WAIT_TIMEOUT).await), [1, 2, 3]);
    let told = removed.take_events(2, WAIT_TIMEOUT).await;
    assert_eq!(numbers(&told), [1, 2], "rows before the removal");
    let close = removed.expect_event("system.close", WAIT_TIMEOUT).await;
    assert_eq!(close.json()["code"], 3501);
    let end = format!("end.3501.{}", told[1].json()["id"]);
    assert_eq!(close.own_id.as_deref(), Some(end.as_str()));
    assert_eq!(removed.next(WAIT_TIMEOUT).await, None);
    let refused = test.stream_request("42", 7).open().await.err().unwrap();
    refused.expect_error(403, "COMMON403");
    let stopped = test.stream_request("42", 7).last_event_id(&end).open().await.err().unwrap();
    assert_eq!(stopped.status, 204);
    test.sql("UPDATE memberships SET status = 'ACCEPTED' WHERE user_id = '7'").await;
    let mut again = open(test.stream_request("42", 7).last_event_id(&told[0].json()["id"].to_string())).await;
    assert_eq!(
        numbers(&again.take_events(2, WAIT_TIMEOUT).await),
        [2, 3],
        "a member who is added again resumes"
    );
    // The membership is removed and added again before any hub has processed the removal.
    for number in 10..20 {
        let out_and_in = "UPDATE memberships SET status = 'PENDING' WHERE user_id = '7'; \
            UPDATE memberships SET status = 'ACCEPTED' WHERE user_id = '7'";
        test.sql(out_and_in).await;
        let mut quick = open(test.stream_request("42", 7)).await;
        test.write("42", [number]).await;
        assert_eq!(numbers(&quick.take_events(1, WAIT_TIMEOUT).await), [number]);
    }
}

pub(super) async fn only_accepted_members_may_follow(flavour: Option<Flavour>) {
    let Some(test) = OutboxTest::start(flavour).await else { return };
    test.accept("42", &[7]).await;
    test.sql("INSERT INTO memberships VALUES ('42', '8', 'PENDING'), ('42', '9', 'REJECTED')").await;
    for person in [8, 9, 10] {
        let refused = test.stream_request("42", person).open().await.err().unwrap();
        refused.expect_error(403, "COMMON403");
    }
    for event in ["43", "-"] {
        let refused = test.stream_request(event, 7).open().await.err().unwrap();
        refused.expect_error(404, "COMMON404");
    }
    let nobody = bongsu_testkit::sse::Stream::request(&test.hub, "/events/42/stream").open().await;
    nobody.err().unwrap().expect_error(401, "AUTH4001");
    open(test.stream_request("42", 7)).await;
}

pub(super) async fn a_silent_stream_pings(flavour: Option<Flavour>) {
    let with = |builder: bongsu_testkit::hub::Builder| builder.env("OUTBOX_PING_SECS", 1);
    let Some(test) = OutboxTest::start_with(flavour, with).await else { return };
    test.accept("42", &[7]).await;
    let mut stream = open(test.stream_request("42", 7)).await;
    assert_eq!(stream.next(WAIT_TIMEOUT).await, Some(Item::Retry(5_000)));
    assert_eq!(stream.next(WAIT_TIMEOUT).await, Some(Item::Comment(" ping".to_owned())));
}
