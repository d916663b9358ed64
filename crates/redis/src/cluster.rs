//! The servers: one, or a Cluster with its slot map.
//!
//! A command goes to the server of its key's slot, and follows MOVED and ASK redirects. A redirected command did not
//! run, so sending it again is safe. If the connection breaks, it is unknown whether the command ran, so this module
//! does not send it again.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use redis::{Cmd, ErrorKind, ServerErrorKind, Value};

use crate::COMMAND_TIMEOUT;
use crate::address::{Login, RedisAddress};
use crate::error::{Error, Result};
use crate::node::{Failure, Location, Node};
use crate::slot;

/// Maximum number of times that a command is sent while a Cluster redirects it or asks to retry.
const MAX_ATTEMPTS: u32 = 10;
/// Time before the next attempt while a Cluster has no server for a slot or moves the slot's keys.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// Minimum time between two requests for the slot map, however many commands find it outdated.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) enum Servers {
    One(Node),
    Cluster(Cluster),
}

pub(crate) struct Cluster {
    seeds: Vec<String>,
    login: Login,
    /// By host and port.
    nodes: RwLock<HashMap<String, Arc<Node>>>,
    /// Empty before the first refresh.
    map: RwLock<SlotMap>,
    /// When the map was requested last, and with which result.
    last_refresh: tokio::sync::Mutex<Option<(Instant, Result<()>)>>,
}

/// Which server has which slot.
#[derive(Default)]
struct SlotMap {
    servers: Vec<String>,
    /// An index into `servers` for every slot.
    server_of_slot: Vec<Option<u16>>,
}

impl SlotMap {
    /// The index of a server, which is added if it is new.
    fn index_of(&mut self, server: &str) -> Option<u16> {
        let known = self.servers.iter().position(|known| known == server);
        let index = known.unwrap_or_else(|| {
            self.servers.push(server.to_owned());
            self.servers.len() - 1
        });
        u16::try_from(index).ok()
    }
}

impl Servers {
    pub(crate) fn new(address: RedisAddress) -> Self {
        match address {
            RedisAddress::Single(url) => Self::One(Node::new(Location::Url(url))),
            RedisAddress::Sentinel { sentinels, master, login } => {
                Self::One(Node::new(Location::Sentinel { sentinels, name: master, login }))
            }
            RedisAddress::Cluster { seeds, login } => Self::Cluster(Cluster {
                seeds,
                login,
                nodes: RwLock::default(),
                map: RwLock::default(),
                last_refresh: tokio::sync::Mutex::new(None),
            }),
        }
    }

    /// Sends a command to the server of a key.
    pub(crate) async fn send(&self, key: &str, command: &Cmd) -> Result<Value> {
        match self {
            Self::One(node) => node.send(command, false).await.map_err(|failure| failure.to_error()),
            Self::Cluster(cluster) => cluster.send(key, command).await,
        }
    }

    /// Sends the same command to every server.
    pub(crate) async fn send_to_all(&self, command: &Cmd) -> Vec<Result<Value>> {
        let to_error = |failure: Failure| failure.to_error();
        match self {
            Self::One(node) => vec![node.send(command, false).await.map_err(to_error)],
            Self::Cluster(cluster) => match cluster.masters().await {
                Ok(masters) => {
                    let sent =
                        masters.iter().map(async |node| node.send(command, false).await.map_err(to_error));
                    join_all(sent).await
                }
                Err(error) => vec![Err(error)],
            },
        }
    }

    /// Sends every server a command on a key of one of its slots. `command` makes the key and the command from a hash
    /// tag.
    pub(crate) async fn send_to_each(&self, command: impl Fn(u32) -> (String, Cmd)) -> Vec<Result<Value>> {
        match self {
            Self::One(_) => {
                let (key, command) = command(0);
                vec![self.send(&key, &command).await]
            }
            Self::Cluster(cluster) => match cluster.one_slot_per_server().await {
                Ok(slots) => {
                    let sent = slots.into_iter().map(async |slot| {
                        let (key, command) = command(slot::hash_tag(slot));
                        cluster.send(&key, &command).await
                    });
                    join_all(sent).await
                }
                Err(error) => vec![Err(error)],
            },
        }
    }

