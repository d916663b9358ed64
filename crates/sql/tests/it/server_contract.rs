//! The contract on servers that several hubs share: snapshots, conflicts, time limits, migrations, locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_sql::{DatabaseLock, Error, Migration, Migrations, PreparedServer, Records, Transaction};
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::wait;
use futures_util::future::join_all;
use tokio::sync::{Barrier, Notify};
use tokio::time::{Instant, sleep, timeout};

use crate::database::{
    COUNT, INCREMENT, ServerDatabase, connect, counters, increment, item_ids, migrations, options, put,
};

/// Longer than any change may take, and shorter than the sleep of a change that exceeds its limit.
const TIMEOUT: Duration = Duration::from_secs(40);

pub(crate) async fn a_read_sees_one_snapshot<D: ServerDatabase>(database: D) {
    let (one, other) = (database.records().await, database.records().await);
    put(&one, "a").await.unwrap();
    async fn count_twice(other: &Records, tx: &mut Transaction<'_>) -> Result<[u64; 2], Error> {
        let before = tx.row(&COUNT, &[]).await?.unwrap().count(0)?;
        put(other, "b").await?;
        Ok([before, tx.row(&COUNT, &[]).await?.unwrap().count(0)?])
    }
    assert_eq!(one.read(other, count_twice).await.unwrap(), [1, 1]);
    assert_eq!(item_ids(&one).await, ["a", "b"], "the next read sees the change");
    // A read may not write.
    let result = one.read((), increment);
    assert!(result.await.is_err_and(|error: Error| error.to_string().to_lowercase().contains("read")));
    put(&one, "c").await.unwrap();
}

/// Increments both counters in the given order. In its first run, waits between the two increments until the
/// other change has incremented its first counter as well, which makes a deadlock.
struct Crosswise {
    order: [i64; 2],
    both_locked: Arc<Barrier>,
    total_runs: Arc<AtomicU32>,
    own_runs: AtomicU32,
}

async fn increment_crosswise(input: &Crosswise, tx: &mut Transaction<'_>) -> Result<(), Error> {
    input.total_runs.fetch_add(1, Ordering::SeqCst);
    tx.run(&INCREMENT, &[("id", input.order[0].into())]).await?;
    if input.own_runs.fetch_add(1, Ordering::SeqCst) == 0 {
        input.both_locked.wait().await;
    }
    tx.run(&INCREMENT, &[("id", input.order[1].into())]).await?;
    Ok(())
}

pub(crate) async fn changes_that_block_each_other_run_again<D: ServerDatabase>(database: D) {
    let (one, other) = (database.records().await, database.records().await);
    for round in 1..=3 {
        let (both_locked, total_runs) = (Arc::new(Barrier::new(2)), Arc::new(AtomicU32::new(0)));
        let side = |order| {
            let (both_locked, total_runs) = (both_locked.clone(), total_runs.clone());
            Crosswise { order, both_locked, total_runs, own_runs: AtomicU32::new(0) }
        };
        let (first, second) = tokio::join!(
            one.write(side([1, 2]), increment_crosswise),
            other.write(side([2, 1]), increment_crosswise)
        );
        first.unwrap();
        second.unwrap();
        assert!(total_runs.load(Ordering::SeqCst) > 2, "the changes did not conflict");
        assert_eq!(counters(&one).await, [2 * round, 2 * round], "each change counts once");
    }
}

