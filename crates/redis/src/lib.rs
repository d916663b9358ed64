//! Redis as the engine that the hubs of a fleet share: one server, a master found through Sentinel, or a Cluster.
//!
//! A [`Redis`] runs commands and [`Script`]s, each with a timeout, a metric, and an error that says whether the command
//! may have run. Its bus delivers messages between hubs to [`Listener`]s, and informs them when messages may have been
//! lost. The crates that use this one define the keys.

mod address;
mod bus;
mod cluster;
mod durability;
mod error;
mod inspect;
mod node;
mod pending_index;
mod script;
mod slot;
mod write_check;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bongsu_kernel::findings::Findings;
use bongsu_kernel::random;
use bongsu_kernel::settings::{Kind, Scope, SettingError, Values};
use bongsu_kernel::task::Supervisor;
use redis::{Cmd, Value};
use tokio::sync::mpsc;

pub use address::RedisAddress;
pub use bus::{Channel, Listener, Subscriber};
pub use error::Error;
pub use pending_index::{PendingIndex, PendingMark};
pub use redis;
pub use script::Script;

use cluster::Servers;
use error::Result;

bongsu_kernel::settings! { pub SETTINGS of "redis":
    pub REDIS_URL = "", scope(Scope::Instance), kind(Kind::Url):
        "The address of Redis: redis://[user:password@]host:port[/db], rediss:// with TLS, redis+cluster://host:port,host:port or redis+sentinel://host:port,host:port/master. Empty: the hub runs as one process, without Redis.";
    pub REDIS_KEY_PREFIX = "", scope(Scope::Instance):
        "Prefix of every key and channel, so that independent hubs can share one Redis.";
}

/// Time limit of one command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two checks of the servers.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of times that a repeatable command is sent.
const MAX_ATTEMPTS: u32 = 3;
/// Time between two attempts.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// How to reach Redis.
#[derive(Clone, Debug)]
pub struct Options {
    pub address: RedisAddress,
    pub prefix: String,
}

impl Options {
    /// None when `REDIS_URL` is empty.
    pub fn from_settings(values: &Values) -> Result<Option<Self>, SettingError> {
        let Some(url) = values.get(&REDIS_URL) else { return Ok(None) };
        // The error contains no part of the value, because the value may contain a password.
        let address = RedisAddress::parse(url)
            .map_err(|why| SettingError::invalid_value(&REDIS_URL, "(hidden)", why))?;
        let prefix = values.text(&REDIS_KEY_PREFIX).to_owned();
        if prefix.contains(['{', '}'])
            || prefix.len() > 64
            || !prefix.bytes().all(|byte| byte.is_ascii_graphic())
        {
            let allowed = "at most 64 visible ASCII characters without braces";
            return Err(values.not_allowed(&REDIS_KEY_PREFIX, allowed));
        }
        Ok(Some(Self { address, prefix }))
    }
}

/// Whether a command may be sent again when it is unknown whether it ran.
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
    is_connected: AtomicBool,
    findings: Findings,
    /// Why servers refuse writes.
    refusals: Findings,
    /// See [`Redis::promotions`].
    promotions: AtomicU64,
    /// The commands to the bus.
    commands: bus::Commands,
}

impl Redis {
    /// Starts without waiting for Redis: the hub works once Redis can be reached. [`Redis::is_connected`] is
    /// false until the first [`Redis::check_servers`].
    pub fn start(options: Options, supervisor: &Supervisor) -> Self {
        let (commands, queue) = mpsc::unbounded_channel();
        let this = Self(Arc::new(Inner {
            servers: Servers::new(options.address),
            prefix: options.prefix,
            instance: format!("{:016x}", random::between(0, u64::MAX - 1)),
            is_connected: AtomicBool::new(false),
            findings: Findings::default(),
            refusals: Findings::default(),
            promotions: AtomicU64::new(0),
            commands,
        }));
        bus::start(this.clone(), queue, supervisor);
        let check = |redis: Self| async move { redis.check_servers().await };
        supervisor.every("redis-watch", WATCH_INTERVAL, &this, check);
        this
    }

    /// Subscribes a listener to channels of the bus.
    pub fn subscriber(&self, listener: Arc<dyn Listener>) -> Subscriber {
        Subscriber::new(self.0.commands.clone(), listener)
    }

