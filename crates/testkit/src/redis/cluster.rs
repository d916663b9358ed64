//! A Redis Cluster of three masters that share all slots, without replicas: what a client has to cope with is
//! redirections, slots on the move ([`super::migration`]) and nodes that are gone for a while.

use std::net::SocketAddr;

use bongsu_engines::redis::{NODES, Node, SLOTS, form_cluster};

use super::{AGREE, Builder, Migration, Redis, field_of};
use crate::ports::Port;
use crate::proxy::Proxy;
use crate::wait;

/// A running cluster.
pub struct Cluster {
    nodes: Vec<Redis>,
    ids: Vec<String>,
    proxies: Vec<Proxy>,
    /// Of the bus that the nodes talk over, for as long as they may be restarted.
    bus: Vec<Port>,
}

/// Prepares a cluster.
#[derive(Default)]
pub struct ClusterBuilder {
    proxied: bool,
    settings: Vec<(String, String)>,
}

impl ClusterBuilder {
    /// Puts a proxy before each node and lets the nodes announce the proxies' addresses, so that whatever a client
    /// sends goes through them. The nodes talk to each other directly.
    pub fn behind_proxies(mut self) -> Self {
        self.proxied = true;
        self
    }

    /// Sets a line of every node's redis.conf, see [`Builder::setting`].
    pub fn setting(mut self, name: &str, value: impl ToString) -> Self {
        self.settings.push((name.to_owned(), value.to_string()));
        self
    }

    /// Starts the nodes and waits until each of them serves its slots and knows who serves the others.
    pub async fn start(self) -> Cluster {
        let (mut nodes, mut proxies, mut bus) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..NODES {
            let (builder, own_bus) = (Builder::new(), Port::pick());
            let node = Node { port: builder.port(), bus: own_bus.number() };
            let mut builder = builder.settings(&node.settings()).settings(&self.settings);
            if self.proxied {
                let proxy = Proxy::start(crate::ports::loopback(builder.port())).await;
                builder = builder
                    .setting("cluster-announce-port", proxy.addr().port())
                    .setting("cluster-announce-bus-port", own_bus.number());
                proxies.push(proxy);
            }
            nodes.push(builder.start().await);
            bus.push(own_bus);
        }
        let mut ids = Vec::new();
        for node in &nodes {
            ids.push(node.command(&["CLUSTER", "MYID"]).await.text().to_owned());
        }
        let cluster = Cluster { nodes, ids, proxies, bus };
        cluster.introduce();
        cluster.wait_ok().await;
        cluster
    }
}

impl Cluster {
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// `redis+cluster://127.0.0.1:p1,127.0.0.1:p2,127.0.0.1:p3`: the proxies' ports if there are proxies.
    pub fn url(&self) -> String {
        let addrs: Vec<String> = (0..NODES).map(|node| self.announced(node).to_string()).collect();
        format!("redis+cluster://{}", addrs.join(","))
    }

    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The proxies before the nodes, in the same order; none unless they were asked for.
    pub fn proxies(&self) -> &[Proxy] {
        &self.proxies
    }

    /// Where clients are sent to for this node.
    pub fn announced(&self, node: usize) -> SocketAddr {
        self.proxies.get(node).map_or_else(|| self.nodes[node].addr(), Proxy::addr)
    }

    /// The slot of a key: only what stands between the first braces counts, if anything does.
    pub fn slot_of(key: impl AsRef<[u8]>) -> u16 {
        let key = key.as_ref();
        let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
            let inside = &key[open + 1..];
            let close = inside.iter().position(|byte| *byte == b'}')?;
            (close > 0).then(|| &inside[..close])
        });
        crc16(tag.unwrap_or(key)) % SLOTS
    }

    /// The node that serves a slot, by its own account.
    pub async fn node_of(&self, slot: u16) -> usize {
        let owner = wait::value_within(AGREE, || async {
            for (at, (node, id)) in self.nodes.iter().zip(&self.ids).enumerate() {
                let Ok(ranges) = node.try_command(&["CLUSTER", "SLOTS"]).await else { continue };
                let serves = ranges.items().iter().any(|range| {
                    let (range, slot) = (range.items(), i64::from(slot));
                    (range[0].integer()..=range[1].integer()).contains(&slot)
                        && range[2].items()[2].text() == id
                });
                if serves {
                    return Some(at);
                }
            }
            None
        });
        owner.await.unwrap_or_else(|| panic!("no node serves slot {slot}"))
    }

    /// Moves a slot with its keys to another node while clients go on, as an operator does it.
    pub async fn migrate(&self, slot: u16, to: usize) {
        let mut migration = self.start_migration(slot, to).await;
        while migration.move_keys(100).await > 0 {}
        migration.finish().await;
    }

    /// Begins to move a slot to another node, and leaves it to the test how far and how fast it goes.
    pub async fn start_migration(&self, slot: u16, to: usize) -> Migration<'_> {
        Migration::start(self, slot, self.node_of(slot).await, to).await
    }

    /// Waits until every node serves all slots together with the others, for example after one was restarted.
    pub async fn wait_ok(&self) {
        for (node, redis) in self.nodes.iter().enumerate() {
            let agreed = wait::holds_within(AGREE, async || {
                let info = redis.command(&["CLUSTER", "INFO"]).await;
                field_of(info.text(), "cluster_state") == "ok"
                    && field_of(info.text(), "cluster_known_nodes") == NODES.to_string()
            });
            assert!(
                agreed.await,
                "node {node} is not ready:\n{}",
                redis.command(&["CLUSTER", "NODES"]).await
            );
        }
    }

    pub(super) fn id(&self, node: usize) -> &str {
        &self.ids[node]
    }

    fn introduce(&self) {
        let both = self.nodes.iter().zip(&self.bus);
        let nodes: Vec<Node> =
            both.map(|(node, bus)| Node { port: node.port(), bus: bus.number() }).collect();
        form_cluster(&nodes).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// CRC-16/XMODEM, which Redis takes for slots.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