pub(crate) async fn increments_of_many_hubs_all_count<D: ServerDatabase>(database: D) {
    let hubs = [database.records().await, database.records().await, database.records().await];
    let increments = (0..90).map(async |n: usize| {
        // All of them update the same row, so on a busy machine some may reach their time limit. Those are not stored.
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            let result = hubs[n % 3].write((), increment);
            match result.await {
                Ok(changed) => return assert_eq!(changed, 1),
                Err(Error::Unavailable(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        panic!("increment {n} reached its time limit again and again");
    });
    join_all(increments).await;
    assert_eq!(counters(&hubs[0]).await, [90, 0]);
}

pub(crate) async fn a_change_is_finished_after_its_caller_was_dropped<D: ServerDatabase>(database: D) {
    let records = database.records().await;
    let (begun, caller_dropped) = (Arc::new(Barrier::new(2)), Arc::new(Notify::new()));
    let write = records.write(
        (begun.clone(), caller_dropped.clone()),
        async |(begun, caller_dropped): &(Arc<Barrier>, Arc<Notify>), tx: &mut Transaction<'_>| {
            begun.wait().await;
            caller_dropped.notified().await;
            tx.run(&INCREMENT, &[("id", 1_i64.into())]).await
        },
    );
    tokio::select! {
        _ = write => panic!("the change waits until its caller is dropped"),
        _ = begun.wait() => {}
    }
    caller_dropped.notify_one();
    wait::until(TIMEOUT, || async { counters(&records).await == [1, 0] }).await;
}

pub(crate) async fn a_change_that_takes_too_long_is_given_up<D: ServerDatabase>(database: D) {
    let records = database.records().await;
    let started = Instant::now();
    let has_the_lock = Arc::new(Notify::new());
    let slow =
        records.write(has_the_lock.clone(), async |has_the_lock: &Arc<Notify>, tx: &mut Transaction<'_>| {
            tx.run(&INCREMENT, &[("id", 1_i64.into())]).await?;
            has_the_lock.notify_one();
            // Longer than the time limit of a change.
            sleep(Duration::from_secs(60)).await;
            Ok::<_, Error>(())
        });
    // A change that waits for the row lock of the slow one has the same time limit.
    let waiting = async {
        has_the_lock.notified().await;
        records.write((), increment).await
    };
    let (slow, waited) = tokio::join!(slow, waiting);
    assert!(matches!(slow, Err(Error::Unavailable(_))), "{slow:?}");
    assert!(started.elapsed() < TIMEOUT);
    // The second change gets the lock shortly before its own time limit, so its COMMIT may stay unanswered.
    let possible: &[i64] = match waited {
        Ok(1) => &[1],
        Err(Error::Unavailable(_)) => &[0],
        Err(Error::Unanswered(_)) => &[0, 1],
        other => panic!("{other:?}"),
    };
    let stored = timeout(TIMEOUT, counters(&records)).await.unwrap();
    assert!(
        possible.contains(&stored[0]) && stored[1] == 0,
        "nothing of the slow change is stored: {stored:?}"
    );
    wait::until(TIMEOUT, || async {
        let result = records.write((), increment);
        result.await.is_ok_and(|changed| changed == 1)
    })
    .await;
    assert_eq!(records.outage(), None, "a slow change is not an outage");
}

pub(crate) async fn several_hubs_migrate_once<D: ServerDatabase>(database: D) {
    let hubs = join_all((0..6).map(|_| connect(database.url()))).await;
    let hubs: Vec<Records> = hubs.into_iter().map(Result::unwrap).collect();
    let server = database.server().await;
    assert_eq!(server.execute(database.name(), "SELECT COUNT(*) FROM bongsu_identity"), "1");
    let applied =
        server.execute(database.name(), "SELECT part, number FROM bongsu_migrations ORDER BY part, number");
    assert_eq!(applied, "sql\t1\nsql\t2\nsql\t3\ntest\t1");
    assert_eq!(counters(&hubs[5]).await, [0, 0]);
    // The record of the migration is missing, as after a crash before it was written: the migration runs again.
    server.execute(database.name(), "DELETE FROM bongsu_migrations WHERE part = 'test'");
    if hubs[0].dialect() == bongsu_sql::Dialect::Mysql {
        put(&hubs[0], "a").await.unwrap();
        assert_eq!(item_ids(&connect(database.url()).await.unwrap()).await, ["a"]);
    }
}

pub(crate) async fn a_newer_database_is_refused<D: ServerDatabase>(database: D) {
    drop(database.records().await);
    let server = database.server().await;
    server.execute(database.name(), "INSERT INTO bongsu_migrations VALUES ('sql', 4711)");
    const MORE: &[Migration] = &[Migration {
        part: "more",
        number: 1,
        sqlite: "",
        servers: Some(["CREATE TABLE more (n INT)", "CREATE TABLE more (n INT)"]),
    }];
    let newer = Migrations::new([bongsu_sql::MIGRATIONS, crate::database::TABLES, MORE]);
    let address = options(database.url()).address;
    let results = [
        Records::connect(&options(database.url()), &newer, &Supervisor::new()).await.err(),
        bongsu_sql::inspect_server(&address, &newer).await.err(),
    ];
    for result in results {
        let Some(error @ Error::Newer(..)) = result else { panic!("{result:?}") };
        let text = error.to_string();
        assert!(text.contains("sql migration 4711") && !text.contains("word"), "{text}");
    }
    assert!(server.try_execute(database.name(), "SELECT * FROM more").is_err(), "nothing was changed");
    server.execute(database.name(), "DELETE FROM bongsu_migrations WHERE number = 4711");
    assert!(bongsu_sql::inspect_server(&address, &newer).await.unwrap().warnings.is_empty());
    assert!(
        server.try_execute(database.name(), "SELECT * FROM more").is_err(),
        "an inspection changes nothing"
    );
}

pub(crate) async fn a_database_is_known_by_its_own_identity<D: ServerDatabase>(database: D) {
    async fn identity(url: &str) -> String {
        connect(url).await.unwrap();
        let prepared = PreparedServer::connect(&options(url), &migrations(), None).await.unwrap();
        prepared.identity().to_owned()
    }
    let one = identity(database.url()).await;
    assert_eq!(identity(&database.url().replace("127.0.0.1", "localhost")).await, one);
    assert_eq!(one.len(), 32);
    assert_ne!(identity(&database.server().await.database()).await, one);
}

pub(crate) async fn waiting_for_a_connection_counts_towards_the_time_limit<D: ServerDatabase>(database: D) {
    let mut options = options(database.url());
    options.max_connections = 1;
    let records = Records::connect(&options, &migrations(), &Supervisor::new()).await.unwrap();
    let started = Instant::now();
    let slow_changes = (0..3).map(|_| {
        records.write((), async |(): &(), tx: &mut Transaction<'_>| {
            tx.run(&INCREMENT, &[("id", 1_i64.into())]).await?;
            // Longer than the time limit of a change.
            sleep(Duration::from_secs(60)).await;
            Ok::<(), Error>(())
        })
    });
    for result in join_all(slow_changes).await {
        assert!(matches!(result, Err(Error::Unavailable(_))), "{result:?}");
    }
    assert!(started.elapsed() < TIMEOUT);
    // The connections of the slow changes were closed: on one of them, this commit would also commit the increment.
    wait::until(TIMEOUT, || async { put(&records, "a").await.is_ok() }).await;
    assert_eq!(counters(&records).await, [0, 0]);
}