    /// Checks whether every server answers and accepts writes, and whether its settings are safe.
    pub async fn check_servers(&self) {
        let checked = write_check::check(&self.0.servers, &self.0.prefix).await.map(|refusals| {
            if refusals.is_empty() && self.0.servers.take_demotion() {
                self.0.promotions.fetch_add(1, Ordering::AcqRel);
            }
            self.0.refusals.update(refusals);
        });
        let was_connected = self.0.is_connected.swap(checked.is_ok(), Ordering::AcqRel);
        match (was_connected, checked) {
            (false, Ok(())) => {
                self.0.findings.invalidate();
                tracing::info!("connected to Redis");
            }
            (true, Err(error)) => tracing::error!(%error, "failed to reach Redis; retrying"),
            _ => {}
        }
        if self.is_connected() {
            durability::check(&self.0.findings, &self.0.servers).await;
        }
    }

    pub fn is_connected(&self) -> bool {
        self.0.is_connected.load(Ordering::Acquire)
    }

    /// Why servers that answer refuse writes. Empty when all accept writes, and while Redis cannot be reached.
    pub fn write_refusals(&self) -> Vec<&'static str> {
        if self.is_connected() { self.0.refusals.warnings() } else { Vec::new() }
    }

    /// Grows when all servers accept writes again after a server answered as a replica: connections that were
    /// opened before may lead to a replica.
    pub(crate) fn promotions(&self) -> u64 {
        self.0.promotions.load(Ordering::Acquire)
    }

    /// Warnings for the operator: unsafe persistence, or a policy that evicts keys.
    pub fn warnings(&self) -> Vec<&'static str> {
        self.0.findings.warnings()
    }

    /// A random id that distinguishes this process from others on the same Redis.
    pub fn instance(&self) -> &str {
        &self.0.instance
    }

    /// Returns a key or channel with the prefix.
    pub fn key(&self, name: impl std::fmt::Display) -> String {
        format!("{}{name}", self.0.prefix)
    }

    /// Returns a key or channel in the slot of another key.
    pub fn sibling_key(&self, key: &str, name: &str) -> String {
        format!("{}{{{key}}}:{name}", self.0.prefix)
    }

    /// The inverse of [`Redis::sibling_key`]: returns the other key, without the prefix, if `sibling` was made for it
    /// with `name`.
    pub fn base_of_sibling<'a>(&self, sibling: &'a str, name: &str) -> Option<&'a str> {
        let inner = sibling.strip_prefix(self.0.prefix.as_str())?.strip_prefix('{')?;
        inner.strip_suffix(name)?.strip_suffix("}:")?.strip_prefix(self.0.prefix.as_str())
    }

    /// Runs a script on the server of `keys`, which must all have the same slot.
    pub async fn run(
        &self,
        script: &Script,
        repeat: Repeat,
        keys: &[&str],
        arguments: &[&[u8]],
    ) -> Result<Value> {
        let started = Instant::now();
        let command = script.evalsha(keys, arguments);
        let key = keys.first().copied().unwrap_or_default();
        let mut outcome = self.with_retries(key, &command, repeat).await;
        if matches!(outcome, Err(Error::UnknownScript)) {
            // The script did not run, so sending it with its text is no repetition.
            outcome = self.with_retries(key, &script.eval(keys, arguments), repeat).await;
        }
        script.record(started.elapsed());
        outcome
    }

    /// Sends a command to the server of `key`. `name` is its label in metrics.
    pub async fn query(&self, name: &'static str, key: &str, command: &Cmd, repeat: Repeat) -> Result<Value> {
        let started = Instant::now();
        let outcome = self.with_retries(key, command, repeat).await;
        metrics::histogram!("redis_command_duration_seconds", "command" => name)
            .record(started.elapsed().as_secs_f64());
        outcome
    }

    async fn with_retries(&self, key: &str, command: &Cmd, repeat: Repeat) -> Result<Value> {
        let mut attempt = 1;
        loop {
            match self.0.servers.send(key, command).await {
                Err(error) if repeat == Repeat::Safe && error.is_transient() && attempt < MAX_ATTEMPTS => {
                    attempt += 1;
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
