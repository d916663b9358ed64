//! A database server that a fleet shares: PostgreSQL, or MariaDB and MySQL.
//!
//! Every transaction runs on the runtime that opened the server, as a task of its own: whoever asked may go away, and
//! what was begun is finished. It has five seconds for everything. A connection goes back to the others only when it is
//! certain that nothing is under way on it.

mod durability;
mod heed;
mod link;
mod migrate;
mod mysql;
mod numeric;
mod pool;
mod postgres;
mod transact;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bongsu_kernel::findings::{Findings, Inspection};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, clock, random};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use crate::{Address, Claim, Dialect, Error, Migrations, Options, Records};
pub(crate) use link::Begin;
use link::{Fault, Link};
pub(crate) use pool::Session;
use pool::{Lane, Pool};

/// How long a start waits for the server.
const START: Duration = Duration::from_secs(10);
const START_AGAIN: Duration = Duration::from_millis(250);
/// How long it waits for another process to let go of the database.
const CLAIM: Duration = Duration::from_secs(3);
/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(2);
/// The server is asked whether it is there so often, and has so long to answer.
const WATCH: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(2);

const AWAY: &str = "the database cannot be reached: what needs records answers with an error";

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Server(Arc<Inner>, Lane);

struct Inner {
    dialect: Dialect,
    pool: Pool,
    /// Where connections live: a connection works only as long as the runtime does on which it was opened.
    home: Handle,
    findings: Findings,
    /// The watch's own connection, so that a busy pool does not look like a server that is away.
    watching: tokio::sync::Mutex<Option<Link>>,
    told: AtomicBool,
    /// How the database is used, and whom to tell when that is not possible any more.
    claimed: Option<(Claim, Supervisor)>,
}

/// A server that was claimed and may be migrated. Nothing in it was changed yet, and nothing is when this is dropped.
pub struct PreparedServer {
    /// Holds the claim, and the lock that keeps other hubs from migrating.
    link: Link,
    options: Options,
    migrations: Migrations,
    claim: Option<Claim>,
    begun: migrate::Begun,
}

impl PreparedServer {
    /// Waits for the server, but not for long, and finds whatever would refuse this process or its migrations. With a claim it
    /// makes sure that nobody uses the database whom this process would not hear of, for as long as it runs; it is stopped
    /// when somebody came while the server was away. On MariaDB one who is alone is not kept from those who share.
    pub async fn prepare(
        options: &Options,
        migrations: &Migrations,
        claim: Option<Claim>,
    ) -> Result<Self, Error> {
        let address = &options.address;
        let mut link = first_link(address).await?;
        if let Some(how) = claim {
            take_claim(&mut link, how, address).await?;
        }
        let begun = migrate::begin(&mut link, migrations, address).await?;
        Ok(Self { link, options: options.clone(), migrations: migrations.clone(), claim, begun })
    }

    /// Tells this database from others that can be shared, by whatever address it is reached. A database that has no identity
    /// yet is given this one with its migrations.
    pub fn identity(&self) -> &str {
        &self.begun.identity
    }

    /// Brings the server to this version's schema.
    pub async fn migrate(mut self, supervisor: &Supervisor) -> Result<Records, Error> {
        migrate::finish(&mut self.link, &self.begun, &self.migrations, &self.options.address).await?;
        let claimed = self.claim.map(|how| (how, supervisor.clone()));
        let server = Server::start(self.link, &self.options, claimed, supervisor).await;
        Ok(Records::on(server).named(self.migrations.names().clone()))
    }
}

impl Server {
    /// Waits for the server, but not for long, to look only: the schema has to be of this version already.
    pub(crate) async fn open_as_is(
        options: &Options,
        migrations: &Migrations,
        supervisor: &Supervisor,
    ) -> Result<Self, Error> {
        let mut link = first_link(&options.address).await?;
        migrate::check_complete(&mut link, migrations, &options.address).await?;
        Ok(Self::start(link, options, None, supervisor).await)
    }

    async fn start(
        link: Link,
        options: &Options,
        claimed: Option<(Claim, Supervisor)>,
        supervisor: &Supervisor,
    ) -> Self {
        let inner = Arc::new(Inner {
            dialect: options.address.dialect(),
            pool: Pool::new(options),
            home: Handle::current(),
            findings: Findings::default(),
            watching: tokio::sync::Mutex::new(Some(link)),
            told: AtomicBool::new(false),
            claimed,
        });
        let this = Self(inner, Lane::Everybody);
        this.look().await;
        supervisor.every("database-watch", WATCH, &this, |server| async move { server.look().await });
        this
    }