pub(crate) async fn a_database_lock_lasts_until_its_process_ends<D: ServerDatabase>(database: D) {
    let (supervisor, others) = (Supervisor::new(), Supervisor::new());
    let (options, migrations) = (options(database.url()), migrations());
    let connect = async |lock| PreparedServer::connect(&options, &migrations, Some(lock)).await;
    let one = connect(DatabaseLock::Exclusive).await.unwrap().migrate(&supervisor).await.unwrap();
    for lock in [DatabaseLock::Exclusive, DatabaseLock::Shared] {
        let refused = connect(lock).await.err().unwrap();
        assert!(
            matches!(refused, Error::DatabaseInUse(_)) && refused.to_string().contains("REDIS_URL"),
            "{refused}"
        );
    }
    supervisor.shut_down(Duration::from_secs(1)).await;
    drop(one);
    wait::until(TIMEOUT, async || connect(DatabaseLock::Shared).await.is_ok()).await;
    let _second = connect(DatabaseLock::Shared).await.unwrap().migrate(&others).await.unwrap();
    let _third = connect(DatabaseLock::Shared).await.unwrap().migrate(&others).await.unwrap();
}

pub(crate) async fn a_prepared_server_is_unchanged_until_it_is_migrated<D: ServerDatabase>(database: D) {
    let server = database.server().await;
    let schema = if server.flavour() == Flavour::MariaDb { "DATABASE()" } else { "'public'" };
    let count = format!("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = {schema}");
    let tables = || server.execute(database.name(), &count);
    let (options, migrations) = (options(database.url()), migrations());
    let prepared = PreparedServer::connect(&options, &migrations, Some(DatabaseLock::Shared)).await.unwrap();
    let identity = prepared.identity().to_owned();
    drop(prepared);
    assert_eq!(tables(), "0", "an unfinished start created no table");
    // A second hub waits for the migration, and finds the id that the first one stored.
    let prepared = PreparedServer::connect(&options, &migrations, Some(DatabaseLock::Shared)).await.unwrap();
    assert_ne!(prepared.identity(), identity, "the first id was not stored");
    let identity = prepared.identity().to_owned();
    let supervisor = Supervisor::new();
    let (other, one) = tokio::join!(
        PreparedServer::connect(&options, &migrations, Some(DatabaseLock::Shared)),
        prepared.migrate(&supervisor),
    );
    one.unwrap();
    assert_eq!(other.unwrap().identity(), identity);
}
