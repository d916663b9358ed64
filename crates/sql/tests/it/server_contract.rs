//! What holds on servers that several hubs share: snapshots, conflicts, time limits, migrations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_sql::{Claim, Error, Migration, Migrations, PreparedServer, Records, Transaction};
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::wait;
use futures_util::future::join_all;
use tokio::sync::{Barrier, Notify};
use tokio::time::{Instant, sleep, timeout};

use crate::database::{
    COUNT, INCREMENT, OnServer, connect, counters, increment, listed, migrations, options, put,
};

/// Far longer than a change may take, and shorter than one that would never be given up.
const LONG: Duration = Duration::from_secs(40);

pub(crate) async fn a_read_sees_one_moment<D: OnServer>(database: D) {
    let (one, other) = (database.records().await, database.records().await);
    put(&one, "a").await.unwrap();
    async fn question(other: &Records, tx: &mut Transaction<'_>) -> Result<[u64; 2], Error> {
        let before = tx.row(&COUNT, &[]).await?.unwrap().count(0)?;
        put(other, "b").await?;
        Ok([before, tx.row(&COUNT, &[]).await?.unwrap().count(0)?])
    }
    assert_eq!(one.read(other, question).await.unwrap(), [1, 1]);
    assert_eq!(listed(&one).await, ["a", "b"], "the next one sees it");
    // Reading is all that a read may do.
    let done = one.read((), increment);
    assert!(done.await.is_err_and(|error: Error| error.to_string().to_lowercase().contains("read")));
    put(&one, "c").await.unwrap();
}

/// Increments both counters, one after the other, and the first time only when both sides have one of them.
struct Crosswise {
    order: [i64; 2],
    met: Arc<Barrier>,
    runs: Arc<AtomicU32>,
    own: AtomicU32,
}

async fn crosswise(given: &Crosswise, tx: &mut Transaction<'_>) -> Result<(), Error> {
    given.runs.fetch_add(1, Ordering::SeqCst);
    tx.run(&INCREMENT, &[("id", given.order[0].into())]).await?;
    if given.own.fetch_add(1, Ordering::SeqCst) == 0 {
        given.met.wait().await;
    }
    tx.run(&INCREMENT, &[("id", given.order[1].into())]).await?;
    Ok(())
}

pub(crate) async fn changes_that_block_each_other_run_again<D: OnServer>(database: D) {
    let (one, other) = (database.records().await, database.records().await);
    for round in 1..=3 {
        let (met, runs) = (Arc::new(Barrier::new(2)), Arc::new(AtomicU32::new(0)));
        let side = |order| {
            let (met, runs) = (met.clone(), runs.clone());
            Crosswise { order, met, runs, own: AtomicU32::new(0) }
        };
        let (first, second) =
            tokio::join!(one.write(side([1, 2]), crosswise), other.write(side([2, 1]), crosswise));
        first.unwrap();
        second.unwrap();
        assert!(runs.load(Ordering::SeqCst) > 2, "nobody was in anybody's way");
        assert_eq!(counters(&one).await, [2 * round, 2 * round], "each counts once");
    }
}

