//! A master and its replica, watched by three Sentinels that make the replica the master when two of them miss it.
//!
//! Both servers stand behind a proxy, always: Sentinel has a replica follow the very address that it gives to
//! clients, so replication can be stopped only on the way. What the replica has not received when it takes over is
//! lost, as it is with any failover of Redis.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{AGREE, Builder, Redis};
use crate::ports::loopback;
use crate::proxy::{Direction, Proxy};
use crate::wait;

/// The name that the master is asked for by.
const NAME: &str = "bongsu";
const SENTINELS: usize = 3;
const QUORUM: usize = 2;
/// The address that each server's own connections come from, so that a proxy knows a replica from a client.
const SOURCES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3))];

/// Two servers and who watches them.
pub struct Sentinels {
    servers: Vec<Redis>,
    proxies: Vec<Proxy>,
    sentinels: Vec<Redis>,
    sentinel_proxies: Vec<Proxy>,
    /// Which of the servers is the master.
    master: AtomicUsize,
}

/// Prepares them.
#[derive(Default)]
pub struct SentinelsBuilder {
    proxied: bool,
    settings: Vec<(String, String)>,
}

impl SentinelsBuilder {
    /// Puts a proxy before each Sentinel as well, so that whatever a client sends goes through one.
    pub fn behind_proxies(mut self) -> Self {
        self.proxied = true;
        self
    }

    /// Sets a line of both servers' redis.conf, see [`Builder::setting`]; not a password, which the Sentinels would
    /// not know.
    pub fn setting(mut self, name: &str, value: impl ToString) -> Self {
        self.settings.push((name.to_owned(), value.to_string()));
        self
    }

    /// Starts all of them, and waits until the replica follows and the Sentinels know it and each other.
    pub async fn start(self) -> Sentinels {
        let (mut servers, mut proxies) = (Vec::<Redis>::new(), Vec::<Proxy>::new());
        for source in SOURCES {
            let builder = Builder::new();
            let proxy = Proxy::start(loopback(builder.port())).await;
            let mut builder = builder
                .setting("bind-source-addr", source)
                .setting("replica-announce-ip", "127.0.0.1")
                .setting("replica-announce-port", proxy.addr().port())
                // Otherwise a master waits for more replicas before it sends the first one anything.
                .setting("repl-diskless-sync-delay", 0)
                // A replica whose replication a test has stopped is not to notice.
                .setting("repl-timeout", 3600)
                .settings(&self.settings);
            if let Some(master) = proxies.first() {
                builder = builder.setting("replicaof", format!("127.0.0.1 {}", master.addr().port()));
            }
            servers.push(builder.start().await);
            proxies.push(proxy);
        }
        let mut started = Sentinels {
            servers,
            proxies,
            sentinels: Vec::new(),
            sentinel_proxies: Vec::new(),
            master: AtomicUsize::new(0),
        };
        // A Sentinel that meets a replica without its master takes that for something to mend.
        started.wait_following().await;
        for _ in 0..SENTINELS {
            started.add_sentinel(self.proxied).await;
        }
        started.wait_acquainted().await;
        started
    }
}

impl Sentinels {
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    pub fn builder() -> SentinelsBuilder {
        SentinelsBuilder::default()
    }

    /// `redis+sentinel://127.0.0.1:s1,127.0.0.1:s2,127.0.0.1:s3/bongsu`.
    pub fn url(&self) -> String {
        let addrs: Vec<String> = (0..SENTINELS).map(|at| self.sentinel_addr(at).to_string()).collect();
        format!("redis+sentinel://{}/{NAME}", addrs.join(","))
    }

    /// The master, as of the last [`Sentinels::wait_failover`].
    pub fn master(&self) -> &Redis {
        &self.servers[self.master_index()]
    }

    /// The other one.
    pub fn replica(&self) -> &Redis {
        &self.servers[self.replica_index()]
    }

    /// The proxy that everybody reaches the master through: clients, its replica and the Sentinels. Cutting it
    /// makes them elect the replica.
    pub fn master_proxy(&self) -> &Proxy {
        &self.proxies[self.master_index()]
    }

    pub fn replica_proxy(&self) -> &Proxy {
        &self.proxies[self.replica_index()]
    }

    pub fn sentinels(&self) -> &[Redis] {
        &self.sentinels
    }

    /// The proxies before the Sentinels; none unless they were asked for.
    pub fn sentinel_proxies(&self) -> &[Proxy] {
        &self.sentinel_proxies
    }

