//! `once` and `work` on every database.

use std::collections::BTreeSet;

use bongsu_sql::work::{self, Claim, New, Wish};
use bongsu_sql::{Error, Records, Transaction, forget_before, once};
use futures_util::future::join_all;

use crate::database::{Database, INCREMENT, counters};

/// Says whether it was the first time; whether it is kept is said by the second one.
async fn first(records: &Records, key: &str, kept: bool) -> Result<bool, Error> {
    async fn change((key, kept): &(String, bool), tx: &mut Transaction<'_>) -> Result<bool, Error> {
        let first = once(tx, "test", key, 1_000).await?;
        if first {
            tx.run(&INCREMENT, &[("id", 1_i64.into())]).await?;
        }
        if *kept { Ok(first) } else { Err(Error::Undone) }
    }
    records.write((key.to_owned(), kept), change).await
}

pub(crate) async fn what_was_done_once_is_not_done_again<D: Database>(database: D) {
    let (one, other) = (database.records().await, database.records().await);
    assert!(first(&one, "k", false).await.is_err());
    assert!(first(&one, "k", true).await.unwrap(), "what was undone was not done");
    assert!(!first(&other, "k", true).await.unwrap());
    let longest = "x".repeat(bongsu_sql::MOST_KEY);
    for key in ["K", "", " ", longest.as_str()] {
        assert!(first(&one, key, true).await.unwrap(), "{key}");
        assert!(!first(&one, key, true).await.unwrap(), "{key}");
    }
    for key in [format!("{longest}x").as_str(), "방", "a\0b"] {
        assert!(matches!(first(&one, key, true).await, Err(Error::Failed(_))), "{key}");
    }
    assert_eq!(counters(&one).await, [5, 0]);
}

pub(crate) async fn of_many_at_once_one_is_the_first<D: Database>(database: D) {
    let (one, other) = (database.records().await, database.records().await);
    for round in 0..10_i64 {
        let key = format!("k{round}");
        let tries = (0..12).map(|n| first([&one, &other][n % 2], &key, true));
        let firsts = join_all(tries).await.into_iter().filter(|first| *first.as_ref().unwrap()).count();
        assert_eq!(firsts, 1);
        assert_eq!(counters(&one).await, [round + 1, 0]);
    }
}

pub(crate) async fn what_was_done_long_ago_is_forgotten_in_steps<D: Database>(database: D) {
    let records = database.records().await;
    let add = |scope: &'static str, n: u64| {
        records.write((scope, n), async |(scope, n): &(&str, u64), tx: &mut Transaction<'_>| {
            once(tx, scope, &format!("k{n}"), *n).await
        })
    };
    for n in 0..10 {
        assert!(add("one", n).await.unwrap() && add("two", n).await.unwrap());
    }
    assert_eq!(forget_before(&records, "one", 7, 4).await.unwrap(), 4);
    assert!(add("one", 0).await.unwrap(), "the oldest went first");
    assert_eq!(forget_before(&records, "one", 7, 100).await.unwrap(), 4);
    assert_eq!(forget_before(&records, "one", 7, 100).await.unwrap(), 0);
    for n in 7..10 {
        assert!(!add("one", n).await.unwrap());
    }
    assert!(!add("two", 0).await.unwrap(), "the other scope keeps its own");
}

async fn add(records: &Records, kind: &'static str, keys: &[&'static str], not_before: u64) {
    let given = (kind, keys.to_vec(), not_before);
    let added = records.write(
        given,
        async |(kind, keys, not_before): &(&str, Vec<&str>, u64), tx: &mut Transaction<'_>| {
            for key in keys {
                let body = format!("body of {key} 🔥");
                work::add(tx, New { kind, key, body: &body, not_before: *not_before }, 0).await?;
            }
            Ok::<_, Error>(())
        },
    );
    added.await.unwrap();
}

async fn claim(records: &Records, worker: &str, at_most: usize, now: u64) -> Vec<Claim> {
    let wish = Wish { kind: "mail".to_owned(), worker: worker.to_owned(), lease: 100, at_most };
    work::claim(records, wish, now).await.unwrap()
}

fn keys(claims: &[Claim]) -> Vec<&str> {
    claims.iter().map(|claim| claim.key.as_str()).collect()
}

async fn finish(records: &Records, claim: &Claim, now: u64) -> bool {
    let done = records
        .write((claim.clone(), now), async |(claim, now): &(Claim, u64), tx: &mut Transaction<'_>| {
            work::finish(tx, claim, *now).await
        });
    done.await.unwrap()
}

async fn park(records: &Records, claim: &Claim, until: u64, now: u64) -> bool {
    let done = records.write(
        (claim.clone(), until, now),
        async |(claim, until, now): &(Claim, u64, u64), tx: &mut Transaction<'_>| {
            work::park(tx, claim, *until, &"이유 ".repeat(1_000), *now).await
        },
    );
    done.await.unwrap()
}

