//! What the script that counts a person's connections promises, asked as an instance asks it: reports that come late or twice,
//! instances that are gone, and what was forgotten. How hubs live by it is shown with the whole hub (`bongsu`, `inbox/faults`).

use bongsu_testkit::redis::{Client, Cluster, Redis};
use bongsu_testkit::tier;

const REPORT: &str = include_str!("../../lua/report.lua");
const STREAMS: &str = "sse:notification:{7}";
const HUBS: &str = "sse:notification:{7}:hubs";

/// A person's connections, of which three may stay.
struct Person {
    redis: Client,
    policy: &'static str,
    /// When it was looked which instances are alive, if that is not now.
    seen_at: Option<u64>,
}

impl Person {
    async fn start(policy: &'static str) -> Option<(Redis, Self)> {
        if !tier::needs_engine("redis") {
            return None;
        }
        let redis = Redis::start().await;
        let person = Self { redis: redis.connect().await.unwrap(), policy, seen_at: None };
        Some((redis, person))
    }

    /// An instance's report: its number, until when it counts, and the connections with their times, which are empty for new
    /// ones. `h1` and `h2` are alive. Gives the times with which they count, empty when they do not; None when it came too late.
    async fn hear(
        &mut self,
        instance: &str,
        number: u64,
        until: u64,
        own: &[(&str, &str)],
    ) -> Option<Vec<String>> {
        let seen_at = self.seen_at.unwrap_or(self.now().await).to_string();
        let (number, until, count) = (number.to_string(), until.to_string(), own.len().to_string());
        let mut words = vec![
            "EVAL",
            REPORT,
            "2",
            STREAMS,
            HUBS,
            instance,
            &number,
            "3",
            self.policy,
            "60000",
            "120000",
            "channel",
            "7",
            &until,
            "0",
            "question",
            &seen_at,
            &count,
        ];
        words.extend(own.iter().flat_map(|(connection, time)| [*connection, *time]));
        words.extend(["h1", "h2"]);
        let answer = self.redis.call(&words).await.unwrap().accepted();
        let is_late = answer.items().len() == 1;
        (!is_late).then(|| answer.items()[3..].iter().map(|time| time.text().to_owned()).collect())
    }

