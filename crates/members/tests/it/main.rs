//! What the script that counts a person's streams promises, asked as a hub asks it: words that come late or twice, hubs that
//! are gone, and what was forgotten. How hubs live by it is shown with the whole hub (`bongsu`, `inbox/faults`).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

use bongsu_testkit::redis::{Client, Cluster, Redis, Reply};
use bongsu_testkit::tier;

const TIME: &str = include_str!("../../lua/time.lua");
const HOLD: &str = include_str!("../../lua/hold.lua");
const STREAMS: &str = "sse:notification:{7}";
const HUBS: &str = "sse:notification:{7}:hubs";

/// A person's streams, of which three may stay.
struct Person {
    redis: Client,
    /// When it was looked which hubs are alive, if that is not now.
    seen_at: Option<u64>,
}

impl Person {
    async fn start() -> Option<(Redis, Self)> {
        if !tier::needs_engine("redis") {
            return None;
        }
        let redis = Redis::start().await;
        let person = Self { redis: redis.connect().await.unwrap(), seen_at: None };
        Some((redis, person))
    }

    /// A hub's word: its number, until when it counts, and the streams with their times. `h1` and `h2` are alive. Gives
    /// which of them were replaced; none when it came too late.
    async fn hear(
        &mut self,
        hub: &str,
        number: u64,
        until: u64,
        own: &[(&str, &str)],
    ) -> Option<Vec<String>> {
        let seen_at = self.seen_at.unwrap_or(self.now().await).to_string();
        let (number, until, count) = (number.to_string(), until.to_string(), own.len().to_string());
        let mut words = vec![
            "EVAL", HOLD, "2", STREAMS, HUBS, hub, &number, "3", "60000", "channel", "7", &until, "0",
            "question", &seen_at, &count,
        ];
        words.extend(own.iter().flat_map(|(stream, time)| [*stream, *time]));
        words.extend(["h1", "h2"]);
        let answer = self.redis.call(&words).await.unwrap().accepted();
        let is_nothing = matches!(answer, Reply::Nothing);
        (!is_nothing).then(|| answer.items()[1..].iter().map(|stream| stream.text().to_owned()).collect())
    }

    /// The time of one that comes now.
    async fn time(&mut self) -> String {
        self.redis.call(&["EVAL", TIME, "1", STREAMS]).await.unwrap().items()[0].text().to_owned()
    }

    /// One after the other, each in a word of its own. Gives their times.
    async fn come(&mut self, hub: &str, streams: &[&str]) -> Vec<String> {
        let mut times = Vec::new();
        for number in 1..=streams.len() {
            times.push(self.time().await);
            let own: Vec<(&str, &str)> =
                streams.iter().copied().zip(times.iter().map(String::as_str)).collect();
            self.hear(hub, number as u64, 0, &own).await.unwrap();
        }
        times
    }

    /// The oldest first.
    async fn counted(&mut self) -> Vec<String> {
        let streams = self.redis.call(&["ZRANGE", STREAMS, "0", "-1"]).await.unwrap();
        streams.items().iter().map(|stream| stream.text().to_owned()).collect()
    }

    async fn now(&mut self) -> u64 {
        let time = self.redis.call(&["TIME"]).await.unwrap();
        time.items()[0].text().parse::<u64>().unwrap() * 1_000
    }
}

#[tokio::test]
async fn what_was_forgotten_is_counted_as_old_as_it_was_and_replaces_nobody_newer() {
    let Some((_redis, mut person)) = Person::start().await else { return };
    let times = person.come("h1", &["a", "b"]).await;
    person.redis.call(&["FLUSHALL"]).await.unwrap().accepted();
    let third = person.come("h2", &["c"]).await;
    let said = [("a", times[0].as_str()), ("b", &times[1])];
    assert!(person.hear("h1", 3, 0, &said).await.unwrap().is_empty());
    assert_eq!(person.counted().await, ["a", "b", "c"]);
    // Another one comes elsewhere, and the first hub does not hear that its oldest has to go.
    let fourth = person.time().await;
    person.hear("h2", 2, 0, &[("c", &third[0]), ("d", &fourth)]).await.unwrap();
    assert_eq!(person.counted().await, ["b", "c", "d"]);
    assert_eq!(person.hear("h1", 4, 0, &said).await.unwrap(), ["a"], "it is told when it speaks");
    assert_eq!(person.counted().await, ["b", "c", "d"], "and pushes out nobody");
}

