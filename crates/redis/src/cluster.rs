//! The servers: one, or a Cluster with its map of slots.
//!
//! A command goes to the server that has its key's slot, and follows the Cluster's own directions when that has
//! changed: then nothing was done yet, so this repeats nothing. What became of a command whose connection broke is
//! unknown, and it is not sent again from here.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use redis::{Cmd, ErrorKind, ServerErrorKind, Value};

use crate::COMMAND_TIMEOUT;
use crate::address::{Address, Login};
use crate::error::Error;
use crate::node::{Failure, Node, Source};
use crate::slot;

/// A Cluster that is being changed may send a command on a few times.
const MOST_TURNS: u32 = 10;
/// While it is changing, wait so long before asking again.
const CHANGING: Duration = Duration::from_millis(50);
/// The map is not asked for more often than this, however many commands find it wrong.
const MAP_AGE: Duration = Duration::from_millis(100);

pub(crate) enum Servers {
    One(Node),
    Cluster(Cluster),
}

pub(crate) struct Cluster {
    seeds: Vec<String>,
    login: Login,
    /// By host and port.
    nodes: RwLock<HashMap<String, Arc<Node>>>,
    /// Which server has which slot; empty before the first look.
    map: RwLock<Map>,
    /// When the map was asked for last, and what came of it.
    looking: tokio::sync::Mutex<Option<(Instant, Result<(), Error>)>>,
}

#[derive(Default)]
struct Map {
    servers: Vec<String>,
    /// An index into `servers` for every slot.
    of_slot: Vec<Option<u16>>,
}

impl Map {
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
    pub(crate) fn new(address: Address) -> Self {
        match address {
            Address::Single(url) => Self::One(Node::new(Source::At(url))),
            Address::Sentinel { sentinels, master, login } => {
                Self::One(Node::new(Source::Master { sentinels, name: master, login }))
            }
            Address::Cluster { seeds, login } => Self::Cluster(Cluster {
                seeds,
                login,
                nodes: RwLock::default(),
                map: RwLock::default(),
                looking: tokio::sync::Mutex::new(None),
            }),
        }
    }

    pub(crate) async fn ask(&self, key: &str, command: &Cmd) -> Result<Value, Error> {
        match self {
            Self::One(node) => node.ask(command, false).await.map_err(|failure| failure.told()),
            Self::Cluster(cluster) => cluster.ask(key, command).await,
        }
    }

    /// Asks every server the same.
    pub(crate) async fn ask_all(&self, command: &Cmd) -> Vec<Result<Value, Error>> {
        let told = |failure: Failure| failure.told();
        match self {
            Self::One(node) => vec![node.ask(command, false).await.map_err(told)],
            Self::Cluster(cluster) => match cluster.masters().await {
                Ok(masters) => {
                    let asked = masters.iter().map(async |node| node.ask(command, false).await.map_err(told));
                    join_all(asked).await
                }
                Err(error) => vec![Err(error)],
            },
        }
    }

    /// Sends every server a command about a key that it has; `command` makes it of a tag, which gives the key its slot.
    pub(crate) async fn ask_about_keys(
        &self,
        command: impl Fn(u32) -> (String, Cmd),
    ) -> Vec<Result<Value, Error>> {
        match self {
            Self::One(_) => {
                let (key, command) = command(0);
                vec![self.ask(&key, &command).await]
            }
            Self::Cluster(cluster) => match cluster.slot_of_each().await {
                Ok(slots) => {
                    let asked = slots.into_iter().map(async |slot| {
                        let (key, command) = command(slot::tag_of(slot));
                        cluster.ask(&key, &command).await
                    });
                    join_all(asked).await
                }
                Err(error) => vec![Err(error)],
            },
        }
    }

    /// Whether commands met a server that was no master any more, since this was asked last.
    pub(crate) fn take_demoted(&self) -> bool {
        match self {
            Self::One(node) => node.take_demoted(),
            // There a server that is no master any more says which one is.
            Self::Cluster(_) => false,
        }
    }

    /// The server that has a key, as something to connect to.
    pub(crate) async fn url_of(&self, key: &str) -> Result<String, Error> {
        match self {
            Self::One(node) => node.url().await,
            Self::Cluster(cluster) => {
                let server = cluster.server_of(slot::of(key)).await?;
                Ok(cluster.login.url(&server))
            }
        }
    }

    /// The map of slots may be wrong.
    pub(crate) async fn look_again(&self) {
        if let Self::Cluster(cluster) = self {
            let _ = cluster.look().await;
        }
    }
}

impl Cluster {
    async fn ask(&self, key: &str, command: &Cmd) -> Result<Value, Error> {
        let (slot, started) = (slot::of(key), Instant::now());
        let (mut server, mut asking) = (self.server_of(slot).await?, false);
        let mut turns = 0;
        loop {
            let failure = match self.node(&server).ask(command, asking).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            turns += 1;
            let directed = match &failure {
                Failure::Sent(error) => direction(error),
                Failure::NotSent(_) => None,
            };
            match directed {
                Some(direction) if turns < MOST_TURNS && started.elapsed() < COMMAND_TIMEOUT => {
                    match direction {
                        Direction::Moved(to) => {
                            self.moved(slot, &to);
                            (server, asking) = (to, false);
                        }
                        Direction::Ask(to) => (server, asking) = (to, true),
                        Direction::Wait => {
                            tokio::time::sleep(CHANGING).await;
                            self.look().await?;
                            (server, asking) = (self.server_of(slot).await?, false);
                        }
                    }
                }
                _ => {
                    // For those who come next. Whoever asked has waited long enough if the server was silent.
                    let left = COMMAND_TIMEOUT.saturating_sub(started.elapsed());
                    if failure.told().may_pass() && !left.is_zero() {
                        let _ = tokio::time::timeout(left, self.look()).await;
                    }
                    return Err(failure.told());
                }
            }
        }
    }

