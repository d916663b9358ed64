//! What becomes of messages: handled in order, retried, given up, redriven.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_kernel::{Backoff, BoxFuture, Clock, Id};
use bongsu_queue::{
    Consumer, ConsumerOptions, MessageHandler, PublishFailure, QueueDelivery, QueueMessage, Queues,
    Rejection, TopicPattern,
};
use bongsu_testkit::wait;
use futures_util::future::join_all;
use tokio::task::JoinHandle;

use crate::database::Database;

pub(crate) const QUEUE: &str = "test_queue";
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const NOW: u64 = 1_800_000_000_000;
const MINUTE: u64 = 60_000;

pub(crate) fn id(text: &str) -> Id {
    Id::new(text).unwrap()
}

/// A message of a key, with its number as the payload.
pub(crate) fn message(key: &str, number: u64) -> QueueMessage {
    QueueMessage {
        id: id(&format!("{key}-{number}")),
        topic: id("test.row"),
        key: Some(id(key)),
        headers: BTreeMap::from([("origin".to_owned(), "테스트".to_owned())]),
        payload: number.to_string().into(),
    }
}

/// The queues of a hub, with one queue that is bound to `test.*`.
pub(crate) async fn queues(database: &Database, clock: Clock) -> Queues {
    let queues = Queues::new(database.records().await, clock);
    queues.declare(QUEUE, [TopicPattern::new("test.*")]);
    queues
}

/// Records the messages that it is called with, and returns the errors that the test has set.
#[derive(Default)]
pub(crate) struct RecordingHandler {
    /// Key and payload of each call.
    calls: Mutex<Vec<(String, u64)>>,
    /// The errors by message id; other messages succeed.
    errors: Mutex<BTreeMap<String, Rejection>>,
    /// Keys whose messages are never finished.
    hanging_keys: Mutex<HashSet<String>>,
    panicking_keys: Mutex<HashSet<String>>,
}

impl MessageHandler for RecordingHandler {
    fn handle<'a>(&'a self, delivery: &'a QueueDelivery) -> BoxFuture<'a, Result<(), Rejection>> {
        Box::pin(async move {
            let QueueMessage { id, key, payload, .. } = &delivery.message;
            let key = key.as_ref().map_or("", Id::as_str);
            let number = String::from_utf8_lossy(payload).parse().unwrap_or(u64::MAX);
            self.calls.lock().unwrap().push((key.to_owned(), number));
            if self.hanging_keys.lock().unwrap().contains(key) {
                std::future::pending::<()>().await;
            }
            let panics = self.panicking_keys.lock().unwrap().contains(key);
            assert!(!panics, "as the test has set");
            // Another message may be handled in between.
            tokio::task::yield_now().await;
            let error = self.errors.lock().unwrap().get(id.as_str()).cloned();
            error.map_or(Ok(()), Err)
        })
    }
}

impl RecordingHandler {
    pub(crate) fn calls(&self) -> BTreeMap<String, Vec<u64>> {
        let mut calls: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (key, number) in self.calls.lock().unwrap().iter() {
            calls.entry(key.clone()).or_default().push(*number);
        }
        calls
    }

    fn calls_of(&self, key: &str) -> Vec<u64> {
        self.calls().remove(key).unwrap_or_default()
    }

