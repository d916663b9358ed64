//! Redis as the engine that a fleet of hubs shares: one server, a master found through Sentinel, or a Cluster.
//!
//! A [`Redis`] is asked by commands and [`Script`]s, each with a timeout, a metric and an error that says whether
//! anything may have happened; its bus carries messages between hubs to [`Listener`]s and tells them when some may have
//! been lost. What the keys mean is known to the crates above.

mod address;
mod bus;
mod cluster;
mod durability;
mod error;
mod index;
mod inspect;
mod node;
mod script;
mod slot;
mod writes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bongsu_kernel::findings::Findings;
use bongsu_kernel::random;
use bongsu_kernel::settings::{Bad, Kind, Scope, Values};
use bongsu_kernel::task::Supervisor;
use redis::{Cmd, Value};
use tokio::sync::mpsc;

pub use address::Address;
pub use bus::{Channel, Listener, Subscriber};
pub use error::Error;
pub use index::{Index, Marked};
pub use redis;
pub use script::Script;

use cluster::Servers;

bongsu_kernel::settings! { pub SETTINGS of "redis":
    pub REDIS_URL = "", scope(Scope::Instance), kind(Kind::Url):
        "Where Redis is: redis://[user:password@]host:port[/db], rediss:// with TLS, redis+cluster://host:port,host:port or redis+sentinel://host:port,host:port/master. Empty: everything is embedded.";
    pub REDIS_KEY_PREFIX = "", scope(Scope::Instance):
        "Stands before every key and channel, for several hubs that are strangers to each other on one Redis.";
}

/// A command that takes longer has failed.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two checks of the servers.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// A command that may be repeated is sent so often, with this delay between.
const MAX_ATTEMPTS: u32 = 3;
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// What the settings say of Redis.
#[derive(Clone, Debug)]
pub struct Options {
    pub address: Address,
    pub prefix: String,
}

impl Options {
    /// Nothing when everything is embedded.
    pub fn from_settings(values: &Values) -> Result<Option<Self>, Bad> {
        let url = values.text(&REDIS_URL);
        if url.is_empty() {
            return Ok(None);
        }
        // The value holds a password: what is wrong with it is said without it.
        let address = Address::parse(url)
            .map_err(|why| Bad::value(&REDIS_URL, "(hidden)", &format!("an address; {why}")))?;
        let prefix = values.text(&REDIS_KEY_PREFIX).to_owned();
        if prefix.contains(['{', '}'])
            || prefix.len() > 64
            || !prefix.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(Bad::value(
                &REDIS_KEY_PREFIX,
                &prefix,
                "at most 64 visible ASCII characters without braces",
            ));
        }
        Ok(Some(Self { address, prefix }))
    }
}

/// Whether a command may be sent again when nobody knows what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    Safe,
    Never,
}

/// A handle on Redis. Cheap to clone.
#[derive(Clone)]
pub struct Redis(Arc<Inner>);

struct Inner {
    servers: Servers,
    prefix: String,
    instance: String,
    connected: AtomicBool,
    findings: Findings,
    /// Why servers take no writes.
    refusals: Findings,
    /// How often another server has become the master.
    promotions: AtomicU64,
    /// To the bus.
    commands: bus::Commands,
}

impl Redis {
    /// Does not wait for Redis: a hub starts without it and works when it is there. Whether it is, is known after the
    /// first [`Redis::look`].
    pub fn start(options: Options, supervisor: &Supervisor) -> Self {
        let (commands, queue) = mpsc::unbounded_channel();
        let this = Self(Arc::new(Inner {
            servers: Servers::new(options.address),
            prefix: options.prefix,
            instance: format!("{:016x}", random::between(0, u64::MAX - 1)),
            connected: AtomicBool::new(false),
            findings: Findings::default(),
            refusals: Findings::default(),
            promotions: AtomicU64::new(0),
            commands,
        }));
        bus::start(this.clone(), queue, supervisor);
        supervisor.every("redis-watch", WATCH_INTERVAL, &this, |redis| async move { redis.look().await });
        this
    }

    /// Subscribes a listener to channels of the bus.
    pub fn subscriber(&self, listener: Arc<dyn Listener>) -> Subscriber {
        Subscriber::new(self.0.commands.clone(), listener)
    }