pub(crate) async fn increments_of_many_hubs_all_count<D: OnServer>(database: D) {
    let hubs = [database.records().await, database.records().await, database.records().await];
    let increments = (0..90).map(async |n: usize| {
        // All of them want the same row, and on a busy machine the last ones may be given up. Those are not kept.
        let deadline = Instant::now() + LONG;
        while Instant::now() < deadline {
            let done = hubs[n % 3].write((), increment);
            match done.await {
                Ok(changed) => return assert_eq!(changed, 1),
                Err(Error::Away(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        panic!("increment {n} was given up again and again");
    });
    join_all(increments).await;
    assert_eq!(counters(&hubs[0]).await, [90, 0]);
}

pub(crate) async fn a_change_whose_asker_went_away_is_finished<D: OnServer>(database: D) {
    let records = database.records().await;
    let (begun, is_left) = (Arc::new(Barrier::new(2)), Arc::new(Notify::new()));
    let asked = records.write(
        (begun.clone(), is_left.clone()),
        async |(begun, is_left): &(Arc<Barrier>, Arc<Notify>), tx: &mut Transaction<'_>| {
            begun.wait().await;
            is_left.notified().await;
            tx.run(&INCREMENT, &[("id", 1_i64.into())]).await
        },
    );
    tokio::select! {
        _ = asked => panic!("it waits"),
        _ = begun.wait() => {}
    }
    is_left.notify_one();
    wait::until(LONG, || async { counters(&records).await == [1, 0] }).await;
}

pub(crate) async fn a_change_that_takes_too_long_is_given_up<D: OnServer>(database: D) {
    let records = database.records().await;
    let started = Instant::now();
    let has_the_lock = Arc::new(Notify::new());
    let slow =
        records.write(has_the_lock.clone(), async |has_the_lock: &Arc<Notify>, tx: &mut Transaction<'_>| {
            tx.run(&INCREMENT, &[("id", 1_i64.into())]).await?;
            has_the_lock.notify_one();
            // Slower than any change may be.
            sleep(Duration::from_secs(60)).await;
            Ok::<_, Error>(())
        });
    // Who waits for its lock meanwhile is not held up for longer, either.
    let waiting = async {
        has_the_lock.notified().await;
        records.write((), increment).await
    };
    let (slow, waited) = tokio::join!(slow, waiting);
    assert!(matches!(slow, Err(Error::Away(_))), "{slow:?}");
    assert!(started.elapsed() < LONG);
    // It gets the lock when its own time is nearly over, so that its commit may be what is not answered.
    let possible: &[i64] = match waited {
        Ok(1) => &[1],
        Err(Error::Away(_)) => &[0],
        Err(Error::Unanswered(_)) => &[0, 1],
        other => panic!("{other:?}"),
    };
    let kept = timeout(LONG, counters(&records)).await.unwrap();
    assert!(possible.contains(&kept[0]) && kept[1] == 0, "nothing of the slow one is kept: {kept:?}");
    wait::until(LONG, || async {
        let done = records.write((), increment);
        done.await.is_ok_and(|changed| changed == 1)
    })
    .await;
    assert_eq!(records.trouble(), None, "one slow change is no outage");
}

pub(crate) async fn several_hubs_migrate_once<D: OnServer>(database: D) {
    let hubs = join_all((0..6).map(|_| connect(database.url()))).await;
    let hubs: Vec<Records> = hubs.into_iter().map(Result::unwrap).collect();
    let server = database.server().await;
    assert_eq!(server.execute(database.name(), "SELECT COUNT(*) FROM bongsu_identity"), "1");
    let said =
        server.execute(database.name(), "SELECT part, number FROM bongsu_migrations ORDER BY part, number");
    assert_eq!(said, "sql\t1\nsql\t2\ntest\t1");
    assert_eq!(counters(&hubs[5]).await, [0, 0]);
    // And again, after a crash in the middle of the second one.
    server.execute(database.name(), "DELETE FROM bongsu_migrations WHERE part = 'test'");
    if hubs[0].dialect() == bongsu_sql::Dialect::Mysql {
        put(&hubs[0], "a").await.unwrap();
        assert_eq!(listed(&connect(database.url()).await.unwrap()).await, ["a"]);
    }
}

pub(crate) async fn a_newer_database_is_left_alone<D: OnServer>(database: D) {
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
    let refused = [
        Records::connect(&options(database.url()), &newer, &Supervisor::new()).await.err(),
        bongsu_sql::inspect_server(&address, &newer).await.err(),
    ];
    for refused in refused {
        let Some(error @ Error::Newer(..)) = refused else { panic!("{refused:?}") };
        let told = error.to_string();
        assert!(told.contains("sql migration 4711") && !told.contains("word"), "{told}");
    }
    assert!(server.try_execute(database.name(), "SELECT * FROM more").is_err(), "nothing was changed");
    server.execute(database.name(), "DELETE FROM bongsu_migrations WHERE number = 4711");
    assert!(bongsu_sql::inspect_server(&address, &newer).await.unwrap().warnings.is_empty());
    assert!(server.try_execute(database.name(), "SELECT * FROM more").is_err(), "looking changes nothing");
}

pub(crate) async fn a_database_is_known_by_its_own_identity<D: OnServer>(database: D) {
    async fn identity(url: &str) -> String {
        connect(url).await.unwrap();
        let prepared = PreparedServer::prepare(&options(url), &migrations(), None).await.unwrap();
        prepared.identity().to_owned()
    }
    let one = identity(database.url()).await;
    assert_eq!(identity(&database.url().replace("127.0.0.1", "localhost")).await, one);
    assert_eq!(one.len(), 32);
    assert_ne!(identity(&database.server().await.database()).await, one);
}

pub(crate) async fn who_waits_for_a_connection_waits_not_longer_than_for_the_rest<D: OnServer>(database: D) {
    let mut few = options(database.url());
    few.most_connections = 1;
    let records = Records::connect(&few, &migrations(), &Supervisor::new()).await.unwrap();
    let started = Instant::now();
    let slow = (0..3).map(|_| {
        records.write((), async |(): &(), tx: &mut Transaction<'_>| {
            tx.run(&INCREMENT, &[("id", 1_i64.into())]).await?;
            // Slower than any change may be.
            sleep(Duration::from_secs(60)).await;
            Ok::<(), Error>(())
        })
    });
    for done in join_all(slow).await {
        assert!(matches!(done, Err(Error::Away(_))), "{done:?}");
    }
    assert!(started.elapsed() < LONG);
    // The one connection was closed: on the same one, this would have kept what was given up.
    wait::until(LONG, || async { put(&records, "a").await.is_ok() }).await;
    assert_eq!(counters(&records).await, [0, 0]);
}

pub(crate) async fn a_claimed_database_is_one_process_s_until_it_ends<D: OnServer>(database: D) {
    let (supervisor, others) = (Supervisor::new(), Supervisor::new());
    let (options, migrations) = (options(database.url()), migrations());
    let claim = async |how| PreparedServer::prepare(&options, &migrations, Some(how)).await;
    let one = claim(Claim::Alone).await.unwrap().migrate(&supervisor).await.unwrap();
    for how in [Claim::Alone, Claim::Shared] {
        let refused = claim(how).await.err().unwrap();
        assert!(matches!(refused, Error::Taken(_)) && refused.to_string().contains("REDIS_URL"), "{refused}");
    }
    supervisor.shut_down(Duration::from_secs(1)).await;
    drop(one);
    wait::until(LONG, async || claim(Claim::Shared).await.is_ok()).await;
    let _second = claim(Claim::Shared).await.unwrap().migrate(&others).await.unwrap();
    let _third = claim(Claim::Shared).await.unwrap().migrate(&others).await.unwrap();
}

pub(crate) async fn what_is_prepared_is_not_changed_until_it_is_migrated<D: OnServer>(database: D) {
    let server = database.server().await;
    let schema = if server.flavour() == Flavour::MariaDb { "DATABASE()" } else { "'public'" };
    let count = format!("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = {schema}");
    let tables = || server.execute(database.name(), &count);
    let (options, migrations) = (options(database.url()), migrations());
    let prepared = PreparedServer::prepare(&options, &migrations, Some(Claim::Shared)).await.unwrap();
    let identity = prepared.identity().to_owned();
    drop(prepared);
    assert_eq!(tables(), "0", "a start that failed left something behind");
    // Who comes meanwhile waits, and finds what the first one made.
    let prepared = PreparedServer::prepare(&options, &migrations, Some(Claim::Shared)).await.unwrap();
    assert_ne!(prepared.identity(), identity, "it was never kept");
    let identity = prepared.identity().to_owned();
    let supervisor = Supervisor::new();
    let (other, one) = tokio::join!(
        PreparedServer::prepare(&options, &migrations, Some(Claim::Shared)),
        prepared.migrate(&supervisor),
    );
    one.unwrap();
    assert_eq!(other.unwrap().identity(), identity);
}
