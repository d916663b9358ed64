//! Publishers that continue through crashes and record their requests and answers, and the comparison of those
//! records with the stored events.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bongsu_testkit::{Api, Rng, wait};
use serde_json::{Value, json};

/// The room that keeps all events.
pub(super) const MAIN_ROOM: &str = "main";
/// The room that keeps a few events, so that it is trimmed all the time.
pub(super) const TRIMMED_ROOM: &str = "small";
/// The recipient of all events with a key.
pub(super) const RECIPIENT: &str = "somebody";

/// Members of the registered room; fewer than a room may have.
const MAX_MEMBERS: u64 = 1_000;
const RESTART_TIMEOUT: Duration = Duration::from_secs(60);

/// One published event and its outcome.
#[derive(Clone, Debug)]
pub(super) struct PublishedEvent {
    pub(super) room: &'static str,
    pub(super) event: Value,
    /// The id in the answer; None when no answer came.
    pub(super) id: Option<String>,
}

#[derive(Default)]
pub(super) struct Load {
    next: AtomicU64,
    pub(super) acknowledged: AtomicU64,
    /// Requests that were sent and never answered.
    pub(super) cut: AtomicU64,
    /// Requests that were repeated with the same key and turned out to be stored already.
    pub(super) found_stored: AtomicU64,
    /// How many members were registered; their numbers start at 0.
    pub(super) registered: AtomicU64,
    paused: AtomicBool,
    stopped: AtomicBool,
    told: Mutex<HashMap<u64, PublishedEvent>>,
}

impl Load {
    /// No request is sent until [`Load::resume`].
    pub(super) fn pause(&self) {
        self.paused.store(true, Ordering::SeqCst);
    }

    pub(super) fn resume(&self) {
        self.paused.store(false, Ordering::SeqCst);
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.resume();
    }

    pub(super) fn published(&self) -> HashMap<u64, PublishedEvent> {
        self.told.lock().unwrap().clone()
    }

    /// One publisher: single events with and without a key, and batches over both rooms.
    pub(super) async fn publish(&self, api: &Api, mut rng: Rng) {
        while !self.stopped.load(Ordering::SeqCst) {
            wait::until(RESTART_TIMEOUT, async || !self.paused.load(Ordering::SeqCst)).await;
            match rng.below(4) {
                0 => self.publish_without_key(api).await,
                1 => self.publish_with_keys(api, vec![self.event(MAIN_ROOM, true)]).await,
                _ => {
                    let rooms = [MAIN_ROOM, TRIMMED_ROOM, MAIN_ROOM, TRIMMED_ROOM, TRIMMED_ROOM];
                    self.publish_with_keys(api, rooms.map(|room| self.event(room, true)).to_vec()).await;
                }
            }
        }
    }

    /// Adds members to a room without events, repeating each request until it is answered; after the last member it
    /// starts again.
    pub(super) async fn register(&self, api: &Api) {
        let mut next = 0;
        while !self.stopped.load(Ordering::SeqCst) {
            wait::until(RESTART_TIMEOUT, async || !self.paused.load(Ordering::SeqCst)).await;
            let path = format!("/api/v1/rooms/registered/members/{}", next % MAX_MEMBERS);
            let room = if next == 0 { "/api/v1/rooms/registered" } else { path.as_str() };
            for path in [room, &path] {
                let answered = wait::value_within(RESTART_TIMEOUT, || async {
                    if self.paused.load(Ordering::SeqCst) {
                        return None;
                    }
                    api.try_call("PUT", path, "").await.inspect_err(|error| self.count_cut(error)).ok()
                });
                answered.await.expect("an answer after the restart").expect(200);
            }
            next += 1;
            self.registered.store(next.min(MAX_MEMBERS), Ordering::SeqCst);
        }
    }

    fn event(&self, room: &'static str, keyed: bool) -> (u64, PublishedEvent) {
        let n = self.next.fetch_add(1, Ordering::SeqCst);
        let data = json!({"n": n, "text": format!("event {n}\nof {room}: 봉수")});
        let mut event = json!({"roomId": room, "eventType": "crash.counted", "data": data, "publisherId": n});
        if keyed {
            event["idempotencyKey"] = json!(format!("key-{n}"));
            event["recipients"] = json!([RECIPIENT]);
        }
        (n, PublishedEvent { room, event, id: None })
    }

    /// Publishes an event once: without an answer its outcome is unknown.
    async fn publish_without_key(&self, api: &Api) {
        let (n, mut told) = self.event(MAIN_ROOM, false);
        match api.try_publish(&told.event).await {
            Ok(answer) => {
                told.id = answer.expect(200).result()["streamId"].as_str().map(str::to_owned);
                self.acknowledged.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) => self.count_cut(&error),
        }
        self.told.lock().unwrap().insert(n, told);
    }

