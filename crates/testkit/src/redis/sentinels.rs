//! A master and a replica, monitored by three Sentinels, which promote the replica when two of them cannot reach the
//! master.
//!
//! Both servers always have a proxy: Sentinel gives replicas the same address as clients, so a test can interrupt the
//! replication only in a proxy. Writes that the replica has not received before a failover are lost.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{AGREEMENT_TIMEOUT, Builder, Redis};
use crate::ports::loopback;
use crate::proxy::{Direction, Proxy};
use crate::wait;

/// The name of the master in Sentinel.
const MASTER_NAME: &str = "bongsu";
const SENTINEL_COUNT: usize = 3;
const QUORUM_SIZE: usize = 2;
/// The source addresses of the connections that each server opens, by which a proxy distinguishes replicas from
/// clients.
const SOURCE_ADDRS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3))];

/// A master, a replica and their Sentinels.
pub struct Sentinels {
    servers: Vec<Redis>,
    proxies: Vec<Proxy>,
    sentinels: Vec<Redis>,
    sentinel_proxies: Vec<Proxy>,
    /// The index of the master in `servers`.
    master: AtomicUsize,
}

/// Prepares the servers and Sentinels.
#[derive(Default)]
pub struct SentinelsBuilder {
    has_proxies: bool,
    settings: Vec<(String, String)>,
}

impl SentinelsBuilder {
    /// Also puts a proxy in front of each Sentinel, so that all connections of clients go through proxies.
    pub fn behind_proxies(mut self) -> Self {
        self.has_proxies = true;
        self
    }

    /// Sets a line of both servers' redis.conf, see [`Builder::setting`]. A password is not supported, because the
    /// Sentinels would not know it.
    pub fn setting(mut self, name: &str, value: impl ToString) -> Self {
        self.settings.push((name.to_owned(), value.to_string()));
        self
    }

    /// Starts all processes, and waits until the replica is connected and the Sentinels know it and each other.
    pub async fn start(self) -> Sentinels {
        let (mut servers, mut proxies) = (Vec::<Redis>::new(), Vec::<Proxy>::new());
        for source in SOURCE_ADDRS {
            let builder = Builder::new();
            let proxy = Proxy::start(loopback(builder.port())).await;
            let mut builder = builder
                .setting("bind-source-addr", source)
                .setting("replica-announce-ip", "127.0.0.1")
                .setting("replica-announce-port", proxy.addr().port())
                // By default a master waits for further replicas before it sends data to the first one.
                .setting("repl-diskless-sync-delay", 0)
                // A replica must not notice that a test has stopped its replication.
                .setting("repl-timeout", 3600)
                .settings(&self.settings);
            if let Some(master) = proxies.first() {
                builder = builder.setting("replicaof", format!("127.0.0.1 {}", master.addr().port()));
            }
            servers.push(builder.start().await);
            proxies.push(proxy);
        }
        let mut set = Sentinels {
            servers,
            proxies,
            sentinels: Vec::new(),
            sentinel_proxies: Vec::new(),
            master: AtomicUsize::new(0),
        };
        // A Sentinel would reconfigure a replica that is not connected to its master.
        set.wait_following().await;
        for _ in 0..SENTINEL_COUNT {
            set.add_sentinel(self.has_proxies).await;
        }
        set.wait_discovered().await;
        set
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
        let addrs: Vec<String> = (0..SENTINEL_COUNT).map(|at| self.sentinel_addr(at).to_string()).collect();
        format!("redis+sentinel://{}/{MASTER_NAME}", addrs.join(","))
    }

    /// The master since the last [`Sentinels::wait_failover`].
    pub fn master(&self) -> &Redis {
        &self.servers[self.master_index()]
    }

    /// The replica since the last [`Sentinels::wait_failover`].
    pub fn replica(&self) -> &Redis {
        &self.servers[self.replica_index()]
    }

    /// The proxy of the master for clients, the replica and the Sentinels. After a cut the Sentinels promote the
    /// replica.
    pub fn master_proxy(&self) -> &Proxy {
        &self.proxies[self.master_index()]
    }

    pub fn replica_proxy(&self) -> &Proxy {
        &self.proxies[self.replica_index()]
    }

    pub fn sentinels(&self) -> &[Redis] {
        &self.sentinels
    }

    /// The proxies of the Sentinels; empty without [`SentinelsBuilder::behind_proxies`].
    pub fn sentinel_proxies(&self) -> &[Proxy] {
        &self.sentinel_proxies
    }

