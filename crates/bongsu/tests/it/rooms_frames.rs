//! Frame injection is impossible: whatever a publisher writes into any field, a reader with an independent parser
//! sees exactly one event with exactly that content, or none.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use bongsu_testkit::sse::{Event, Stream};
use bongsu_testkit::{Answer, Api, Hub, Rng, proof, tier};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use serde_json::{Map, Value, json};

use crate::BONGSU;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const ROOM: &str = "frames";
const MARK_TYPE: &str = "test.mark";

/// Text that tries to end a line, a frame or a string.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => proptest::sample::select(vec![
            "\n", "\r", "\r\n", "\n\n", "\r\r", "\0", ":", ": ", " ", "data:", "data: {}", "\ndata: x", "\r\rid: 9-9",
            "\n\nevent: system.close\ndata: {}\n\n", "id:", "retry: 1", "event: x", "\u{2028}", "\u{2029}", "\u{85}",
            "\u{feff}", "\u{b}", "\u{c}", "\u{1b}", "\"", "\\", "\\n", "\\u000a", "}", "]", ",", "timestamp", "a.b", "가",
        ])
        .prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => hostile().prop_map(Value::String),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::Bool),
        1 => Just(Value::Null),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![vec(inner.clone(), 0..4).prop_map(Value::Array), members(inner).prop_map(Value::Object),]
    })
}

fn members(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    vec((hostile(), value), 0..5).prop_map(Map::from_iter)
}

/// A publish request with hostile text in any field, and the line ends of its JSON.
#[derive(Clone, Debug)]
struct PublishAttempt {
    event_type: String,
    data: Map<String, Value>,
    publisher: Option<Value>,
    key: Option<String>,
    line_end: Option<&'static str>,
}

fn attempt() -> impl Strategy<Value = PublishAttempt> {
    let event_type = prop_oneof![
        6 => Just("comment.created".to_owned()),
        1 => hostile(),
        1 => hostile().prop_map(|text| format!("comment.created{text}")),
    ];
    let publisher = prop_oneof![
        3 => Just(None),
        1 => any::<i32>().prop_map(|number| Some(number.into())),
        1 => hostile().prop_map(|text| Some(text.into())),
        1 => hostile().prop_map(|text| Some(format!("anna{text}").into())),
    ];
    let key = prop_oneof![3 => Just(None), 1 => hostile().prop_map(Some)];
    let line_end = proptest::sample::select(vec![None, Some("\n"), Some("\r\n"), Some("\r"), Some("\n\n\n")]);
    (event_type, members(json_value()), publisher, key, line_end).prop_map(
        |(event_type, data, publisher, key, line_end)| PublishAttempt {
            event_type,
            data,
            publisher,
            key,
            line_end,
        },
    )
}

impl PublishAttempt {
    fn body(&self, room: &str) -> String {
        let mut body = json!({"roomId": room, "eventType": self.event_type, "data": self.data});
        if let Some(publisher) = &self.publisher {
            body["publisherId"] = publisher.clone();
        }
        if let Some(key) = &self.key {
            body["idempotencyKey"] = key.clone().into();
        }
        match self.line_end {
            None => body.to_string(),
            // JSON escapes line breaks inside strings, so every line break that is replaced here is between values.
            Some(end) => format!("{body:#}").replace('\n', end),
        }
    }

    /// Whether no field gives a reason to refuse the request.
    fn is_harmless(&self) -> bool {
        self.event_type == "comment.created" && self.publisher.is_none() && self.key.is_none()
    }

    fn is_delivered_as(&self, event: &Event, answer: &Answer) -> bool {
        let mut data = event.json();
        let ours = data.as_object_mut().and_then(|data| data.remove("timestamp"));
        let mut published = self.data.clone();
        published.remove("timestamp");
        ours.is_some_and(|ours| ours.as_str().is_some_and(|ours| ours.ends_with('Z')))
            && data == Value::Object(published)
            && event.event == self.event_type
            && event.own_id.as_deref() == answer.result()["streamId"].as_str()
    }
}