    /// Whether a server answered as a replica since the last call. Always false in a Cluster.
    pub(crate) fn take_demotion(&self) -> bool {
        match self {
            Self::One(node) => node.take_demotion(),
            // A demoted server of a Cluster redirects to the new master.
            Self::Cluster(_) => false,
        }
    }

    /// The URL of the server that has a key.
    pub(crate) async fn url_of(&self, key: &str) -> Result<String> {
        match self {
            Self::One(node) => node.url().await,
            Self::Cluster(cluster) => {
                let server = cluster.server_of(slot::of_key(key)).await?;
                Ok(cluster.login.url(&server))
            }
        }
    }

    /// Reads the slot map of a Cluster again.
    pub(crate) async fn refresh_slot_map(&self) {
        if let Self::Cluster(cluster) = self {
            // After an error the old map stays, and the next command that fails refreshes it.
            let _ = cluster.refresh_map().await;
        }
    }
}

impl Cluster {
    async fn send(&self, key: &str, command: &Cmd) -> Result<Value> {
        let (slot, started) = (slot::of_key(key), Instant::now());
        let (mut server, mut asking) = (self.server_of(slot).await?, false);
        let mut attempts = 0;
        loop {
            let failure = match self.node(&server).send(command, asking).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            attempts += 1;
            let redirect = match &failure {
                Failure::Sent(error) => redirect(error),
                Failure::NotSent(_) => None,
            };
            match redirect {
                Some(redirect) if attempts < MAX_ATTEMPTS && started.elapsed() < COMMAND_TIMEOUT => {
                    match redirect {
                        Redirect::Moved(target) => {
                            self.assign_slot(slot, &target);
                            (server, asking) = (target, false);
                        }
                        Redirect::Ask(target) => (server, asking) = (target, true),
                        Redirect::Retry => {
                            tokio::time::sleep(RETRY_DELAY).await;
                            self.refresh_map().await?;
                            (server, asking) = (self.server_of(slot).await?, false);
                        }
                    }
                }
                _ => {
                    // Refreshes the map for later commands, unless this command has used up its time.
                    let left = COMMAND_TIMEOUT.saturating_sub(started.elapsed());
                    if failure.to_error().is_transient() && !left.is_zero() {
                        let _ = tokio::time::timeout(left, self.refresh_map()).await;
                    }
                    return Err(failure.to_error());
                }
            }
        }
    }

    async fn server_of(&self, slot: u16) -> Result<String> {
        if let Some(server) = self.cached_server_of(slot) {
            return Ok(server);
        }
        self.refresh_map().await?;
        self.cached_server_of(slot)
            .ok_or_else(|| Error::Unreachable(format!("no server has the slot {slot}")))
    }

