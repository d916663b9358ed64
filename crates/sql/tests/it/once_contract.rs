//! The contract of `once` on every database.

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
