//! Keeps every channel that has a listener subscribed on its server, also after servers and connections failed, and
//! routes messages to the listeners of their channel.
//!
//! When a connection is lost, its subscribed channels become pending and stale; once such a channel is
//! subscribed again, its listeners are informed. Every operation that waits is a separate future, so that one
//! slow server does not delay the others.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bongsu_kernel::shrink;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::{mpsc, oneshot};

use super::connection::{Connection, ConnectionId, QUEUE_SIZE, Received};
use super::{Channel, Command, Listener, RECONNECT_BACKOFF};
use crate::Redis;
use crate::error::Error;

/// Time between two checks of connections, requests and retries.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// A subscription that is not confirmed by then is requested again, perhaps from another server.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of messages that are routed before the loop handles other events.
const BATCH_SIZE: usize = 1_024;

type Task = Pin<Box<dyn Future<Output = TaskResult> + Send>>;

/// The result of a task.
enum TaskResult {
    Located(Channel, Result<String, Error>),
    Opened(String, Result<Connection, String>),
    /// Whether the connection still works after a command.
    Sent(ConnectionId, bool),
    MapRefreshed,
}

struct Subscription {
    state: State,
    /// Messages may have been lost: the listeners are informed once the channel is subscribed again.
    is_stale: bool,
    listeners: Vec<Arc<dyn Listener>>,
    /// Callers that wait for the confirmation.
    waiting: Vec<oneshot::Sender<()>>,
}

impl Subscription {
    fn new() -> Self {
        Self { state: State::Pending, is_stale: false, listeners: Vec::with_capacity(1), waiting: Vec::new() }
    }

    fn lose(&mut self, channel: &Channel) {
        self.state = State::Pending;
        self.is_stale = true;
        self.listeners.iter().for_each(|listener| listener.lost(channel));
    }

    fn mark_stale(&self, channel: &Channel) {
        self.listeners.iter().for_each(|listener| listener.mark_stale(channel));
    }
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Pending,
    /// The server that has the channel is being looked up.
    Locating,
    /// Requested on this connection at this time.
    Requested(ConnectionId, Instant),
    Subscribed(ConnectionId),
}

enum Link {
    Opening,
    Open(Connection),
}

/// How many attempts to reach a server failed in a row, and when the next one is due: None while one is under
/// way.
#[derive(Default)]
struct Retry {
    failures: u64,
    due_at: Option<Instant>,
}

/// The key in `retries` for the lookup of a channel's server, which failed because no server answered.
const UNKNOWN_SERVER: &str = "";

impl Link {
    fn id(&self) -> Option<ConnectionId> {
        match self {
            Self::Open(connection) => Some(connection.id),
            Self::Opening => None,
        }
    }
}

pub(super) struct SubscriptionManager {
    redis: Redis,
    channels: HashMap<Channel, Subscription, foldhash::fast::RandomState>,
    /// By the server's address.
    links: HashMap<String, Link>,
    last_connection: ConnectionId,
    tasks: FuturesUnordered<Task>,
    received: (mpsc::Sender<Received>, mpsc::Receiver<Received>),
    /// Servers that could not be reached. Each has its own delay, so that a failed server does not delay the others.
    retries: HashMap<String, Retry>,
    /// Whether commands reached Redis at the last check.
    was_connected: bool,
    /// The value of [`Redis::promotions`] at the last check.
    promotions: u64,
}

impl SubscriptionManager {
    pub(super) fn new(redis: Redis) -> Self {
        let promotions = redis.promotions();
        Self {
            redis,
            channels: HashMap::default(),
            links: HashMap::new(),
            last_connection: 0,
            tasks: FuturesUnordered::new(),
            received: mpsc::channel(QUEUE_SIZE),
            retries: HashMap::new(),
            was_connected: false,
            promotions,
        }
    }