    fn cached_server_of(&self, slot: u16) -> Option<String> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let index = (*map.server_of_slot.get(usize::from(slot))?)?;
        map.servers.get(usize::from(index)).cloned()
    }

    fn assign_slot(&self, slot: u16, server: &str) {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let index = map.index_of(server);
        if let Some(entry) = map.server_of_slot.get_mut(usize::from(slot)) {
            *entry = index;
        }
    }

    fn node(&self, server: &str) -> Arc<Node> {
        if let Some(node) = self.nodes.read().unwrap_or_else(PoisonError::into_inner).get(server) {
            return node.clone();
        }
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        let node = || Arc::new(Node::new(Location::Url(self.login.url(server))));
        nodes.entry(server.to_owned()).or_insert_with(node).clone()
    }

    async fn masters(&self) -> Result<Vec<Arc<Node>>> {
        self.server_of(0).await?;
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        Ok(map.servers.iter().map(|server| self.node(server)).collect())
    }

    /// Returns one slot of each server that has any.
    async fn one_slot_per_server(&self) -> Result<Vec<u16>> {
        self.server_of(0).await?;
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let slots = (0..map.servers.len()).filter_map(|server| {
            let is_owner = |index: &Option<u16>| index.map(usize::from) == Some(server);
            map.server_of_slot.iter().position(is_owner).and_then(|slot| u16::try_from(slot).ok())
        });
        Ok(slots.collect())
    }

    /// Requests the slot map from the known servers, and if all fail, from the seeds. Callers that wait while another
    /// caller refreshes the map get the result of that refresh.
    async fn refresh_map(&self) -> Result<()> {
        let mut last_refresh = self.last_refresh.lock().await;
        if let Some((at, outcome)) = &*last_refresh
            && at.elapsed() < MIN_REFRESH_INTERVAL
        {
            return outcome.clone();
        }
        let known_servers = {
            let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
            map.servers.clone()
        };
        let mut fetched = fetch_map(known_servers.iter().map(|server| self.node(server)).collect()).await;
        if fetched.is_err() {
            let seeds = self.seeds.iter().map(|url| Arc::new(Node::new(Location::Url(url.clone()))));
            fetched = fetch_map(seeds.collect()).await;
        }
        let outcome = fetched.map(|map| {
            let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
            nodes.retain(|server, _| map.servers.contains(server));
            *self.map.write().unwrap_or_else(PoisonError::into_inner) = map;
        });
        *last_refresh = Some((Instant::now(), outcome.clone()));
        outcome
    }
}

/// Requests the slot map from all nodes at once, because some may not answer, and returns the first map that arrives.
async fn fetch_map(nodes: Vec<Arc<Node>>) -> Result<SlotMap> {
    let command = redis::cmd("CLUSTER").arg("SLOTS").take();
    let requests = nodes.iter().map(async |node| match node.send(&command, false).await {
        Ok(answer) => {
            parse_map(&answer).ok_or_else(|| Error::Unexpected("CLUSTER SLOTS without a slot map".to_owned()))
        }
        Err(failure) => Err(failure.to_error()),
    });
    let mut requests: FuturesUnordered<_> = requests.collect();
    let mut outcome = Err(Error::Unreachable("no server of the Cluster answers".to_owned()));
    while let Some(answer) = requests.next().await {
        outcome = answer;
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// The answer of a Cluster to a command that it did not run.
enum Redirect {
    Moved(String),
    Ask(String),
    /// The slot has no server at the moment, or its keys are being moved.
    Retry,
}

fn redirect(error: &redis::RedisError) -> Option<Redirect> {
    let target = || error.redirect_node().map(|(server, _)| server.to_owned());
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::Moved) => target().map(Redirect::Moved),
        ErrorKind::Server(ServerErrorKind::Ask) => target().map(Redirect::Ask),
        ErrorKind::Server(ServerErrorKind::TryAgain | ServerErrorKind::ClusterDown) => Some(Redirect::Retry),
        _ => None,
    }
}

/// Parses the answer of `CLUSTER SLOTS`: ranges of slots, each with its master first. None when no slot has a server.
fn parse_map(answer: &Value) -> Option<SlotMap> {
    let mut map = SlotMap { servers: Vec::new(), server_of_slot: vec![None; usize::from(slot::SLOT_COUNT)] };
    let Value::Array(ranges) = answer else { return None };
    for range in ranges {
        let Value::Array(range) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = range.as_slice() else {
            return None;
        };
        let [Value::BulkString(host), Value::Int(port), ..] = master.as_slice() else { return None };
        let index = map.index_of(&format!("{}:{port}", String::from_utf8_lossy(host)));
        let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
        map.server_of_slot.get_mut(first..=last)?.fill(index);
    }
    (!map.servers.is_empty()).then_some(map)
}
