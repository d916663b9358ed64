//! Tests of a Cluster of three nodes: slots, redirections, a migration during writes, a killed node.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::redis::Client;
use crate::tier::needs_engine;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const KEY_COUNT: usize = 40;

#[test]
fn slots_match_the_specification() {
    assert_eq!(crc16(b"123456789"), 0x31C3);
    assert_eq!(Cluster::slot_of("foo"), 12_182);
    assert_eq!(Cluster::slot_of("{user1000}.following"), Cluster::slot_of("user1000"));
    assert_eq!(Cluster::slot_of("foo{bar}{zap}"), Cluster::slot_of("bar"));
}

/// The progress of the writer, which the test observes, and the signal to stop it.
#[derive(Clone, Default)]
struct WriterState {
    rounds: usize,
    /// Received ASK redirections.
    ask_redirects: usize,
    /// Received MOVED redirections.
    moved_redirects: usize,
    /// Targets of all redirections.
    redirect_targets: BTreeSet<SocketAddr>,
    stop: bool,
}

/// Increments all keys of one slot repeatedly and follows redirections. Returns the acknowledged increments of each
/// key.
async fn write(mut slot_owner: SocketAddr, state: Arc<Mutex<WriterState>>) -> [i64; KEY_COUNT] {
    let mut connections: BTreeMap<SocketAddr, Client> = BTreeMap::new();
    let mut acknowledged = [0; KEY_COUNT];
    while !state.lock().unwrap().stop {
        for (key, count) in acknowledged.iter_mut().enumerate() {
            let (mut at, mut is_asking) = (slot_owner, false);
            loop {
                let connection = match connections.entry(at) {
                    Entry::Occupied(entry) => entry.into_mut(),
                    Entry::Vacant(entry) => entry.insert(Client::connect(at).await.unwrap()),
                };
                if is_asking {
                    connection.call(&["ASKING"]).await.unwrap().expect_ok();
                }
                let reply = connection.call(&["INCR", &name(key)]).await.unwrap();
                let Some(error) = reply.error() else { break };
                let words: Vec<&str> = error.split(' ').collect();
                at = words[2].parse().unwrap();
                is_asking = words[0] == "ASK";
                let mut state = state.lock().unwrap();
                state.redirect_targets.insert(at);
                if is_asking {
                    state.ask_redirects += 1;
                } else {
                    assert_eq!(words[0], "MOVED");
                    state.moved_redirects += 1;
                    slot_owner = at;
                }
            }
            *count += 1;
        }
        state.lock().unwrap().rounds += 1;
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
    let state = Arc::new(Mutex::new(WriterState::default()));
    let first = cluster.node_of(slot).await;
    // The writer starts at a node that does not own the slot and is redirected.
    let writing = tokio::spawn(write(cluster.client_addr((first + 1) % NODE_COUNT), Arc::clone(&state)));
    let wait_for_state = async |condition: &dyn Fn(&WriterState) -> bool| {
        wait::until(WAIT_TIMEOUT, async || condition(&state.lock().unwrap())).await;
    };
    wait_for_state(&|state| state.rounds > 3).await;
    for step in 1..=NODE_COUNT {
        let to = (first + step) % NODE_COUNT;
        let before = state.lock().unwrap().clone();
        let mut migration = cluster.start_migration(slot, to).await;
        assert!(migration.move_keys(KEY_COUNT / 2).await > 0);
        // Half of the keys are on each of the two nodes, and the writer reaches all of them.
        wait_for_state(&|state| {
            state.ask_redirects > before.ask_redirects && state.rounds > before.rounds + 2
        })
        .await;
        while migration.move_keys(7).await > 0 {}
        migration.finish().await;
        assert_eq!(cluster.node_of(slot).await, to);
        wait_for_state(&|state| state.moved_redirects > before.moved_redirects).await;
    }
    cluster.migrate(slot, (first + 1) % NODE_COUNT).await;
    state.lock().unwrap().stop = true;
    let acknowledged = writing.await.unwrap();
    let owner = &cluster.nodes()[cluster.node_of(slot).await];
    for (key, count) in acknowledged.iter().enumerate() {
        assert_eq!(owner.command(&["GET", &name(key)]).await.text(), count.to_string());
    }
    let proxies: BTreeSet<SocketAddr> = cluster.proxies().iter().map(Proxy::addr).collect();
    assert!(
        state.lock().unwrap().redirect_targets.is_subset(&proxies),
        "a redirection does not lead to a proxy"
    );
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
    redis.command(&["SET", "foo", "kept"]).await.expect_ok();
    redis.kill9().await;
    redis.restart().await;
    cluster.wait_ok().await;
    assert_eq!(redis.command(&["GET", "foo"]).await.text(), "kept");
    let other = &cluster.nodes()[(node + 1) % NODE_COUNT];
    let moved = format!("MOVED {} {}", Cluster::slot_of("foo"), redis.addr());
    assert_eq!(other.command(&["GET", "foo"]).await.error(), Some(moved.as_str()));
}