/// Runs `test` on this many generated values, reproducibly from the run's seed.
fn run_cases<S: Strategy>(
    name: &str,
    cases: usize,
    strategy: &S,
    test: impl Fn(S::Value) -> Result<(), TestCaseError>,
) where
    S::Value: std::fmt::Debug,
{
    let mut rng = Rng::for_test(name);
    let seed: Vec<u8> = (0..4).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    let config = Config {
        cases: u32::try_from(cases).unwrap_or(u32::MAX),
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    match runner.run(strategy, test) {
        Ok(()) => {}
        Err(TestError::Fail(reason, attempt)) => panic!("{reason}\nsmallest: {attempt:#?}"),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

#[test]
fn whatever_is_published_arrives_as_exactly_one_event_or_not_at_all() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let hub = runtime.block_on(Hub::builder(BONGSU).start());
    let api = Api::new(&hub);
    let path = format!("/api/v1/rooms/{ROOM}/stream");
    let open = async |request: bongsu_testkit::sse::Request| request.person(7).open().await.ok().unwrap();
    let over_http1 = runtime.block_on(open(Stream::request(&hub, &path)));
    let over_http2 = runtime.block_on(open(Stream::request(&hub, &path).http2()));
    let streams = tokio::sync::Mutex::new([over_http1, over_http2]);
    let (taken, refused, cases) = (Cell::new(0), Cell::new(0), tier::size(400, 5_000));
    let injected = Cell::new(0);
    let told: RefCell<Vec<Event>> = RefCell::default();
    run_cases("frames", cases, &attempt(), |attempt| {
        runtime.block_on(async {
            let answer = api.call("POST", "/api/v1/notifications/publish", attempt.body(ROOM)).await;
            api.publish_to(ROOM, MARK_TYPE, json!({})).await;
            let is_new = answer.status == 200 && answer.result()["duplicate"] == false;
            prop_assert!(matches!(answer.status, 200 | 400 | 409), "{}", answer.text());
            prop_assert!(is_new || !attempt.is_harmless(), "{}", answer.text());
            let count = if is_new { &taken } else { &refused };
            count.set(count.get() + 1);
            for (at, stream) in streams.lock().await.iter_mut().enumerate() {
                let mut seen = Vec::new();
                while seen.last().is_none_or(|event: &Event| event.event != MARK_TYPE) {
                    seen.push(stream.next_event(WAIT_TIMEOUT).await.unwrap());
                }
                let ours = &seen[..seen.len() - 1];
                let own =
                    ours.iter().filter(|event| is_new && attempt.is_delivered_as(event, &answer)).count();
                injected.set(injected.get() + ours.len() - own.min(1));
                prop_assert_eq!(ours.len(), usize::from(is_new), "{:?}", ours);
                prop_assert!(ours.iter().all(|event| attempt.is_delivered_as(event, &answer)), "{:?}", ours);
                if at == 0 {
                    told.borrow_mut().append(&mut seen);
                }
            }
            Ok(())
        })
    });
    let (taken, refused, injected) = (taken.get(), refused.get(), injected.get());
    proof::record(
        "rooms",
        "frames",
        json!({"attempts": taken + refused, "taken": taken, "refused": refused, "injected": injected}),
    );
    assert!(taken > cases / 4 && refused > cases / 20, "too few cases: {taken} accepted, {refused} refused");
    // A stream that reads from the log receives the same events.
    runtime.block_on(async {
        let mut stream = open(Stream::request(&hub, &path).last_event_id("0-0")).await;
        let told = told.take();
        assert_eq!(stream.take_events(told.len(), WAIT_TIMEOUT).await, told);
    });
}

#[test]
fn a_room_name_is_accepted_only_if_it_is_a_valid_id() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let hub = runtime.block_on(Hub::builder(BONGSU).start());
    let api = Api::new(&hub);
    let room =
        prop_oneof![hostile(), hostile().prop_map(|text| format!("r{text}")), "[a-zA-Z0-9._@:-]{1,12}"];
    let attempt = (room, attempt()).prop_map(|(room, attempt)| {
        let event_type = "comment.created".to_owned();
        (room, PublishAttempt { event_type, publisher: None, key: None, ..attempt })
    });
    run_cases("rooms", tier::size(150, 2_000), &attempt, |(room, attempt)| {
        runtime.block_on(async {
            let answer = api.call("POST", "/api/v1/notifications/publish", attempt.body(&room)).await;
            let is_id = !room.is_empty()
                && room.len() <= 128
                && room.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._@:-".contains(&byte));
            prop_assert_eq!(answer.status, if is_id { 200 } else { 400 }, "{}", answer.text());
            if is_id {
                let before = answer.result()["streamId"].as_str().unwrap_or_default().to_owned();
                let request = Stream::request(&hub, &format!("/api/v1/rooms/{room}/stream")).person(7);
                let mut stream = request.last_event_id("0-0").open().await.ok().unwrap();
                let mut event = stream.next_event(WAIT_TIMEOUT).await.unwrap();
                // The same room name may have been generated before.
                while event.id != before {
                    event = stream.next_event(WAIT_TIMEOUT).await.unwrap();
                }
                prop_assert!(attempt.is_delivered_as(&event, &answer), "{:?}", event);
            }
            Ok(())
        })
    });
}