    pub(crate) fn count(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    fn set_error(&self, id: &str, error: Rejection) {
        self.errors.lock().unwrap().insert(id.to_owned(), error);
    }

    fn clear_errors(&self) {
        self.errors.lock().unwrap().clear();
    }

    async fn wait_for_calls(&self, key: &str, expected: &[u64]) {
        let arrived =
            wait::holds_within(WAIT_TIMEOUT, async || self.calls_of(key).len() >= expected.len()).await;
        assert!(arrived, "of {key} were handled {:?}, expected {expected:?}", self.calls_of(key));
        assert_eq!(self.calls_of(key), expected, "the messages of {key}");
    }
}

pub(crate) fn options() -> ConsumerOptions {
    ConsumerOptions {
        // A test with a manual clock decides when a parked message is due.
        retry: Backoff::new(Duration::from_secs(60), Duration::from_secs(60), (100, 100)),
        poll_interval: Duration::from_millis(20),
        ..ConsumerOptions::default()
    }
}

pub(crate) fn start(queues: &Queues, handler: &Arc<RecordingHandler>) -> JoinHandle<()> {
    start_with(queues, handler, options())
}

fn start_with(queues: &Queues, handler: &Arc<RecordingHandler>, options: ConsumerOptions) -> JoinHandle<()> {
    let consumer: Consumer = queues.consumer(QUEUE, handler.clone(), options).unwrap();
    tokio::spawn(async move { consumer.run().await })
}

async fn wait_until_empty(queues: &Queues) {
    wait::until(WAIT_TIMEOUT, async || queues.depth(QUEUE).await.unwrap().messages == 0).await;
}

pub(crate) async fn messages_are_handled_once_in_the_order_of_their_keys(database: Database) {
    let (queues, handler) = (queues(&database, Clock::system()).await, Arc::default());
    let consumer = start(&queues, &handler);
    for round in 0..20 {
        let batch: Vec<QueueMessage> =
            (0..50).flat_map(|key| (0..2).map(move |n| message(&format!("k{key}"), round * 2 + n))).collect();
        queues.publish(&batch).await.unwrap();
    }
    queues.publish(&[QueueMessage { key: None, ..message("alone", 7) }]).await.unwrap();
    wait_until_empty(&queues).await;
    let calls = handler.calls();
    let expected: Vec<u64> = (0..40).collect();
    for key in 0..50 {
        assert_eq!(calls[&format!("k{key}")], expected);
    }
    assert_eq!(calls[""], [7]);
    consumer.abort();
}

pub(crate) async fn a_failing_message_holds_back_only_its_key_and_becomes_a_dead_letter(database: Database) {
    let (clock, handler) = (Clock::manual(NOW), Arc::new(RecordingHandler::default()));
    let queues = queues(&database, clock.clone()).await;
    handler.set_error("a-0", Rejection::Retryable("no".to_owned()));
    let mut batch: Vec<QueueMessage> = (0..700).map(|n| message("a", n)).collect();
    batch.push(message("b", 0));
    queues.publish(&batch).await.unwrap();
    let consumer = start(&queues, &handler);
    handler.wait_for_calls("b", &[0]).await;
    queues.publish(&[message("a", 700), message("b", 1)]).await.unwrap();
    handler.wait_for_calls("b", &[0, 1]).await;
    handler.wait_for_calls("a", &[0]).await;
    clock.set(NOW + MINUTE);
    handler.wait_for_calls("a", &[0, 0]).await;
    assert_eq!(queues.dead_letter_count(QUEUE).await.unwrap(), 0);
    // After the third attempt the message is given up, and the others follow in their order.
    clock.set(NOW + 2 * MINUTE);
    let expected: Vec<u64> = [0, 0].into_iter().chain(0..=700).collect();
    handler.wait_for_calls("a", &expected).await;
    wait_until_empty(&queues).await;
    let letters = queues.dead_letters(QUEUE, i64::MIN, 10).await.unwrap();
    let found: Vec<(&str, &str, u64, &str)> = letters
        .iter()
        .map(|letter| (letter.key.as_str(), letter.topic.as_str(), letter.attempts, letter.reason.as_str()))
        .collect();
    assert_eq!(found, [("a", "test.row", 3, "no")]);
    assert_eq!(letters[0].published_at, NOW);
    consumer.abort();
}

pub(crate) async fn an_unreadable_message_becomes_a_dead_letter_at_once_byte_for_byte(database: Database) {
    let (queues, handler) = (queues(&database, Clock::system()).await, Arc::new(RecordingHandler::default()));
    let payload: Vec<u8> = (0..=255).collect();
    handler.set_error("a-0", Rejection::Permanent("unreadable".to_owned()));
    queues
        .publish(&[QueueMessage { payload: payload.clone().into(), ..message("a", 0) }, message("a", 1)])
        .await
        .unwrap();
    let consumer = start(&queues, &handler);
    handler.wait_for_calls("a", &[u64::MAX, 1]).await;
    wait_until_empty(&queues).await;
    let letters = queues.dead_letters(QUEUE, i64::MIN, 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].payload.as_ref(), letters[0].attempts), (payload.as_slice(), 1));
    assert!(queues.discard(QUEUE, letters[0].id).await.unwrap());
    assert!(!queues.discard(QUEUE, letters[0].id).await.unwrap());
    consumer.abort();
}

pub(crate) async fn an_unavailable_engine_costs_no_attempt(database: Database) {
    let (queues, handler) = (queues(&database, Clock::system()).await, Arc::new(RecordingHandler::default()));
    handler.set_error("a-0", Rejection::Unavailable("the engine is away".to_owned()));
    let consumer = start(&queues, &handler);
    queues.publish(&[message("a", 0), message("a", 1), message("b", 0)]).await.unwrap();
    // More than the limit of attempts.
    wait::until(WAIT_TIMEOUT, async || handler.calls_of("a").len() >= 5).await;
    assert!(handler.calls_of("a").iter().all(|number| *number == 0), "the later message waits");
    handler.clear_errors();
    wait_until_empty(&queues).await;
    assert_eq!(handler.calls_of("a").last(), Some(&1));
    assert_eq!(queues.dead_letter_count(QUEUE).await.unwrap(), 0);
    consumer.abort();
}

pub(crate) async fn a_handler_that_panics_is_a_failed_attempt(database: Database) {
    let (queues, handler) = (queues(&database, Clock::system()).await, Arc::new(RecordingHandler::default()));
    handler.panicking_keys.lock().unwrap().insert("a".to_owned());
    let consumer = start_with(&queues, &handler, ConsumerOptions { max_attempts: 1, ..options() });
    queues.publish(&[message("a", 0), message("b", 0)]).await.unwrap();
    handler.wait_for_calls("b", &[0]).await;
    wait_until_empty(&queues).await;
    let letters = queues.dead_letters(QUEUE, i64::MIN, 10).await.unwrap();
    let reasons: Vec<&str> = letters.iter().map(|letter| letter.reason.as_str()).collect();
    assert_eq!(reasons, ["the handler panicked"]);
    consumer.abort();
}