#[tokio::test]
async fn a_word_holds_for_all_streams_of_its_hub_and_an_older_one_changes_nothing() {
    let Some((_redis, mut person)) = Person::start().await else { return };
    let times = person.come("h1", &["a", "b"]).await;
    person.come("h2", &["c"]).await;
    assert!(person.hear("h1", 5, 0, &[("b", &times[1])]).await.unwrap().is_empty());
    assert_eq!(person.counted().await, ["b", "c"], "one has gone");
    let now = person.time().await;
    let late = [("a", times[0].as_str()), ("b", &times[1]), ("e", &now)];
    assert_eq!(person.hear("h1", 4, 0, &late).await.unwrap(), ["a", "e"]);
    assert_eq!(person.counted().await, ["b", "c"]);
    person.hear("h1", 6, 0, &[]).await.unwrap();
    person.hear("h2", 6, 0, &[]).await.unwrap();
    person.hear("h1", 4, 0, &late).await.unwrap();
    assert!(person.counted().await.is_empty(), "also when nothing is left");
    let left = person.redis.call(&["PTTL", HUBS]).await.unwrap().integer();
    assert!((1..=10_000).contains(&left), "{left}");
}

#[tokio::test]
async fn nobody_makes_room_for_one_that_has_given_up() {
    let Some((_redis, mut person)) = Person::start().await else { return };
    person.come("h1", &["a", "b", "c"]).await;
    let (now, time) = (person.now().await, person.time().await);
    assert_eq!(person.hear("h2", 1, now - 1_000, &[("late", &time)]).await, None);
    assert_eq!(person.counted().await, ["a", "b", "c"]);
    person.hear("h2", 2, now + 60_000, &[("in-time", &time)]).await.unwrap();
    assert_eq!(person.counted().await, ["b", "c", "in-time"]);
}

#[tokio::test]
async fn who_comes_is_the_newest_also_when_the_clock_was_set_back() {
    let Some((_redis, mut person)) = Person::start().await else { return };
    let ahead = (person.now().await + 600_000).to_string();
    person.hear("h2", 1, 0, &[("ahead", &ahead)]).await.unwrap();
    person.come("h1", &["a", "b", "c"]).await;
    assert_eq!(person.counted().await, ["a", "b", "c"]);
}

#[tokio::test]
async fn those_of_a_hub_that_is_gone_and_those_that_nobody_holds_go_first() {
    let Some((_redis, mut person)) = Person::start().await else { return };
    let now = person.now().await;
    // One whose hub was killed, one whose hub has just come (and counts as that however long this takes), one that no hub
    // says it holds, and one that is too old.
    for (stream, hub, came) in
        [("killed", "h8", now - 4_000), ("fresh", "h9", now + 60_000), ("old", "h2", now)]
    {
        person.redis.call(&["HSET", HUBS, hub, &format!("1 {came} {stream}")]).await.unwrap().accepted();
    }
    for (stream, age) in [("killed", 5_000), ("fresh", 5_000), ("nobody's", 5_000), ("old", 61_000)] {
        let time = (now - age).to_string();
        person.redis.call(&["ZADD", STREAMS, &time, stream]).await.unwrap().accepted();
    }
    // Nothing is known of who is alive since Redis was away.
    person.seen_at = Some(now - 2_000);
    person.come("h1", &["a"]).await;
    assert_eq!(person.counted().await, ["fresh", "killed", "a"]);
    person.seen_at = None;
    person.come("h1", &["a", "b"]).await;
    assert_eq!(person.counted().await, ["fresh", "a", "b"]);
}

#[tokio::test]
async fn its_keys_are_together_on_a_cluster() {
    assert_eq!(Cluster::slot_of(STREAMS), Cluster::slot_of(HUBS));
}
