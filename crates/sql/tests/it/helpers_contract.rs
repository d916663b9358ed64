//! The contract of `once` and `work` on every database.

use std::collections::BTreeSet;

use bongsu_sql::work::{self, Claim, ClaimRequest, NewWork};
use bongsu_sql::{Error, Records, Transaction, delete_once_keys_before, record_once};
use futures_util::future::join_all;

use crate::database::{Database, INCREMENT, counters};

/// Records a key and increments a counter if the key is new; then commits or rolls back. Returns whether the key was
/// new.
async fn record(records: &Records, key: &str, commits: bool) -> Result<bool, Error> {
    async fn change((key, commits): &(String, bool), tx: &mut Transaction<'_>) -> Result<bool, Error> {
        let is_new = record_once(tx, "test", key, 1_000).await?;
        if is_new {
            tx.run(&INCREMENT, &[("id", 1_i64.into())]).await?;
        }
        if *commits { Ok(is_new) } else { Err(Error::RolledBack) }
    }
    records.write((key.to_owned(), commits), change).await
}

pub(crate) async fn a_recorded_key_is_not_new_again<D: Database>(database: D) {
    let (one, other) = (database.records().await, database.records().await);
    assert!(record(&one, "k", false).await.is_err());
    assert!(record(&one, "k", true).await.unwrap(), "a key that was rolled back is new again");
    assert!(!record(&other, "k", true).await.unwrap());
    let longest = "x".repeat(bongsu_sql::MAX_ONCE_KEY_LEN);
    for key in ["K", "", " ", longest.as_str()] {
        assert!(record(&one, key, true).await.unwrap(), "{key}");
        assert!(!record(&one, key, true).await.unwrap(), "{key}");
    }
    for key in [format!("{longest}x").as_str(), "방", "a\0b"] {
        assert!(matches!(record(&one, key, true).await, Err(Error::Failed(_))), "{key}");
    }
    assert_eq!(counters(&one).await, [5, 0]);
}

pub(crate) async fn one_of_many_concurrent_records_is_the_first<D: Database>(database: D) {
    let (one, other) = (database.records().await, database.records().await);
    for round in 0..10_i64 {
        let key = format!("k{round}");
        let calls = (0..12).map(|n| record([&one, &other][n % 2], &key, true));
        let firsts = join_all(calls).await.into_iter().filter(|is_new| *is_new.as_ref().unwrap()).count();
        assert_eq!(firsts, 1);
        assert_eq!(counters(&one).await, [round + 1, 0]);
    }
}

pub(crate) async fn old_keys_are_deleted_in_steps<D: Database>(database: D) {
    let records = database.records().await;
    let add = |scope: &'static str, n: u64| {
        records.write((scope, n), async |(scope, n): &(&str, u64), tx: &mut Transaction<'_>| {
            record_once(tx, scope, &format!("k{n}"), *n).await
        })
    };
    for n in 0..10 {
        assert!(add("one", n).await.unwrap() && add("two", n).await.unwrap());
    }
    assert_eq!(delete_once_keys_before(&records, "one", 7, 4).await.unwrap(), 4);
    assert!(add("one", 0).await.unwrap(), "the oldest key was deleted first");
    assert_eq!(delete_once_keys_before(&records, "one", 7, 100).await.unwrap(), 4);
    assert_eq!(delete_once_keys_before(&records, "one", 7, 100).await.unwrap(), 0);
    for n in 7..10 {
        assert!(!add("one", n).await.unwrap());
    }
    assert!(!add("two", 0).await.unwrap(), "the keys of the other scope stay");
}

async fn add(records: &Records, kind: &'static str, keys: &[&'static str], not_before: u64) {
    let input = (kind, keys.to_vec(), not_before);
    let added = records.write(
        input,
        async |(kind, keys, not_before): &(&str, Vec<&str>, u64), tx: &mut Transaction<'_>| {
            for key in keys {
                let body = format!("body of {key} 🔥");
                work::add(tx, NewWork { kind, key, body: &body, not_before: *not_before }, 0).await?;
            }
            Ok::<_, Error>(())
        },
    );
    added.await.unwrap();
}

async fn claim(records: &Records, worker: &str, limit: usize, now: u64) -> Vec<Claim> {
    let request = ClaimRequest { kind: "mail".to_owned(), worker: worker.to_owned(), lease: 100, limit };
    work::claim(records, request, now).await.unwrap()
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
    assert!(claim(&one, "w1", 10, 10).await.is_empty(), "a worker does not claim its own items again");
    assert_eq!(keys(&claim(&one, "w1", 10, 50).await), ["later"]);
    for claimed in first.iter().chain(&second) {
        assert_eq!(claimed.attempt, 1);
        assert!(finish(&other, claimed, 60).await);
        assert!(!finish(&other, claimed, 60).await, "it is done already");
    }
    assert!(claim(&one, "w1", 10, 149).await.is_empty());
}

pub(crate) async fn an_ended_claim_cannot_be_finished<D: Database>(database: D) {
    let records = database.records().await;
    add(&records, "mail", &["a"], 0).await;
    let late = claim(&records, "w1", 1, 0).await.remove(0);
    assert!(claim(&records, "w2", 1, 99).await.is_empty());
    assert!(
        !finish(&records, &late, 100).await,
        "the lease has ended, even if no other worker has claimed the item"
    );
    let again = claim(&records, "w2", 1, 100).await.remove(0);
    assert_eq!((again.id, again.attempt), (late.id, 2));
    assert!(!finish(&records, &late, 110).await);
    assert!(!park(&records, &late, 500, 110).await);
    // The same worker claims the item again after its own claim has ended.
    let newest = claim(&records, "w2", 1, 200).await.remove(0);
    assert_eq!(newest.attempt, 3);
    assert!(!finish(&records, &again, 210).await, "an earlier claim of the same worker");
    assert!(finish(&records, &newest, 210).await);
}

pub(crate) async fn parked_work_is_claimed_again_and_counts_attempts<D: Database>(database: D) {
    let records = database.records().await;
    add(&records, "mail", &["a", "b"], 0).await;
    let mut now = 0;
    for attempt in 1..=3 {
        let claimed = claim(&records, "w1", 1, now).await.remove(0);
        assert_eq!((claimed.key.as_str(), claimed.attempt), ("a", attempt));
        assert!(park(&records, &claimed, now + 1_000, now).await);
        assert!(!finish(&records, &claimed, now).await, "its claim was released");
        let next = claim(&records, "w1", 5, now + 999).await;
        assert_eq!(keys(&next), ["b"], "a parked item does not delay others");
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
                assert!(done.len() <= 100, "more items were claimed than added");
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

pub(crate) async fn done_work_is_deleted_in_steps<D: Database>(database: D) {
    let records = database.records().await;
    add(&records, "mail", &["a", "b", "c", "d"], 0).await;
    for (index, claimed) in claim(&records, "w1", 3, 0).await.iter().enumerate() {
        assert!(finish(&records, claimed, 10 + index as u64).await);
    }
    let delete = |before, limit| work::delete_done_before(&records, "mail", before, limit);
    assert_eq!(delete(12, 1).await.unwrap(), 1);
    assert_eq!(delete(12, 10).await.unwrap(), 1);
    assert_eq!(delete(12, 10).await.unwrap(), 0);
    assert_eq!(delete(1_000, 10).await.unwrap(), 1);
    assert_eq!(keys(&claim(&records, "w1", 10, 0).await), ["d"], "an item that is not done stays");
}