    /// Stops the replication: the replica receives no more writes, and neither server notices it.
    pub fn stop_replication(&self) {
        self.master_proxy().stall_from(SOURCE_ADDRS[self.replica_index()], Direction::ToClient);
    }

    /// Ends [`Sentinels::stop_replication`], and waits until the replica is connected again.
    pub async fn resume_replication(&self) {
        self.master_proxy().end_stall_from(SOURCE_ADDRS[self.replica_index()]);
        // The connection has lost bytes; over a new one the replica requests all writes after its offset.
        self.replica().command(&["CLIENT", "KILL", "TYPE", "master"]).await.expect_ok();
        self.wait_following().await;
    }

    /// Kills the master. The Sentinels detect this after one to two seconds.
    pub async fn kill_master(&self) {
        self.master().kill9().await;
    }

    /// Waits until the replica has become the master and all running Sentinels report it. [`Sentinels::master`] is then
    /// the new master, and the old one becomes its replica when it runs again.
    pub async fn wait_failover(&self) {
        let (old, new) = (self.master_index(), self.replica_index());
        let addr = self.proxies[new].addr();
        let has_failed_over = wait::holds_within(AGREEMENT_TIMEOUT, async || {
            for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_running()) {
                let Ok(master) =
                    sentinel.try_command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME]).await
                else {
                    return false;
                };
                if master.to_string() != format!("{}\n{}", addr.ip(), addr.port()) {
                    return false;
                }
            }
            self.servers[new].info("role").await == "master"
        });
        assert!(has_failed_over.await, "no failover:\n{}", super::tail(&self.sentinels[0].log()));
        self.proxies[old].end_stall_from(SOURCE_ADDRS[new]);
        self.master.store(new, Ordering::SeqCst);
    }

    /// Waits until the replica is connected to the master, for example after a restart of an old master.
    pub async fn wait_following(&self) {
        let is_connected = wait::holds_within(AGREEMENT_TIMEOUT, async || {
            let replica = self.replica();
            replica.info("role").await == "slave"
                && replica.info("master_port").await == self.master_proxy().addr().port().to_string()
                && replica.info("master_link_status").await == "up"
        });
        assert!(is_connected.await, "the replica does not follow:\n{}", super::tail(&self.replica().log()));
    }

    async fn add_sentinel(&mut self, has_proxies: bool) {
        let port = self.master_proxy().addr().port();
        let mut builder = Builder::sentinel()
            .setting(&format!("sentinel monitor {MASTER_NAME}"), format!("127.0.0.1 {port} {QUORUM_SIZE}"))
            // More than one second, because a Sentinel sends its first ping to a new master after one second. With a
            // shorter time it sometimes considers the new master down and fails over to the old one again.
            .setting(&format!("sentinel down-after-milliseconds {MASTER_NAME}"), 1_500)
            .setting(&format!("sentinel failover-timeout {MASTER_NAME}"), 3_000);
        if has_proxies {
            let proxy = Proxy::start(loopback(builder.port())).await;
            builder = builder
                .setting("sentinel announce-ip", "127.0.0.1")
                .setting("sentinel announce-port", proxy.addr().port());
            self.sentinel_proxies.push(proxy);
        }
        let sentinel = builder.start().await;
        // By default Sentinels send INFO to servers every ten seconds, and publish their state every two seconds.
        let words = ["SENTINEL", "DEBUG", "INFO-PERIOD", "500", "PUBLISH-PERIOD", "500"];
        sentinel.command(&words).await.expect_ok();
        self.sentinels.push(sentinel);
    }

    async fn wait_discovered(&self) {
        for sentinel in &self.sentinels {
            let has_discovered = wait::holds_within(AGREEMENT_TIMEOUT, async || {
                let reply = sentinel.command(&["SENTINEL", "MASTER", MASTER_NAME]).await.expect_ok();
                let field = |name: &str| {
                    let mut words = reply.items().iter().map(super::Reply::text);
                    words.find(|word| *word == name).and_then(|_| words.next()).unwrap_or_default().to_owned()
                };
                field("flags") == "master"
                    && field("num-slaves") == "1"
                    && field("num-other-sentinels") == (SENTINEL_COUNT - 1).to_string()
            });
            assert!(
                has_discovered.await,
                "a Sentinel does not know the others:\n{}",
                super::tail(&sentinel.log())
            );
        }
    }

    fn sentinel_addr(&self, index: usize) -> SocketAddr {
        self.sentinel_proxies.get(index).map_or_else(|| self.sentinels[index].addr(), Proxy::addr)
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