pub(crate) async fn work_is_claimed_in_order_by_one_worker_at_a_time<D: Database>(database: D) {
    let (one, other) = (database.records().await, database.records().await);
    add(&one, "mail", &["c", "a", "b"], 0).await;
    add(&one, "other", &["x"], 0).await;
    add(&one, "mail", &["later"], 50).await;
    let first = claim(&one, "w1", 2, 10).await;
    assert_eq!(keys(&first), ["c", "a"]);
    assert_eq!(first[0].body, "body of c 🔥");
    let second = claim(&other, "w2", 10, 10).await;
    assert_eq!(keys(&second), ["b"]);
    assert!(claim(&one, "w1", 10, 10).await.is_empty(), "also what one has itself");
    assert_eq!(keys(&claim(&one, "w1", 10, 50).await), ["later"]);
    for claimed in first.iter().chain(&second) {
        assert_eq!(claimed.attempt, 1);
        assert!(finish(&other, claimed, 60).await);
        assert!(!finish(&other, claimed, 60).await, "it is done");
    }
    assert!(claim(&one, "w1", 10, 149).await.is_empty());
}

pub(crate) async fn a_claim_that_ended_is_another_workers_and_cannot_be_finished_late<D: Database>(
    database: D,
) {
    let records = database.records().await;
    add(&records, "mail", &["a"], 0).await;
    let late = claim(&records, "w1", 1, 0).await.remove(0);
    assert!(claim(&records, "w2", 1, 99).await.is_empty());
    assert!(!finish(&records, &late, 100).await, "its lease has ended, whoever has it now");
    let again = claim(&records, "w2", 1, 100).await.remove(0);
    assert_eq!((again.id, again.attempt), (late.id, 2));
    assert!(!finish(&records, &late, 110).await);
    assert!(!park(&records, &late, 500, 110).await);
    // The same worker, which does not know that it has lost it.
    let mine = claim(&records, "w2", 1, 200).await.remove(0);
    assert_eq!(mine.attempt, 3);
    assert!(!finish(&records, &again, 210).await, "an earlier claim of its own");
    assert!(finish(&records, &mine, 210).await);
}

pub(crate) async fn what_was_parked_comes_again_and_is_counted<D: Database>(database: D) {
    let records = database.records().await;
    add(&records, "mail", &["a", "b"], 0).await;
    let mut now = 0;
    for attempt in 1..=3 {
        let claimed = claim(&records, "w1", 1, now).await.remove(0);
        assert_eq!((claimed.key.as_str(), claimed.attempt), ("a", attempt));
        assert!(park(&records, &claimed, now + 1_000, now).await);
        assert!(!finish(&records, &claimed, now).await, "it was given back");
        let next = claim(&records, "w1", 5, now + 999).await;
        assert_eq!(keys(&next), ["b"], "the parked one holds up nobody");
        assert!(park(&records, &next[0], 0, now + 999).await);
        now += 1_000;
    }
}

pub(crate) async fn many_workers_do_everything_once<D: Database>(database: D) {
    let (one, other) = (database.records().await, database.records().await);
    for _ in 0..10 {
        add(&one, "mail", &["a"; 10], 0).await;
    }
    let worker = |n: usize| {
        let records = [&one, &other][n % 2].clone();
        async move {
            let mut done = Vec::new();
            let mut empty = 0;
            while empty < 3 {
                let claims = claim(&records, &format!("w{n}"), 7, 0).await;
                empty = if claims.is_empty() { empty + 1 } else { 0 };
                assert!(done.len() <= 100, "there is more to do than was added");
                for claim in claims {
                    assert!(finish(&records, &claim, 1).await);
                    done.push(claim.id);
                }
            }
            done
        }
    };
    let done: Vec<i64> = join_all((0..6).map(worker)).await.concat();
    assert_eq!((done.len(), done.iter().collect::<BTreeSet<_>>().len()), (100, 100));
}

pub(crate) async fn done_work_is_forgotten_in_steps<D: Database>(database: D) {
    let records = database.records().await;
    add(&records, "mail", &["a", "b", "c", "d"], 0).await;
    for (at, claimed) in claim(&records, "w1", 3, 0).await.iter().enumerate() {
        assert!(finish(&records, claimed, 10 + at as u64).await);
    }
    let forget = |before, at_most| work::forget_done_before(&records, "mail", before, at_most);
    assert_eq!(forget(12, 1).await.unwrap(), 1);
    assert_eq!(forget(12, 10).await.unwrap(), 1);
    assert_eq!(forget(12, 10).await.unwrap(), 0);
    assert_eq!(forget(1_000, 10).await.unwrap(), 1);
    assert_eq!(keys(&claim(&records, "w1", 10, 0).await), ["d"], "what is not done stays");
}
