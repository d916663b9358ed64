//! The migration of a slot from one node of a Cluster to another, in the steps of an operator.
//!
//! During the migration the source node redirects clients for keys that it does not have any more (`ASK`). After it all
//! other nodes redirect clients to the target node (`MOVED`).

use super::Cluster;

/// A migration that has begun.
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: usize,
    to: usize,
}

impl<'a> Migration<'a> {
    pub(super) async fn start(cluster: &'a Cluster, slot: u16, from: usize, to: usize) -> Self {
        assert_ne!(from, to, "slot {slot} is already on node {to}");
        let migration = Self { cluster, slot: slot.to_string(), from, to };
        // First on the target node, so that it does not refuse clients that the source node redirects.
        migration.set_slot(to, "IMPORTING", cluster.id(from)).await;
        migration.set_slot(from, "MIGRATING", cluster.id(to)).await;
        migration
    }

    /// Moves up to `max_keys` keys, and returns their number.
    pub async fn move_keys(&mut self, max_keys: usize) -> usize {
        let (from, to) = (&self.cluster.nodes()[self.from], &self.cluster.nodes()[self.to]);
        let count = max_keys.to_string();
        let keys = from.command(&["CLUSTER", "GETKEYSINSLOT", &self.slot, &count]).await.expect_ok();
        let keys: Vec<&str> = keys.items().iter().map(super::Reply::text).collect();
        if !keys.is_empty() {
            let port = to.port().to_string();
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "60000"];
            words.extend(to.password.iter().flat_map(|password| ["AUTH", password.as_str()]));
            words.push("KEYS");
            words.extend(&keys);
            // The reply NOKEY is not an error: the keys may have been deleted or have expired.
            from.command(&words).await.expect_ok();
        }
        keys.len()
    }

    /// Assigns the slot to the target node. All keys must be moved, because the source node refuses otherwise.
    pub async fn finish(self) {
        let id = self.cluster.id(self.to);
        // First on the target node, which must own the slot before the source node gives it up.
        let others = (0..self.cluster.nodes().len()).filter(|node| *node != self.to);
        for node in std::iter::once(self.to).chain(others) {
            self.set_slot(node, "NODE", id).await;
        }
    }

    async fn set_slot(&self, node: usize, state: &str, id: &str) {
        let words = ["CLUSTER", "SETSLOT", &self.slot, state, id];
        self.cluster.nodes()[node].command(&words).await.expect_ok();
    }
}