    pub(super) async fn run(mut self, commands: &mut mpsc::UnboundedReceiver<Command>) {
        let mut check = tokio::time::interval(CHECK_INTERVAL);
        check.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut received = Vec::with_capacity(BATCH_SIZE);
        loop {
            tokio::select! {
                _ = self.received.1.recv_many(&mut received, BATCH_SIZE) => {
                    for (connection, push) in received.drain(..) {
                        self.receive(connection, push);
                    }
                    self.check_overflow();
                }
                command = commands.recv() => match command {
                    Some(command) => self.execute(command),
                    None => return,
                },
                Some(result) = self.tasks.next() => self.finish(result),
                _ = check.tick() => self.check(),
            }
        }
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Subscribe(channel, listener, done) => {
                let subscription = self.channels.entry(channel.clone()).or_insert_with(Subscription::new);
                if !subscription.listeners.iter().any(|known| Arc::ptr_eq(known, &listener)) {
                    subscription.listeners.push(listener);
                }
                match subscription.state {
                    // An error means that the caller was dropped.
                    State::Subscribed(_) => drop(done.send(())),
                    state => {
                        subscription.waiting.push(done);
                        if state == State::Pending && !self.is_delayed(UNKNOWN_SERVER) {
                            self.locate(channel);
                        }
                    }
                }
            }
            Command::Unsubscribe(channel, listener) => {
                let Some(subscription) = self.channels.get_mut(&channel) else { return };
                subscription.listeners.retain(|known| !Arc::ptr_eq(known, &listener));
                if !subscription.listeners.is_empty() {
                    return;
                }
                let state = subscription.state;
                self.channels.remove(&channel);
                shrink(&mut self.channels);
                if let State::Requested(connection, _) | State::Subscribed(connection) = state {
                    self.send(connection, channel.unsubscribe(), &channel);
                }
            }
        }
    }

    /// Looks up which server has a channel.
    fn locate(&mut self, channel: Channel) {
        if let Some(subscription) = self.channels.get_mut(&channel) {
            subscription.state = State::Locating;
            let redis = self.redis.clone();
            self.tasks.push(Box::pin(async move {
                let url = redis.servers().url_of(channel.name()).await;
                TaskResult::Located(channel, url)
            }));
        }
    }

    fn finish(&mut self, result: TaskResult) {
        match result {
            // The channel was unsubscribed meanwhile, or located twice.
            TaskResult::Located(channel, _) if !self.is_locating(&channel) => {}
            TaskResult::Located(channel, Ok(url)) => {
                if let Some(connection) = self.connection_for(&channel, &url) {
                    return self.request(connection, &channel);
                }
                self.set_state(&channel, State::Pending);
                if !self.links.contains_key(&url) && !self.is_delayed(&url) {
                    self.open(url);
                }
            }
            TaskResult::Located(channel, Err(_)) => {
                self.set_state(&channel, State::Pending);
                self.retry_later(UNKNOWN_SERVER);
            }
            TaskResult::Opened(url, Ok(connection)) => {
                tracing::debug!(connection = connection.id, "opened a bus connection to Redis");
                self.retries.remove(UNKNOWN_SERVER);
                self.links.insert(url, Link::Open(connection));
                self.locate_pending();
            }
            TaskResult::Opened(url, Err(error)) => {
                tracing::warn!(error, "failed to open a bus connection to Redis; retrying");
                self.links.remove(&url);
                self.retry_later(&url);
            }
            TaskResult::Sent(connection, false) => self.lose(connection),
            TaskResult::Sent(_, true) => {}
            TaskResult::MapRefreshed => self.locate_pending(),
        }
    }

    fn open(&mut self, url: String) {
        self.last_connection += 1;
        let (id, queue) = (self.last_connection, self.received.0.clone());
        self.links.insert(url.clone(), Link::Opening);
        self.tasks.push(Box::pin(async move {
            let connection = Connection::open(id, url.clone(), queue).await;
            TaskResult::Opened(url, connection)
        }));
    }

    fn request(&mut self, connection: ConnectionId, channel: &Channel) {
        self.set_state(channel, State::Requested(connection, Instant::now()));
        self.send(connection, channel.subscribe(), channel);
    }

    fn send(&mut self, connection: ConnectionId, command: &str, channel: &Channel) {
        if let Some(connection) = self.connection(connection) {
            let command = redis::cmd(command).arg(channel.name()).take();
            let (id, sent) = (connection.id, connection.send(command));
            self.tasks.push(Box::pin(async move { TaskResult::Sent(id, still_works(&sent.await)) }));
        }
    }

    fn receive(&mut self, connection: ConnectionId, push: PushInfo) {
        let PushInfo { kind, data } = push;
        if kind == PushKind::Disconnection {
            return self.lose(connection);
        }
        let mut data = data.into_iter();
        let Some(Value::BulkString(name)) = data.next() else { return };
        let Ok(name) = String::from_utf8(name) else { return };
        let name = name.into();
        match kind {
            PushKind::SMessage => self.route(&Channel::OfSlot(name), data.next()),
            PushKind::Message => self.route(&Channel::Everywhere(name), data.next()),
            PushKind::SSubscribe => self.on_subscribed(connection, &Channel::OfSlot(name)),
            PushKind::Subscribe => self.on_subscribed(connection, &Channel::Everywhere(name)),
            PushKind::SUnsubscribe => self.on_unsubscribed(connection, &Channel::OfSlot(name)),
            PushKind::Unsubscribe => self.on_unsubscribed(connection, &Channel::Everywhere(name)),
            _ => {}
        }
    }

    fn route(&self, channel: &Channel, payload: Option<Value>) {
        if let (Some(subscription), Some(Value::BulkString(payload))) = (self.channels.get(channel), payload)
        {
            subscription.listeners.iter().for_each(|listener| listener.message(channel, &payload));
        }
    }

    /// Handles the server's confirmation of a subscription.
    fn on_subscribed(&mut self, connection: ConnectionId, channel: &Channel) {
        let Some(subscription) = self.channels.get_mut(channel) else { return };
        if !matches!(subscription.state, State::Requested(on, _) if on == connection) {
            return;
        }
        subscription.state = State::Subscribed(connection);
        for waiting in subscription.waiting.drain(..) {
            // A caller that gave up waiting does not know that it missed the messages before this confirmation.
            subscription.is_stale |= waiting.send(()).is_err();
        }
        if std::mem::take(&mut subscription.is_stale) {
            subscription.mark_stale(channel);
        }
        // The retries end only after a confirmed subscription, because a server that accepts connections and drops
        // them counts as not reached.
        if !self.retries.is_empty()
            && let Some(url) = self.url_of(connection)
        {
            self.retries.remove(&url);
        }
    }

    /// Handles the end of a subscription. If no listener has unsubscribed, the channel's slot has moved.
    fn on_unsubscribed(&mut self, connection: ConnectionId, channel: &Channel) {
        let Some(subscription) = self.channels.get_mut(channel) else { return };
        if subscription.state == State::Subscribed(connection) {
            subscription.lose(channel);
            self.refresh_slot_map();
        }
    }

    /// Handles the loss of a connection, and of all its subscriptions.
    fn lose(&mut self, connection: ConnectionId) {
        let Some(url) = self.url_of(connection) else { return };
        self.links.remove(&url);
        tracing::warn!(connection, "a bus connection ended; subscribing its channels again");
        metrics::counter!("pubsub_reconnect_total").increment(1);
        for (channel, subscription) in &mut self.channels {
            match subscription.state {
                State::Subscribed(on) if on == connection => subscription.lose(channel),
                // The subscription was not confirmed, so no listener relies on it yet.
                State::Requested(on, _) if on == connection => subscription.state = State::Pending,
                _ => {}
            }
        }
        self.retry_later(&url);
        // Some channels may have moved to another server, which is tried at once.
        self.locate_pending();
    }

    /// Closes all connections after a promotion: they may lead to replicas, which deliver messages late or not at all.
    fn leave_replicas(&mut self) {
        let connections: Vec<ConnectionId> = self.links.values().filter_map(Link::id).collect();
        connections.into_iter().for_each(|connection| self.lose(connection));
    }

    fn check_overflow(&self) {
        for link in self.links.values() {
            if let Link::Open(connection) = link
                && connection.take_overflow()
            {
                tracing::warn!(
                    connection = connection.id,
                    "the queue of a bus connection was full and lost messages; marking its channels stale"
                );
                for (channel, subscription) in &self.channels {
                    if subscription.state == State::Subscribed(connection.id) {
                        subscription.mark_stale(channel);
                    }
                }
            }
        }
    }

    fn check(&mut self) {
        let now = Instant::now();
        for link in self.links.values_mut() {
            if let Link::Open(connection) = link
                && let Some(ping) = connection.ping()
            {
                let id = connection.id;
                self.tasks.push(Box::pin(async move { TaskResult::Sent(id, still_works(&ping.await)) }));
            }
        }
        let mut has_unconfirmed = false;
        for subscription in self.channels.values_mut() {
            if matches!(subscription.state, State::Requested(_, since) if now - since > CONFIRM_TIMEOUT) {
                subscription.state = State::Pending;
                has_unconfirmed = true;
            }
        }
        if has_unconfirmed {
            self.refresh_slot_map();
        }
        let promotions = self.redis.promotions();
        if std::mem::replace(&mut self.promotions, promotions) != promotions {
            self.leave_replicas();
        }
        let was_connected = std::mem::replace(&mut self.was_connected, self.redis.is_connected());
        if self.was_connected && !was_connected {
            // Redis is back: retry now instead of after a delay that grew during the outage.
            self.retries.values_mut().for_each(|retry| *retry = Retry { failures: 0, due_at: Some(now) });
        }
        let mut is_due = false;
        for retry in self.retries.values_mut() {
            is_due |= retry.due_at.take_if(|at| *at <= now).is_some();
        }
        if is_due {
            self.locate_pending();
        }
    }

    /// Reads the slot map again, and then locates every pending channel.
    fn refresh_slot_map(&mut self) {
        let redis = self.redis.clone();
        self.tasks.push(Box::pin(async move {
            redis.servers().refresh_slot_map().await;
            TaskResult::MapRefreshed
        }));
    }

    fn locate_pending(&mut self) {
        let pending = self.channels.iter().filter(|(_, subscription)| subscription.state == State::Pending);
        let pending: Vec<Channel> = pending.map(|(channel, _)| channel.clone()).collect();
        for channel in pending {
            self.locate(channel);
        }
    }

    fn retry_later(&mut self, url: &str) {
        let retry = self.retries.entry(url.to_owned()).or_default();
        if retry.due_at.is_none() {
            retry.due_at = Some(Instant::now() + RECONNECT_BACKOFF.delay(retry.failures));
            retry.failures += 1;
        }
    }

    /// Whether the next attempt to reach a server is not due yet.
    fn is_delayed(&self, url: &str) -> bool {
        self.retries.get(url).is_some_and(|retry| retry.due_at.is_some())
    }

    /// The connection on which to request a channel: the one to its server; for [`Channel::Everywhere`], any connection
    /// if that server has none.
    fn connection_for(&self, channel: &Channel, url: &str) -> Option<ConnectionId> {
        let own = self.links.get(url).and_then(Link::id);
        match channel {
            Channel::OfSlot(_) => own,
            Channel::Everywhere(_) => own.or_else(|| self.links.values().find_map(Link::id)),
        }
    }

    fn is_locating(&self, channel: &Channel) -> bool {
        self.channels.get(channel).is_some_and(|subscription| subscription.state == State::Locating)
    }

    fn set_state(&mut self, channel: &Channel, state: State) {
        if let Some(subscription) = self.channels.get_mut(channel) {
            subscription.state = state;
        }
    }

    fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        self.links.values().find_map(|link| match link {
            Link::Open(connection) if connection.id == id => Some(connection),
            _ => None,
        })
    }

    fn url_of(&self, connection: ConnectionId) -> Option<String> {
        self.links.iter().find(|(_, link)| link.id() == Some(connection)).map(|(url, _)| url.clone())
    }
}

/// Whether a connection still works after a command. A refused command, as for a channel that is on another
/// server by now, does not break the connection.
fn still_works(outcome: &Result<(), redis::RedisError>) -> bool {
    outcome.as_ref().err().is_none_or(|error| !error.is_io_error())
}

#[cfg(test)]
mod tests;
