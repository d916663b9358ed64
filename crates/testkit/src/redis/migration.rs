//! A slot on its way from one node of a cluster to another, in the steps that an operator takes.
//!
//! While it is under way the old node sends clients over for keys that it does not have (`ASK`); afterwards both
//! send them to the new one for good (`MOVED`).

use super::Cluster;

/// A slot that is being moved.
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: usize,
    to: usize,
}

impl<'a> Migration<'a> {
    pub(super) async fn start(cluster: &'a Cluster, slot: u16, from: usize, to: usize) -> Self {
        assert_ne!(from, to, "slot {slot} is there already");
        let migration = Self { cluster, slot: slot.to_string(), from, to };
        // The new one first: it must not turn away those whom the old one sends.
        migration.set(to, "IMPORTING", cluster.id(from)).await;
        migration.set(from, "MIGRATING", cluster.id(to)).await;
        migration
    }

    /// Moves up to so many keys; how many it were.
    pub async fn move_keys(&mut self, at_most: usize) -> usize {
        let (from, to) = (&self.cluster.nodes()[self.from], &self.cluster.nodes()[self.to]);
        let count = at_most.to_string();
        let keys = from.command(&["CLUSTER", "GETKEYSINSLOT", &self.slot, &count]).await.accepted();
        let keys: Vec<&str> = keys.items().iter().map(super::Reply::text).collect();
        if !keys.is_empty() {
            let port = to.port().to_string();
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "60000"];
            words.extend(to.password.iter().flat_map(|password| ["AUTH", password.as_str()]));
            words.push("KEYS");
            words.extend(&keys);
            // NOKEY is an answer as well: they may have gone meanwhile.
            from.command(&words).await.accepted();
        }
        keys.len()
    }

    /// Gives the slot to the new node, once all keys are moved: the old one refuses while it has any.
    pub async fn finish(self) {
        let id = self.cluster.id(self.to);
        // The new one first, for it has to claim the slot before the old one lets go of it.
        let others = (0..self.cluster.nodes().len()).filter(|node| *node != self.to);
        for node in std::iter::once(self.to).chain(others) {
            self.set(node, "NODE", id).await;
        }
    }

    async fn set(&self, node: usize, what: &str, id: &str) {
        let words = ["CLUSTER", "SETSLOT", &self.slot, what, id];
        self.cluster.nodes()[node].command(&words).await.accepted();
    }
}