    /// From now on nothing that is written reaches the replica, though both believe that it does.
    pub fn stop_replication(&self) {
        self.master_proxy().stall_from(SOURCES[self.replica_index()], Direction::ToClient);
    }

    /// Lets the replica catch up, and waits until it follows again.
    pub async fn resume_replication(&self) {
        self.master_proxy().end_stall_from(SOURCES[self.replica_index()]);
        // The link has lost bytes; over a new one it asks for all that came after what it has.
        self.replica().command(&["CLIENT", "KILL", "TYPE", "master"]).await.accepted();
        self.wait_following().await;
    }

    /// Kills the master. The Sentinels notice after a second or two.
    pub async fn kill_master(&self) {
        self.master().kill9().await;
    }

    /// Waits until the replica is the master and all Sentinels that run say so. From then on [`Sentinels::master`]
    /// is the new one, and the old one, when it comes back, is its replica.
    pub async fn wait_failover(&self) {
        let (old, new) = (self.master_index(), self.replica_index());
        let addr = self.proxies[new].addr();
        let told = wait::holds_within(AGREE, async || {
            for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_running()) {
                let Ok(master) = sentinel.try_command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).await
                else {
                    return false;
                };
                if master.to_string() != format!("{}\n{}", addr.ip(), addr.port()) {
                    return false;
                }
            }
            self.servers[new].info("role").await == "master"
        });
        assert!(told.await, "no failover:\n{}", super::tail(&self.sentinels[0].log()));
        self.proxies[old].end_stall_from(SOURCES[new]);
        self.master.store(new, Ordering::SeqCst);
    }

    /// Waits until the replica follows the master, for example after an old master came back.
    pub async fn wait_following(&self) {
        let follows = wait::holds_within(AGREE, async || {
            let replica = self.replica();
            replica.info("role").await == "slave"
                && replica.info("master_port").await == self.master_proxy().addr().port().to_string()
                && replica.info("master_link_status").await == "up"
        });
        assert!(follows.await, "the replica does not follow:\n{}", super::tail(&self.replica().log()));
    }

    async fn add_sentinel(&mut self, proxied: bool) {
        let port = self.master_proxy().addr().port();
        let mut builder = Builder::sentinel()
            .setting(&format!("sentinel monitor {NAME}"), format!("127.0.0.1 {port} {QUORUM}"))
            // More than the second after which a Sentinel first asks a server that it has just come to know: with
            // that or less it takes a new master for dead at once, now and then, and goes back to the old one.
            .setting(&format!("sentinel down-after-milliseconds {NAME}"), 1_500)
            .setting(&format!("sentinel failover-timeout {NAME}"), 3_000);
        if proxied {
            let proxy = Proxy::start(loopback(builder.port())).await;
            builder = builder
                .setting("sentinel announce-ip", "127.0.0.1")
                .setting("sentinel announce-port", proxy.addr().port());
            self.sentinel_proxies.push(proxy);
        }
        let sentinel = builder.start().await;
        // By themselves they ask servers how they are every ten seconds, and tell each other every two.
        let words = ["SENTINEL", "DEBUG", "INFO-PERIOD", "500", "PUBLISH-PERIOD", "500"];
        sentinel.command(&words).await.accepted();
        self.sentinels.push(sentinel);
    }

    async fn wait_acquainted(&self) {
        for sentinel in &self.sentinels {
            let known = wait::holds_within(AGREE, async || {
                let said = sentinel.command(&["SENTINEL", "MASTER", NAME]).await.accepted();
                let field = |name: &str| {
                    let mut words = said.items().iter().map(super::Reply::text);
                    words.find(|word| *word == name).and_then(|_| words.next()).unwrap_or_default().to_owned()
                };
                field("flags") == "master"
                    && field("num-slaves") == "1"
                    && field("num-other-sentinels") == (SENTINELS - 1).to_string()
            });
            assert!(known.await, "a Sentinel does not know the others:\n{}", super::tail(&sentinel.log()));
        }
    }

    fn sentinel_addr(&self, at: usize) -> SocketAddr {
        self.sentinel_proxies.get(at).map_or_else(|| self.sentinels[at].addr(), Proxy::addr)
    }

    fn master_index(&self) -> usize {
        self.master.load(Ordering::SeqCst)
    }

    fn replica_index(&self) -> usize {
        1 - self.master_index()
    }
}

#[cfg(test)]
#[path = "sentinels_tests.rs"]
mod tests;