    /// Which of these do not count after a report.
    async fn missing<'a>(&mut self, instance: &str, number: u64, own: &[(&'a str, &str)]) -> Vec<&'a str> {
        let times = self.hear(instance, number, 0, own).await.unwrap();
        own.iter().zip(times).filter(|(_, time)| time.is_empty()).map(|((name, _), _)| *name).collect()
    }

    /// One after the other, each in a report of its own. Gives their times.
    async fn come(&mut self, instance: &str, connections: &[&str]) -> Vec<String> {
        let mut times = Vec::new();
        for number in 1..=connections.len() {
            let known = times.iter().map(String::as_str).chain([""]);
            let own: Vec<(&str, &str)> = connections.iter().copied().zip(known).collect();
            times = self.hear(instance, number as u64, 0, &own).await.unwrap();
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
    let Some((_redis, mut person)) = Person::start("replace").await else { return };
    let times = person.come("h1", &["a", "b"]).await;
    person.redis.call(&["FLUSHALL"]).await.unwrap().accepted();
    let third = person.come("h2", &["c"]).await;
    let said = [("a", times[0].as_str()), ("b", &times[1])];
    assert!(person.missing("h1", 3, &said).await.is_empty());
    assert_eq!(person.counted().await, ["a", "b", "c"]);
    // Another one comes elsewhere, and the first instance does not hear that its oldest has to go.
    person.hear("h2", 2, 0, &[("c", &third[0]), ("d", "")]).await.unwrap();
    assert_eq!(person.counted().await, ["b", "c", "d"]);
    assert_eq!(person.missing("h1", 4, &said).await, ["a"], "it is told when it reports");
    assert_eq!(person.counted().await, ["b", "c", "d"], "and pushes out nobody");
}

#[tokio::test]
async fn a_report_holds_for_all_connections_of_its_instance_and_an_older_one_changes_nothing() {
    for policy in ["refuse", "replace"] {
        let Some((_redis, mut person)) = Person::start(policy).await else { return };
        let times = person.come("h1", &["a", "b"]).await;
        person.come("h2", &["c"]).await;
        assert!(person.missing("h1", 5, &[("b", &times[1])]).await.is_empty());
        assert_eq!(person.counted().await, ["b", "c"], "one has gone");
        let late = [("a", times[0].as_str()), ("b", &times[1]), ("e", "")];
        assert_eq!(person.missing("h1", 4, &late).await, ["a", "e"]);
        assert_eq!(person.counted().await, ["b", "c"]);
        person.hear("h1", 6, 0, &[]).await.unwrap();
        person.hear("h2", 6, 0, &[]).await.unwrap();
        person.hear("h1", 4, 0, &late).await.unwrap();
        assert!(person.counted().await.is_empty(), "also when nothing is left");
        let left = person.redis.call(&["PTTL", HUBS]).await.unwrap().integer();
        assert!((1..=10_000).contains(&left), "{left}");
    }
}

#[tokio::test]
async fn a_repeated_report_gives_the_same_times_and_lets_in_nobody_again() {
    for policy in ["refuse", "replace"] {
        let Some((_redis, mut person)) = Person::start(policy).await else { return };
        let times = person.hear("h1", 1, 0, &[("a", ""), ("b", "")]).await.unwrap();
        assert_eq!(person.hear("h1", 1, 0, &[("a", ""), ("b", "")]).await.unwrap(), times);
        person.redis.call(&["ZREM", STREAMS, "a"]).await.unwrap().accepted();
        assert_eq!(person.missing("h1", 1, &[("a", ""), ("b", "")]).await, ["a"], "it was taken out since");
    }
}

#[tokio::test]
async fn new_connections_beyond_the_limit_are_refused_and_known_ones_put_back() {
    let Some((_redis, mut person)) = Person::start("refuse").await else { return };
    let times = person.come("h1", &["a", "b"]).await;
    assert_eq!(person.missing("h2", 1, &[("c", ""), ("d", "")]).await, ["d"]);
    assert_eq!(person.missing("h1", 3, &[("a", &times[0]), ("b", &times[1]), ("e", "")]).await, ["e"]);
    assert_eq!(person.counted().await, ["a", "b", "c"]);
    // Others were let in while it was given up.
    person.redis.call(&["DEL", STREAMS, HUBS]).await.unwrap().accepted();
    person.hear("h2", 2, 0, &[("c", ""), ("f", "")]).await.unwrap();
    assert!(person.missing("h1", 4, &[("a", &times[0]), ("b", &times[1])]).await.is_empty());
    assert_eq!(person.counted().await, ["a", "b", "c", "f"], "nobody is turned out");
    assert_eq!(person.missing("h2", 3, &[("g", "")]).await, Vec::<&str>::new(), "two have gone");
    assert_eq!(person.missing("h2", 4, &[("g", ""), ("h", "")]).await, ["h"]);
}

#[tokio::test]
async fn nobody_makes_room_for_one_that_has_given_up() {
    let Some((_redis, mut person)) = Person::start("replace").await else { return };
    person.come("h1", &["a", "b", "c"]).await;
    let now = person.now().await;
    assert_eq!(person.hear("h2", 1, now - 1_000, &[("late", "")]).await, None);
    assert_eq!(person.counted().await, ["a", "b", "c"]);
    person.hear("h2", 2, now + 60_000, &[("in-time", "")]).await.unwrap();
    assert_eq!(person.counted().await, ["b", "c", "in-time"]);
}

#[tokio::test]
async fn who_comes_is_the_newest_also_when_the_clock_was_set_back() {
    let Some((_redis, mut person)) = Person::start("replace").await else { return };
    let ahead = (person.now().await + 600_000).to_string();
    person.hear("h2", 1, 0, &[("ahead", &ahead)]).await.unwrap();
    person.come("h1", &["a", "b", "c"]).await;
    assert_eq!(person.counted().await, ["a", "b", "c"]);
}

#[tokio::test]
async fn those_of_a_hub_that_is_gone_and_those_that_nobody_holds_go_first() {
    let Some((_redis, mut person)) = Person::start("replace").await else { return };
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
