//! A Redis Cluster of three masters without replicas. Tests use it for redirections, slot migrations
//! ([`super::migration`]) and nodes that are down for some time.

use std::net::SocketAddr;

use bongsu_engines::redis::{NODE_COUNT, Node, SLOTS, form_cluster};

use super::{AGREEMENT_TIMEOUT, Builder, Migration, Redis, field_of};
use crate::ports::Port;
use crate::proxy::Proxy;
use crate::wait;

/// A running cluster.
pub struct Cluster {
    nodes: Vec<Redis>,
    ids: Vec<String>,
    proxies: Vec<Proxy>,
    /// The reserved ports of the cluster bus, by node.
    bus_ports: Vec<Port>,
}

/// Prepares a cluster.
#[derive(Default)]
pub struct ClusterBuilder {
    has_proxies: bool,
    settings: Vec<(String, String)>,
}

impl ClusterBuilder {
    /// Puts a proxy in front of each node. The nodes announce the addresses of the proxies, so that all connections of
    /// clients go through proxies. The nodes connect to each other directly.
    pub fn behind_proxies(mut self) -> Self {
        self.has_proxies = true;
        self
    }

    /// Sets a line of every node's redis.conf, see [`Builder::setting`].
    pub fn setting(mut self, name: &str, value: impl ToString) -> Self {
        self.settings.push((name.to_owned(), value.to_string()));
        self
    }

    /// Starts the nodes and waits until each of them serves its slots and knows the owners of all others.
    pub async fn start(self) -> Cluster {
        let (mut nodes, mut proxies, mut bus_ports) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..NODE_COUNT {
            let (builder, bus_port) = (Builder::new(), Port::pick());
            let node = Node { port: builder.port(), bus: bus_port.number() };
            let mut builder = builder.settings(&node.settings()).settings(&self.settings);
            if self.has_proxies {
                let proxy = Proxy::start(crate::ports::loopback(builder.port())).await;
                builder = builder
                    .setting("cluster-announce-port", proxy.addr().port())
                    .setting("cluster-announce-bus-port", bus_port.number());
                proxies.push(proxy);
            }
            nodes.push(builder.start().await);
            bus_ports.push(bus_port);
        }
        let mut ids = Vec::new();
        for node in &nodes {
            ids.push(node.command(&["CLUSTER", "MYID"]).await.text().to_owned());
        }
        let cluster = Cluster { nodes, ids, proxies, bus_ports };
        cluster.join_nodes();
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

    /// `redis+cluster://127.0.0.1:p1,127.0.0.1:p2,127.0.0.1:p3`, with the ports of the proxies if there are any.
    pub fn url(&self) -> String {
        let addrs: Vec<String> = (0..NODE_COUNT).map(|node| self.client_addr(node).to_string()).collect();
        format!("redis+cluster://{}", addrs.join(","))
    }

    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The proxies in the order of the nodes; empty without [`ClusterBuilder::behind_proxies`].
    pub fn proxies(&self) -> &[Proxy] {
        &self.proxies
    }

    /// The address at which clients reach this node: its proxy's, if it has one.
    pub fn client_addr(&self, node: usize) -> SocketAddr {
        self.proxies.get(node).map_or_else(|| self.nodes[node].addr(), Proxy::addr)
    }

    /// The slot of a key. If the first braces contain text, only that text is hashed.
    pub fn slot_of(key: impl AsRef<[u8]>) -> u16 {
        let key = key.as_ref();
        let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
            let inside = &key[open + 1..];
            let close = inside.iter().position(|byte| *byte == b'}')?;
            (close > 0).then(|| &inside[..close])
        });
        crc16(tag.unwrap_or(key)) % SLOTS
    }

    /// The node that reports itself as the owner of a slot.
    pub async fn node_of(&self, slot: u16) -> usize {
        let owner = wait::value_within(AGREEMENT_TIMEOUT, || async {
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

    /// Moves a slot with its keys to another node, as an operator does while clients are connected.
    pub async fn migrate(&self, slot: u16, to: usize) {
        let mut migration = self.start_migration(slot, to).await;
        while migration.move_keys(100).await > 0 {}
        migration.finish().await;
    }

    /// Begins the migration of a slot to another node. The test moves the keys and finishes the migration.
    pub async fn start_migration(&self, slot: u16, to: usize) -> Migration<'_> {
        Migration::start(self, slot, self.node_of(slot).await, to).await
    }

    /// Waits until every node reports that the Cluster serves all slots, for example after a restart of a node.
    pub async fn wait_ok(&self) {
        for (node, redis) in self.nodes.iter().enumerate() {
            let agreed = wait::holds_within(AGREEMENT_TIMEOUT, async || {
                let info = redis.command(&["CLUSTER", "INFO"]).await;
                field_of(info.text(), "cluster_state") == "ok"
                    && field_of(info.text(), "cluster_known_nodes") == NODE_COUNT.to_string()
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

    fn join_nodes(&self) {
        let both = self.nodes.iter().zip(&self.bus_ports);
        let nodes: Vec<Node> =
            both.map(|(node, bus_port)| Node { port: node.port(), bus: bus_port.number() }).collect();
        form_cluster(&nodes).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// CRC-16/XMODEM, with which Redis computes slots.
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