pub(crate) async fn a_retry_that_is_due_at_once_keeps_the_order(database: Database) {
    let (queues, handler) = (queues(&database, Clock::system()).await, Arc::new(RecordingHandler::default()));
    handler.set_error("a-0", Rejection::Retryable("no".to_owned()));
    let batch: Vec<QueueMessage> = (0..300).map(|n| message("a", n)).collect();
    queues.publish(&batch).await.unwrap();
    let retry = Backoff::new(Duration::ZERO, Duration::ZERO, (100, 100));
    let consumer = start_with(&queues, &handler, ConsumerOptions { retry, ..options() });
    let expected: Vec<u64> = [0, 0].into_iter().chain(0..300).collect();
    handler.wait_for_calls("a", &expected).await;
    consumer.abort();
}

pub(crate) async fn concurrent_redrives_put_a_message_back_once(database: Database) {
    let (queues, handler) = (queues(&database, Clock::system()).await, Arc::new(RecordingHandler::default()));
    handler.set_error("a-0", Rejection::Permanent("no".to_owned()));
    let consumer = start(&queues, &handler);
    queues.publish(&[message("a", 0)]).await.unwrap();
    handler.wait_for_calls("a", &[0]).await;
    wait_until_empty(&queues).await;
    consumer.abort();
    let id = queues.dead_letters(QUEUE, i64::MIN, 1).await.unwrap()[0].id;
    let redrives = join_all((0..8).map(|_| queues.redrive(QUEUE, vec![id]))).await;
    assert_eq!(redrives.into_iter().map(Result::unwrap).sum::<u64>(), 1);
    assert_eq!(queues.depth(QUEUE).await.unwrap().messages, 1);
}

pub(crate) async fn a_redriven_message_keeps_its_id_and_is_outside_the_order(database: Database) {
    let (clock, handler) = (Clock::manual(NOW), Arc::new(RecordingHandler::default()));
    let queues = queues(&database, clock.clone()).await;
    handler.set_error("a-1", Rejection::Permanent("not yet".to_owned()));
    let consumer = start(&queues, &handler);
    queues.publish(&[message("a", 1), message("a", 2)]).await.unwrap();
    handler.wait_for_calls("a", &[1, 2]).await;
    wait_until_empty(&queues).await;
    let letters = queues.dead_letters(QUEUE, i64::MIN, 10).await.unwrap();
    // It fails again, and while it is parked the key goes on.
    handler.set_error("a-1", Rejection::Retryable("still not".to_owned()));
    assert_eq!(queues.redrive(QUEUE, vec![letters[0].id, 1_000_000]).await.unwrap(), 1);
    handler.wait_for_calls("a", &[1, 2, 1]).await;
    queues.publish(&[message("a", 3)]).await.unwrap();
    handler.wait_for_calls("a", &[1, 2, 1, 3]).await;
    handler.clear_errors();
    clock.set(NOW + MINUTE);
    handler.wait_for_calls("a", &[1, 2, 1, 3, 1]).await;
    wait_until_empty(&queues).await;
    assert_eq!(queues.dead_letter_count(QUEUE).await.unwrap(), 0);
    consumer.abort();
}

pub(crate) async fn a_slow_key_does_not_delay_other_keys(database: Database) {
    let (queues, handler) = (queues(&database, Clock::system()).await, Arc::new(RecordingHandler::default()));
    handler.hanging_keys.lock().unwrap().insert("slow".to_owned());
    // More messages than a consumer holds, in front of all others.
    for page in 0..4 {
        let batch: Vec<QueueMessage> = (0..500).map(|n| message("slow", page * 500 + n)).collect();
        queues.publish(&batch).await.unwrap();
    }
    let consumer = start(&queues, &handler);
    queues.publish(&[message("b", 0), message("b", 1)]).await.unwrap();
    handler.wait_for_calls("b", &[0, 1]).await;
    handler.wait_for_calls("slow", &[0]).await;
    consumer.abort();
    // Nothing of the slow key is lost, and its order is kept.
    handler.hanging_keys.lock().unwrap().clear();
    let consumer = start(&queues, &handler);
    let expected: Vec<u64> = [0].into_iter().chain(0..2_000).collect();
    handler.wait_for_calls("slow", &expected).await;
    consumer.abort();
}

pub(crate) async fn a_message_for_an_unbound_topic_is_refused(database: Database) {
    let queues = queues(&database, Clock::system()).await;
    let unbound = QueueMessage { topic: id("other.row"), ..message("a", 0) };
    let refused = queues.publish(&[message("a", 0), unbound]).await;
    assert!(matches!(refused, Err(PublishFailure::UnboundTopic(topic)) if topic == id("other.row")));
    assert_eq!(queues.depth(QUEUE).await.unwrap().messages, 0, "all messages of a call are stored, or none");
}