    async fn server_of(&self, slot: u16) -> Result<String, Error> {
        if let Some(server) = self.known(slot) {
            return Ok(server);
        }
        self.look().await?;
        self.known(slot).ok_or_else(|| Error::Unreachable(format!("no server has the slot {slot}")))
    }

    fn known(&self, slot: u16) -> Option<String> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let index = (*map.of_slot.get(usize::from(slot))?)?;
        map.servers.get(usize::from(index)).cloned()
    }

    fn moved(&self, slot: u16, to: &str) {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let index = map.index_of(to);
        if let Some(place) = map.of_slot.get_mut(usize::from(slot)) {
            *place = index;
        }
    }

    fn node(&self, server: &str) -> Arc<Node> {
        if let Some(node) = self.nodes.read().unwrap_or_else(PoisonError::into_inner).get(server) {
            return node.clone();
        }
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        let node = || Arc::new(Node::new(Source::At(self.login.url(server))));
        nodes.entry(server.to_owned()).or_insert_with(node).clone()
    }

    async fn masters(&self) -> Result<Vec<Arc<Node>>, Error> {
        self.server_of(0).await?;
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        Ok(map.servers.iter().map(|server| self.node(server)).collect())
    }

    /// A slot of each server that has any.
    async fn slot_of_each(&self) -> Result<Vec<u16>, Error> {
        self.server_of(0).await?;
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let slots = (0..map.servers.len()).filter_map(|server| {
            let has = |of: &Option<u16>| of.map(usize::from) == Some(server);
            map.of_slot.iter().position(has).and_then(|slot| u16::try_from(slot).ok())
        });
        Ok(slots.collect())
    }

    /// Asks the Cluster for its map: those it had first, then those it began with. Who comes while somebody asks is told
    /// what came of that.
    async fn look(&self) -> Result<(), Error> {
        let mut looked = self.looking.lock().await;
        if let Some((at, outcome)) = &*looked
            && at.elapsed() < MAP_AGE
        {
            return outcome.clone();
        }
        let known = {
            let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
            map.servers.clone()
        };
        let mut found = first_map(known.iter().map(|server| self.node(server)).collect()).await;
        if found.is_err() {
            let seeds = self.seeds.iter().map(|url| Arc::new(Node::new(Source::At(url.clone()))));
            found = first_map(seeds.collect()).await;
        }
        let outcome = found.map(|map| {
            let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
            nodes.retain(|server, _| map.servers.contains(server));
            *self.map.write().unwrap_or_else(PoisonError::into_inner) = map;
        });
        *looked = Some((Instant::now(), outcome.clone()));
        outcome
    }
}

/// Asks all of them at once, because some may be silent, and takes the first map that comes.
async fn first_map(nodes: Vec<Arc<Node>>) -> Result<Map, Error> {
    let mut question = redis::cmd("CLUSTER");
    question.arg("SLOTS");
    let asked = nodes.iter().map(async |node| match node.ask(&question, false).await {
        Ok(answer) => read_map(&answer).ok_or_else(|| Error::Unexpected("no map of slots".to_owned())),
        Err(failure) => Err(failure.told()),
    });
    let mut asked: FuturesUnordered<_> = asked.collect();
    let mut outcome = Err(Error::Unreachable("no server of the Cluster answers".to_owned()));
    while let Some(answer) = asked.next().await {
        outcome = answer;
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Where a Cluster sends somebody who asked the wrong server.
enum Direction {
    Moved(String),
    Ask(String),
    Wait,
}

fn direction(error: &redis::RedisError) -> Option<Direction> {
    let to = || error.redirect_node().map(|(server, _)| server.to_owned());
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::Moved) => to().map(Direction::Moved),
        ErrorKind::Server(ServerErrorKind::Ask) => to().map(Direction::Ask),
        ErrorKind::Server(ServerErrorKind::TryAgain | ServerErrorKind::ClusterDown) => Some(Direction::Wait),
        _ => None,
    }
}

/// `CLUSTER SLOTS`: ranges, each with its master first. Nothing when no slot has a server.
fn read_map(answer: &Value) -> Option<Map> {
    let mut map = Map { servers: Vec::new(), of_slot: vec![None; usize::from(slot::SLOTS)] };
    let Value::Array(ranges) = answer else { return None };
    for range in ranges {
        let Value::Array(range) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = range.as_slice() else {
            return None;
        };
        let [Value::BulkString(host), Value::Int(port), ..] = master.as_slice() else { return None };
        let index = map.index_of(&format!("{}:{port}", String::from_utf8_lossy(host)));
        let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
        map.of_slot.get_mut(first..=last)?.fill(index);
    }
    (!map.servers.is_empty()).then_some(map)
}