    /// Repeats a publish with the same keys until it is answered.
    async fn publish_with_keys(&self, api: &Api, mut events: Vec<(u64, PublishedEvent)>) {
        let batch = json!({"events": events.iter().map(|(_, told)| &told.event).collect::<Vec<_>>()});
        let tries = AtomicU64::new(0);
        let answer = wait::value_within(RESTART_TIMEOUT, || async {
            if self.paused.load(Ordering::SeqCst) {
                return None;
            }
            tries.fetch_add(1, Ordering::SeqCst);
            let sent = if events.len() == 1 {
                api.try_publish(&events[0].1.event).await
            } else {
                api.try_post("/api/v1/notifications/publish/batch", &batch).await
            };
            sent.inspect_err(|error| self.count_cut(error)).ok()
        });
        let answer = answer.await.expect("an answer after the restart").expect(200);
        let results = match answer.result()["results"].as_array() {
            Some(results) => results.clone(),
            None => vec![answer.result().clone()],
        };
        assert_eq!(results.len(), events.len(), "{}", answer.text());
        for ((_, told), result) in events.iter_mut().zip(&results) {
            told.id = Some(result["streamId"].as_str().expect("an id").to_owned());
            let repeated = result["duplicate"] == true;
            assert!(!repeated || tries.load(Ordering::SeqCst) > 1, "one request was answered as a duplicate");
            self.found_stored.fetch_add(u64::from(repeated), Ordering::SeqCst);
        }
        self.acknowledged.fetch_add(events.len() as u64, Ordering::SeqCst);
        self.told.lock().unwrap().extend(events);
    }

    fn count_cut(&self, error: &impl ConnectError) {
        if !error.refused() {
            self.cut.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// An error of the HTTP client, whose crate these tests do not depend on.
trait ConnectError {
    /// Whether the request was not sent, because no server accepted the connection.
    fn refused(&self) -> bool;
}

impl<E: std::error::Error> ConnectError for E {
    fn refused(&self) -> bool {
        let mut error: Option<&dyn std::error::Error> = Some(self);
        let mut texts = String::new();
        while let Some(one) = error {
            texts.push_str(&one.to_string());
            error = one.source();
        }
        texts.contains("tcp connect error") || texts.contains("Connection refused")
    }
}

/// A stored event, with its id and its number.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StoredEvent {
    pub(super) id: String,
    pub(super) n: u64,
    event: Value,
}

/// All events of a room, in order.
pub(super) async fn stored_events(api: &Api, room: &str) -> Vec<StoredEvent> {
    let (person, mut since, mut all) = (api.person(1), "0-0".to_owned(), Vec::new());
    for _ in 0..10_000 {
        let path = format!("/api/v1/rooms/{room}/events?since={since}&count=500");
        let page = person.get(&path).await.expect(200);
        for event in page.result()["events"].as_array().expect("a list") {
            let n = event["data"]["n"].as_u64().expect("a number");
            let id = event["id"].as_str().expect("an id").to_owned();
            all.push(StoredEvent { id, n, event: event.clone() });
        }
        if page.result()["hasMore"] == false {
            return all;
        }
        page.result()["lastId"].as_str().expect("an id").clone_into(&mut since);
    }
    panic!("the pages of room {room} have no end");
}

/// Compares the published events with those of the room that keeps all events: returns how many acknowledged
/// events are missing, and how many events are stored twice. Panics on a wrong id, content or order.
pub(super) fn compare(told: &HashMap<u64, PublishedEvent>, kept: &[StoredEvent]) -> (usize, usize) {
    assert_in_order(kept);
    let mut by_number: HashMap<u64, Vec<&StoredEvent>> = HashMap::new();
    for event in kept {
        by_number.entry(event.n).or_default().push(event);
        let told = told.get(&event.n).unwrap_or_else(|| panic!("no publisher sent {event:?}"));
        assert_same_content(told, event);
    }
    let missing = told.iter().filter(|(n, told)| {
        let expected = told.room == MAIN_ROOM && told.id.is_some();
        expected && by_number.get(n).is_none_or(|found| Some(&found[0].id) != told.id.as_ref())
    });
    let repeated = by_number.values().filter(|found| found.len() > 1);
    (missing.count(), repeated.count())
}

pub(super) fn assert_in_order(kept: &[StoredEvent]) {
    let ids: Vec<(u64, u64)> = kept.iter().map(|event| number(&event.id)).collect();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "ids are reused or out of order");
}

/// Parses a stream id into its two numbers.
pub(super) fn number(id: &str) -> (u64, u64) {
    let (ms, seq) = id.split_once('-').expect("an id");
    (ms.parse().expect("milliseconds"), seq.parse().expect("a number"))
}

pub(super) fn assert_same_content(told: &PublishedEvent, kept: &StoredEvent) {
    for member in ["eventType", "data", "publisherId"] {
        assert_eq!(kept.event[member], told.event[member], "{member} of {kept:?}");
    }
    assert!(told.id.as_ref().is_none_or(|id| *id == kept.id), "{told:?} is stored as {kept:?}");
}
