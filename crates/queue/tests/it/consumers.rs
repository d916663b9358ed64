//! Consumers that replace each other: nothing is lost, and the order of keys is kept.

use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::Clock;
use bongsu_queue::QueueMessage;
use bongsu_testkit::{Rng, tier, wait};

use crate::database::Database;
use crate::handling::{QUEUE, RecordingHandler, WAIT_TIMEOUT, message, queues, start};

pub(crate) async fn a_later_consumer_takes_over_and_nothing_is_lost(database: Database) {
    let (one, other) = (queues(&database, Clock::system()).await, queues(&database, Clock::system()).await);
    let (first, second) = (Arc::new(RecordingHandler::default()), Arc::new(RecordingHandler::default()));
    let earlier = start(&one, &first);
    one.publish(&[message("a", 0)]).await.unwrap();
    wait::until(WAIT_TIMEOUT, async || first.count() == 1).await;
    let later = start(&other, &second);
    // The earlier consumer ends by itself, although its future was not dropped.
    tokio::time::timeout(WAIT_TIMEOUT, earlier).await.expect("the earlier consumer ends").unwrap();
    one.publish(&[message("a", 1)]).await.unwrap();
    wait::until(WAIT_TIMEOUT, async || second.calls().get("a").is_some_and(|calls| calls.contains(&1))).await;
    assert_eq!(first.count(), 1);
    later.abort();
}

pub(crate) async fn consumers_that_are_killed_at_random_keep_the_order(database: Database) {
    let mut rng = Rng::for_test("queue-kills");
    let (keys, per_key) = (8_u64, tier::size(200, 4_000) as u64);
    let queues = queues(&database, Clock::system()).await;
    let handler = Arc::new(RecordingHandler::default());
    let (publisher, mut number) = (queues.clone(), 0);
    let publishing = tokio::spawn(async move {
        while number < per_key {
            let upper = (number + 10).min(per_key);
            let batch: Vec<QueueMessage> = (number..upper)
                .flat_map(|n| (0..keys).map(move |key| message(&format!("k{key}"), n)))
                .collect();
            publisher.publish(&batch).await.unwrap();
            number = upper;
        }
    });
    let mut kills = 0;
    let mut consumer = start(&queues, &handler);
    let is_done = async || publishing.is_finished() && queues.depth(QUEUE).await.unwrap().messages == 0;
    while !is_done().await {
        tokio::time::sleep(Duration::from_millis(rng.range(1..15))).await;
        consumer.abort();
        let _ = consumer.await;
        consumer = start(&queues, &handler);
        kills += 1;
    }
    consumer.abort();
    let mut repeated = 0;
    for (key, calls) in handler.calls() {
        let mut next = 0;
        for number in calls {
            assert!(number <= next, "{key}: {number} was handled before {next}");
            repeated += u64::from(number < next);
            next = next.max(number + 1);
        }
        assert_eq!(next, per_key, "{key}: messages are missing");
    }
    assert!(
        kills >= 3,
        "{kills} consumers were killed, {repeated} messages were repeated, seed {}",
        tier::seed()
    );
}