    /// Asks every server whether it is there, whether it takes writes, and how safe what it keeps is.
    pub async fn look(&self) {
        let reached = writes::check(&self.0.servers, &self.0.prefix).await.map(|refusals| {
            if refusals.is_empty() && self.0.servers.take_demoted() {
                self.0.promotions.fetch_add(1, Ordering::AcqRel);
            }
            self.0.refusals.found(refusals);
        });
        let was = self.0.connected.swap(reached.is_ok(), Ordering::AcqRel);
        match (was, reached) {
            (false, Ok(())) => {
                self.0.findings.forget();
                tracing::info!("Redis is reached");
            }
            (true, Err(error)) => tracing::error!(%error, "Redis is lost"),
            _ => {}
        }
        if self.is_connected() {
            durability::look(&self.0.findings, &self.0.servers).await;
        }
    }

    pub fn is_connected(&self) -> bool {
        self.0.connected.load(Ordering::Acquire)
    }

    /// Why servers that answer take no writes; empty while all take them, and when that is not known.
    pub fn refusals(&self) -> Vec<&'static str> {
        if self.is_connected() { self.0.refusals.warnings() } else { Vec::new() }
    }

    /// Grows when another server became the master, or the same one again: connections that were made before may lead
    /// to a replica.
    pub(crate) fn promotions(&self) -> u64 {
        self.0.promotions.load(Ordering::Acquire)
    }

    /// What an operator should know: unsafe persistence, an eviction policy that forgets.
    pub fn warnings(&self) -> Vec<&'static str> {
        self.0.findings.warnings()
    }

    /// Tells this process from others on the same Redis.
    pub fn instance(&self) -> &str {
        &self.0.instance
    }

    /// A key or channel of ours.
    pub fn key(&self, name: impl std::fmt::Display) -> String {
        format!("{}{name}", self.0.prefix)
    }

    /// A key or channel beside one of ours, in the same slot.
    pub fn beside(&self, key: &str, name: &str) -> String {
        format!("{}{{{key}}}:{name}", self.0.prefix)
    }

    /// Which key of ours a name is beside, if it is this one there.
    pub fn beside_what<'a>(&self, name: &'a str, beside: &str) -> Option<&'a str> {
        let inside = name.strip_prefix(self.0.prefix.as_str())?.strip_prefix('{')?;
        inside.strip_suffix(beside)?.strip_suffix("}:")?.strip_prefix(self.0.prefix.as_str())
    }

    /// Runs a script on the server that has `keys`, which all have the same slot.
    pub async fn run(
        &self,
        script: &Script,
        repeat: Repeat,
        keys: &[&str],
        arguments: &[&[u8]],
    ) -> Result<Value, Error> {
        let started = Instant::now();
        let call = script.call(keys, arguments);
        let key = keys.first().copied().unwrap_or_default();
        let mut outcome = self.ask_again(key, &call, repeat).await;
        if outcome.as_ref().is_err_and(Error::is_unknown_script) {
            // Nothing was done: it did not know what to do.
            outcome = self.ask_again(key, &script.call_in_full(keys, arguments), repeat).await;
        }
        script.record(started.elapsed());
        outcome
    }

    /// Sends a command to the server that has `key`.
    pub async fn ask(
        &self,
        name: &'static str,
        key: &str,
        command: &Cmd,
        repeat: Repeat,
    ) -> Result<Value, Error> {
        let started = Instant::now();
        let outcome = self.ask_again(key, command, repeat).await;
        metrics::histogram!("redis_command_duration_seconds", "command" => name)
            .record(started.elapsed().as_secs_f64());
        outcome
    }

    async fn ask_again(&self, key: &str, command: &Cmd, repeat: Repeat) -> Result<Value, Error> {
        let mut tries = 1;
        loop {
            match self.0.servers.ask(key, command).await {
                Err(error) if repeat == Repeat::Safe && error.may_pass() && tries < MAX_ATTEMPTS => {
                    tries += 1;
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                outcome => return outcome,
            }
        }
    }

    pub(crate) fn servers(&self) -> &Servers {
        &self.0.servers
    }
}
