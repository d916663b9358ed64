//! Tests of `report_connections.lua`, called as by an instance: late and repeated reports, lost instances,
//! lost keys. The tests of the whole hub (`bongsu`, `inbox/faults`) cover how hubs use it.

use bongsu_testkit::redis::{Client, Cluster, Redis};
use bongsu_testkit::tier;

const REPORT: &str = include_str!("../../lua/report_connections.lua");
const CONNECTIONS: &str = "sse:notification:{7}";
const REPORTS: &str = "sse:notification:{7}:hubs";

/// The connections of a person, with a limit of three.
struct Person {
    redis: Client,
    policy: &'static str,
    /// When the list of live instances was read, in milliseconds. None means now.
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

    /// Sends the report of an instance: its number, its deadline in milliseconds, and its connections with their times,
    /// which are empty for new ones. `h1` and `h2` are alive. Returns the times with which the connections count, empty
    /// for those that do not; None when the report came too late.
    async fn report(
        &mut self,
        instance: &str,
        number: u64,
        deadline: u64,
        own: &[(&str, &str)],
    ) -> Option<Vec<String>> {
        let seen_at = self.seen_at.unwrap_or(self.now().await).to_string();
        let (number, deadline, count) = (number.to_string(), deadline.to_string(), own.len().to_string());
        let mut arguments = vec![
            "EVAL",
            REPORT,
            "2",
            CONNECTIONS,
            REPORTS,
            instance,
            &number,
            "3",
            self.policy,
            "60000",
            "120000",
            "channel",
            "7",
            &deadline,
            "0",
            "question",
            &seen_at,
            &count,
        ];
        arguments.extend(own.iter().flat_map(|(connection, time)| [*connection, *time]));
        arguments.extend(["h1", "h2"]);
        let answer = self.redis.call(&arguments).await.unwrap().expect_ok();
        let is_late = answer.items().len() == 1;
        (!is_late).then(|| answer.items()[3..].iter().map(|time| time.text().to_owned()).collect())
    }

    /// The connections of a report that do not count after it.
    async fn missing<'a>(&mut self, instance: &str, number: u64, own: &[(&'a str, &str)]) -> Vec<&'a str> {
        let times = self.report(instance, number, 0, own).await.unwrap();
        own.iter().zip(times).filter(|(_, time)| time.is_empty()).map(|((name, _), _)| *name).collect()
    }

    /// Opens connections one after the other, each with a report of its own, and returns their times.
    async fn open(&mut self, instance: &str, connections: &[&str]) -> Vec<String> {
        let mut times = Vec::new();
        for number in 1..=connections.len() {
            let known_times = times.iter().map(String::as_str).chain([""]);
            let own: Vec<(&str, &str)> = connections.iter().copied().zip(known_times).collect();
            times = self.report(instance, number as u64, 0, &own).await.unwrap();
        }
        times
    }

    /// The connections that count, oldest first.
    async fn counted(&mut self) -> Vec<String> {
        let connections = self.redis.call(&["ZRANGE", CONNECTIONS, "0", "-1"]).await.unwrap();
        connections.items().iter().map(|connection| connection.text().to_owned()).collect()
    }

    async fn now(&mut self) -> u64 {
        let time = self.redis.call(&["TIME"]).await.unwrap();
        time.items()[0].text().parse::<u64>().unwrap() * 1_000
    }
}

#[tokio::test]
async fn a_restored_connection_keeps_its_age_and_replaces_no_newer_one() {
    let Some((_redis, mut person)) = Person::start("replace").await else { return };
    let times = person.open("h1", &["a", "b"]).await;
    person.redis.call(&["FLUSHALL"]).await.unwrap().expect_ok();
    let third = person.open("h2", &["c"]).await;
    let reported = [("a", times[0].as_str()), ("b", &times[1])];
    assert!(person.missing("h1", 3, &reported).await.is_empty());
    assert_eq!(person.counted().await, ["a", "b", "c"]);
    // A connection on the other instance replaces `a`, and the first instance misses the message.
    person.report("h2", 2, 0, &[("c", &third[0]), ("d", "")]).await.unwrap();
    assert_eq!(person.counted().await, ["b", "c", "d"]);
    assert_eq!(person.missing("h1", 4, &reported).await, ["a"], "the answer to its report says so");
    assert_eq!(person.counted().await, ["b", "c", "d"], "its report replaces no other");
}

#[tokio::test]
async fn a_report_replaces_the_last_one_of_its_instance_and_an_older_one_changes_nothing() {
    for policy in ["refuse", "replace"] {
        let Some((_redis, mut person)) = Person::start(policy).await else { return };
        let times = person.open("h1", &["a", "b"]).await;
        person.open("h2", &["c"]).await;
        assert!(person.missing("h1", 5, &[("b", &times[1])]).await.is_empty());
        assert_eq!(person.counted().await, ["b", "c"], "`a` was released");
        let late = [("a", times[0].as_str()), ("b", &times[1]), ("e", "")];
        assert_eq!(person.missing("h1", 4, &late).await, ["a", "e"]);
        assert_eq!(person.counted().await, ["b", "c"]);
        person.report("h1", 6, 0, &[]).await.unwrap();
        person.report("h2", 6, 0, &[]).await.unwrap();
        person.report("h1", 4, 0, &late).await.unwrap();
        assert!(person.counted().await.is_empty(), "even when no connection is left");
        let ttl = person.redis.call(&["PTTL", REPORTS]).await.unwrap().integer();
        assert!((1..=10_000).contains(&ttl), "{ttl}");
    }
}