    /// The same, on connections that are kept free of everybody else's transactions.
    pub(crate) fn own_lane(&self) -> Self {
        Self(self.0.clone(), Lane::Own)
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.0.dialect
    }

    pub(crate) fn trouble(&self) -> Option<&'static str> {
        self.0.pool.is_away().then_some(AWAY)
    }

    pub(crate) fn warnings(&self) -> Vec<&'static str> {
        self.0.findings.warnings()
    }

    /// The connection that the server is watched by, which holds the claim on the database, too.
    async fn connect_to_watch(&self) -> Result<Link, Fault> {
        let mut link = Link::connect(self.0.pool.address()).await?;
        if let Some((how, supervisor)) = &self.0.claimed
            && !link.claim(*how).await?
        {
            tracing::error!("another process has taken the database");
            supervisor.fail("database-claim");
        }
        Ok(link)
    }

    async fn check(&self, link: &mut Link) -> Result<(), Fault> {
        link.ask("SELECT 1").await?;
        durability::look(&self.0.findings, link).await
    }

    /// Asks the server whether it is there, and how safe what it keeps is.
    async fn look(&self) {
        let inner = &self.0;
        let mut watching = inner.watching.lock().await;
        let looked = timeout(ANSWER, async {
            if let Some(mut link) = watching.take() {
                if self.check(&mut link).await.is_ok() {
                    *watching = Some(link);
                    return Ok(());
                }
                // That the server has closed a connection says nothing about the server; whether it takes a new one does.
                // The claim is made again at the next look, when the server has let go of the closed one's.
                let mut probe = Link::connect(inner.pool.address()).await?;
                return self.check(&mut probe).await;
            }
            let mut link = self.connect_to_watch().await?;
            self.check(&mut link).await?;
            *watching = Some(link);
            Ok::<_, Fault>(())
        });
        let late = || Fault::Broken("it does not answer".to_owned());
        match looked.await.unwrap_or_else(|_| Err(late())) {
            Ok(()) => {
                inner.pool.set_there();
                if inner.told.swap(false, Ordering::AcqRel) {
                    tracing::info!("the database is reached again");
                }
            }
            Err(fault) => {
                inner.pool.set_away(&fault);
                inner.findings.forget();
                if !inner.told.swap(true, Ordering::AcqRel) {
                    tracing::error!(%fault, "the database is lost");
                }
            }
        }
    }
}

/// What `bongsu doctor` finds without changing anything: what is unsafe about the server, and what its clock shows.
pub(crate) async fn inspect(address: &Address, migrations: &Migrations) -> Result<Inspection, Error> {
    let mut link = first_link(address).await?;
    migrate::check(&mut link, migrations, address).await?;
    let findings = Findings::default();
    let unusable = |fault: Fault| unusable(address, &fault);
    durability::look(&findings, &mut link).await.map_err(unusable)?;
    let clock = Clock::system();
    let before = clock.now();
    let time = link.time().await.map_err(unusable)?;
    let clock_skew_ms = clock::skew_ms(before, time, clock.now());
    Ok(Inspection { warnings: findings.warnings(), clock_skew_ms })
}

/// Takes the database. The claim is the connection's own, which the server is watched by: it ends with the process, and is made
/// again whenever the server was away.
async fn take_claim(link: &mut Link, how: Claim, address: &Address) -> Result<(), Error> {
    let started = Instant::now();
    while !link.claim(how).await.map_err(|fault| unusable(address, &fault))? {
        // A process that was killed a moment ago is perhaps just this one.
        if started.elapsed() > CLAIM {
            return Err(Error::Taken(address.to_string()));
        }
        tokio::time::sleep(START_AGAIN).await;
    }
    Ok(())
}

/// The first connection of a start. What will not pass by waiting is told at once.
async fn first_link(address: &Address) -> Result<Link, Error> {
    let deadline = Instant::now() + START;
    loop {
        let fault = match timeout(CONNECT, Link::connect(address)).await {
            Ok(Ok(link)) => return Ok(link),
            Ok(Err(fault)) => fault,
            Err(_) => Fault::Broken(format!("no answer within {} s", CONNECT.as_secs())),
        };
        if matches!(fault, Fault::Denied(_)) || Instant::now() >= deadline {
            return Err(unusable(address, &fault));
        }
        let jitter = Duration::from_millis(random::between(0, 100));
        tokio::time::sleep(START_AGAIN + jitter).await;
    }
}

fn unusable(address: &Address, fault: &Fault) -> Error {
    Error::NoServer(address.to_string(), fault.to_string())
}
