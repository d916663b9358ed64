//! A cluster of three: slots, redirections, a slot on the move under writes, a node that is gone for a while.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::redis::Client;
use crate::tier::needs_engine;

const LONG: Duration = Duration::from_secs(60);
const KEYS: usize = 40;

#[test]
fn slots_are_what_the_specification_says() {
    assert_eq!(crc16(b"123456789"), 0x31C3);
    assert_eq!(Cluster::slot_of("foo"), 12_182);
    assert_eq!(Cluster::slot_of("{user1000}.following"), Cluster::slot_of("user1000"));
    assert_eq!(Cluster::slot_of("foo{bar}{zap}"), Cluster::slot_of("bar"));
}

/// What a writer met, as the test follows it.
#[derive(Clone, Default)]
struct Met {
    rounds: usize,
    asked: usize,
    moved: usize,
    /// Where it was sent to.
    to: BTreeSet<SocketAddr>,
    stop: bool,
}

/// Counts keys of one slot up, over and over, and goes where the cluster sends it; how often each was acknowledged.
async fn write(mut home: SocketAddr, met: Arc<Mutex<Met>>) -> [i64; KEYS] {
    let mut connections: BTreeMap<SocketAddr, Client> = BTreeMap::new();
    let mut acknowledged = [0; KEYS];
    while !met.lock().unwrap().stop {
        for (key, count) in acknowledged.iter_mut().enumerate() {
            let (mut at, mut asking) = (home, false);
            loop {
                let connection = match connections.entry(at) {
                    Entry::Occupied(there) => there.into_mut(),
                    Entry::Vacant(none) => none.insert(Client::connect(at).await.unwrap()),
                };
                if asking {
                    connection.call(&["ASKING"]).await.unwrap().accepted();
                }
                let reply = connection.call(&["INCR", &name(key)]).await.unwrap();
                let Some(error) = reply.error() else { break };
                let words: Vec<&str> = error.split(' ').collect();
                at = words[2].parse().unwrap();
                asking = words[0] == "ASK";
                let mut met = met.lock().unwrap();
                met.to.insert(at);
                if asking {
                    met.asked += 1;
                } else {
                    assert_eq!(words[0], "MOVED");
                    met.moved += 1;
                    home = at;
                }
            }
            *count += 1;
        }
        met.lock().unwrap().rounds += 1;
    }
    acknowledged
}

fn name(key: usize) -> String {
    format!("{{moving}}:{key}")
}

#[tokio::test]
async fn a_slot_moves_under_writes_and_nothing_is_lost() {
    if !needs_engine("redis") {
        return;
    }
    let cluster = Cluster::builder().behind_proxies().start().await;
    for key in ["a", "{moving}:7", "foo{}{bar}", "foo{{bar}}zap", "{}", "}{", ""] {
        let slot = cluster.nodes()[0].command(&["CLUSTER", "KEYSLOT", key]).await.integer();
        assert_eq!(i64::from(Cluster::slot_of(key)), slot, "{key}");
    }
    let slot = Cluster::slot_of("moving");
    let met = Arc::new(Mutex::new(Met::default()));
    let first = cluster.node_of(slot).await;
    // Any node will do to begin with; it is sent on from there.
    let writing = tokio::spawn(write(cluster.announced((first + 1) % NODES), Arc::clone(&met)));
    let until = async |holds: &dyn Fn(&Met) -> bool| {
        wait::until(LONG, async || holds(&met.lock().unwrap())).await;
    };
    until(&|met| met.rounds > 3).await;
    for step in 1..=NODES {
        let to = (first + step) % NODES;
        let before = met.lock().unwrap().clone();
        let mut migration = cluster.start_migration(slot, to).await;
        assert!(migration.move_keys(KEYS / 2).await > 0);
        // Half of the keys here and half of them there, and the writer finds them all.
        until(&|met| met.asked > before.asked && met.rounds > before.rounds + 2).await;
        while migration.move_keys(7).await > 0 {}
        migration.finish().await;
        assert_eq!(cluster.node_of(slot).await, to);
        until(&|met| met.moved > before.moved).await;
    }
    cluster.migrate(slot, (first + 1) % NODES).await;
    met.lock().unwrap().stop = true;
    let acknowledged = writing.await.unwrap();
    let owner = &cluster.nodes()[cluster.node_of(slot).await];
    for (key, count) in acknowledged.iter().enumerate() {
        assert_eq!(owner.command(&["GET", &name(key)]).await.text(), count.to_string());
    }
    let proxies: BTreeSet<SocketAddr> = cluster.proxies().iter().map(Proxy::addr).collect();
    assert!(met.lock().unwrap().to.is_subset(&proxies), "somebody was sent past the proxies");
    assert_eq!(
        cluster.url(),
        format!("redis+cluster://{},{},{}", addr(&cluster, 0), addr(&cluster, 1), addr(&cluster, 2))
    );
}

fn addr(cluster: &Cluster, node: usize) -> SocketAddr {
    cluster.proxies()[node].addr()
}

#[tokio::test]
async fn a_node_that_was_killed_comes_back_with_its_slots() {
    if !needs_engine("redis") {
        return;
    }
    let cluster = Cluster::builder().setting("appendfsync", "everysec").start().await;
    assert!(cluster.proxies().is_empty());
    assert!(cluster.url().starts_with(&format!("redis+cluster://{},", cluster.nodes()[0].addr())));
    let node = cluster.node_of(Cluster::slot_of("foo")).await;
    let redis = &cluster.nodes()[node];
    assert_eq!(redis.command(&["CONFIG", "GET", "appendfsync"]).await.items()[1].text(), "everysec");
    redis.command(&["SET", "foo", "kept"]).await.accepted();
    redis.kill9().await;
    redis.restart().await;
    cluster.wait_ok().await;
    assert_eq!(redis.command(&["GET", "foo"]).await.text(), "kept");
    let other = &cluster.nodes()[(node + 1) % NODES];
    let moved = format!("MOVED {} {}", Cluster::slot_of("foo"), redis.addr());
    assert_eq!(other.command(&["GET", "foo"]).await.error(), Some(moved.as_str()));
}