#[tokio::test]
async fn a_repeated_report_returns_the_same_times_and_readmits_no_connection() {
    for policy in ["refuse", "replace"] {
        let Some((_redis, mut person)) = Person::start(policy).await else { return };
        let times = person.report("h1", 1, 0, &[("a", ""), ("b", "")]).await.unwrap();
        assert_eq!(person.report("h1", 1, 0, &[("a", ""), ("b", "")]).await.unwrap(), times);
        person.redis.call(&["ZREM", CONNECTIONS, "a"]).await.unwrap().expect_ok();
        assert_eq!(person.missing("h1", 1, &[("a", ""), ("b", "")]).await, ["a"], "it was removed since");
    }
}

#[tokio::test]
async fn new_connections_beyond_the_limit_are_refused_and_known_ones_restored() {
    let Some((_redis, mut person)) = Person::start("refuse").await else { return };
    let times = person.open("h1", &["a", "b"]).await;
    assert_eq!(person.missing("h2", 1, &[("c", ""), ("d", "")]).await, ["d"]);
    assert_eq!(person.missing("h1", 3, &[("a", &times[0]), ("b", &times[1]), ("e", "")]).await, ["e"]);
    assert_eq!(person.counted().await, ["a", "b", "c"]);
    // After a loss of the keys, other connections are admitted first.
    person.redis.call(&["DEL", CONNECTIONS, REPORTS]).await.unwrap().expect_ok();
    person.report("h2", 2, 0, &[("c", ""), ("f", "")]).await.unwrap();
    assert!(person.missing("h1", 4, &[("a", &times[0]), ("b", &times[1])]).await.is_empty());
    assert_eq!(person.counted().await, ["a", "b", "c", "f"], "no connection is closed");
    assert_eq!(person.missing("h2", 3, &[("g", "")]).await, Vec::<&str>::new(), "`c` and `f` were released");
    assert_eq!(person.missing("h2", 4, &[("g", ""), ("h", "")]).await, ["h"]);
}

#[tokio::test]
async fn a_connection_past_its_deadline_replaces_no_other() {
    let Some((_redis, mut person)) = Person::start("replace").await else { return };
    person.open("h1", &["a", "b", "c"]).await;
    let now = person.now().await;
    assert_eq!(person.report("h2", 1, now - 1_000, &[("late", "")]).await, None);
    assert_eq!(person.counted().await, ["a", "b", "c"]);
    person.report("h2", 2, now + 60_000, &[("in-time", "")]).await.unwrap();
    assert_eq!(person.counted().await, ["b", "c", "in-time"]);
}

#[tokio::test]
async fn a_new_connection_is_the_newest_even_after_the_clock_was_set_back() {
    let Some((_redis, mut person)) = Person::start("replace").await else { return };
    let ahead = (person.now().await + 600_000).to_string();
    person.report("h2", 1, 0, &[("ahead", &ahead)]).await.unwrap();
    person.open("h1", &["a", "b", "c"]).await;
    assert_eq!(person.counted().await, ["a", "b", "c"]);
}

#[tokio::test]
async fn connections_of_lost_instances_and_unreported_ones_are_dropped() {
    let Some((_redis, mut person)) = Person::start("replace").await else { return };
    let now = person.now().await;
    // `killed` is on an instance that was killed; `fresh` on one that has just joined (its report has a time in the
    // future, so that it stays new); `unreported` on none; `old` exceeds the maximum age.
    for (connection, instance, arrived) in
        [("killed", "h8", now - 4_000), ("fresh", "h9", now + 60_000), ("old", "h2", now)]
    {
        let report = format!("1 {arrived} {connection}");
        person.redis.call(&["HSET", REPORTS, instance, &report]).await.unwrap().expect_ok();
    }
    for (connection, age) in [("killed", 5_000), ("fresh", 5_000), ("unreported", 5_000), ("old", 61_000)] {
        let time = (now - age).to_string();
        person.redis.call(&["ZADD", CONNECTIONS, &time, connection]).await.unwrap().expect_ok();
    }
    // The list of live instances is 2 seconds old, as after an outage of Redis.
    person.seen_at = Some(now - 2_000);
    person.open("h1", &["a"]).await;
    assert_eq!(person.counted().await, ["fresh", "killed", "a"]);
    person.seen_at = None;
    person.open("h1", &["a", "b"]).await;
    assert_eq!(person.counted().await, ["fresh", "a", "b"]);
}

#[tokio::test]
async fn the_keys_of_a_person_share_a_cluster_slot() {
    assert_eq!(Cluster::slot_of(CONNECTIONS), Cluster::slot_of(REPORTS));
}
