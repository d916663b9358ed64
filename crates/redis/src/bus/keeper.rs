//! Keeps every wanted channel subscribed on the server that has it, whatever happens to servers and connections.
//!
//! A channel is wanted (nobody has been asked), asked for, or heard. Losing a line makes all its channels wanted again
//! and doubted; being heard again ends the doubt by telling the listener. Everything that takes time is a piece of
//! work beside the loop, so that one slow server holds up nobody.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bongsu_kernel::shrink;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::{mpsc, oneshot};

use super::line::{Heard, Line, LineId, QUEUE};
use super::{Channel, Command, Listener, pause};
use crate::Redis;
use crate::error::Error;

/// The loop looks after itself so often.
const TURN: Duration = Duration::from_millis(250);
/// A channel that was asked for and is not heard by then is asked for again, perhaps elsewhere.
const UNHEARD: Duration = Duration::from_secs(2);
/// So many messages are passed on before anything else has its turn.
const AT_ONCE: usize = 1_024;

type Work = Pin<Box<dyn Future<Output = Done> + Send>>;

/// What a piece of work ended with.
enum Done {
    Placed(Channel, Result<String, Error>),
    Opened(String, Result<Line, String>),
    /// A command or a question on a line failed, or not.
    Sent(LineId, bool),
    Looked,
}

struct Wanted {
    state: State,
    /// Messages may have been lost: the listener is told once it is heard again.
    doubted: bool,
    waiting: Vec<oneshot::Sender<()>>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Wanted,
    Placing,
    /// On this line, since then.
    Asked(LineId, Instant),
    Heard(LineId),
}

enum Link {
    Opening,
    Open(Line),
}

/// How often reaching a server failed in a row, and when to try again; nothing while that is under way.
#[derive(Default)]
struct Rest {
    attempt: u32,
    until: Option<Instant>,
}

/// Stands for whatever server has a channel while none can be asked which it is.
const NOWHERE: &str = "";

impl Link {
    fn is(&self, line: LineId) -> bool {
        matches!(self, Self::Open(open) if open.id == line)
    }
}

pub(super) struct Keeper {
    redis: Redis,
    listener: Arc<dyn Listener>,
    channels: HashMap<Channel, Wanted, foldhash::fast::RandomState>,
    /// By the server's address.
    links: HashMap<String, Link>,
    last_line: LineId,
    work: FuturesUnordered<Work>,
    ears: (mpsc::Sender<Heard>, mpsc::Receiver<Heard>),
    /// Servers that could not be reached. Each has its own, so that one that is gone holds up no other.
    resting: HashMap<String, Rest>,
    /// Whether commands reached Redis at the last turn.
    reached: bool,
    /// How often another server had become the master, at the last turn.
    promotions: u64,
}

impl Keeper {
    pub(super) fn new(redis: Redis, listener: Arc<dyn Listener>) -> Self {
        let promotions = redis.promotions();
        Self {
            redis,
            listener,
            channels: HashMap::default(),
            links: HashMap::new(),
            last_line: 0,
            work: FuturesUnordered::new(),
            ears: mpsc::channel(QUEUE),
            resting: HashMap::new(),
            reached: false,
            promotions,
        }
    }

    pub(super) async fn run(mut self, commands: &mut mpsc::UnboundedReceiver<Command>) {
        let mut turn = tokio::time::interval(TURN);
        turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut heard = Vec::with_capacity(AT_ONCE);
        loop {
            tokio::select! {
                _ = self.ears.1.recv_many(&mut heard, AT_ONCE) => {
                    for (line, push) in heard.drain(..) {
                        self.hear(line, push);
                    }
                    self.look_for_overflow();
                }
                command = commands.recv() => match command {
                    Some(command) => self.obey(command),
                    None => return,
                },
                Some(done) = self.work.next() => self.finish(done),
                _ = turn.tick() => self.look_after(),
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Subscribe(channel, done) => {
                let fresh = || Wanted { state: State::Wanted, doubted: false, waiting: Vec::new() };
                let wanted = self.channels.entry(channel.clone()).or_insert_with(fresh);
                match wanted.state {
                    // The caller may have gone meanwhile.
                    State::Heard(_) => drop(done.send(())),
                    state => {
                        wanted.waiting.push(done);
                        if state == State::Wanted && !self.rests(NOWHERE) {
                            self.place(channel);
                        }
                    }
                }
            }
            Command::Unsubscribe(channel) => {
                let Some(wanted) = self.channels.remove(&channel) else { return };
                shrink(&mut self.channels);
                if let State::Asked(line, _) | State::Heard(line) = wanted.state {
                    self.tell(line, channel.unsubscribe(), &channel);
                }
            }
        }
    }

    /// Finds out which server has a channel.
    fn place(&mut self, channel: Channel) {
        if let Some(wanted) = self.channels.get_mut(&channel) {
            wanted.state = State::Placing;
            let redis = self.redis.clone();
            self.work.push(Box::pin(async move {
                let url = redis.servers().url_of(channel.name()).await;
                Done::Placed(channel, url)
            }));
        }
    }

    fn finish(&mut self, done: Done) {
        match done {
            Done::Placed(channel, Ok(url)) => {
                if let Some(line) = self.line_for(&channel, &url) {
                    return self.ask(line, &channel);
                }
                self.set(&channel, State::Wanted);
                if !self.links.contains_key(&url) && !self.rests(&url) {
                    self.open(url);
                }
            }
            Done::Placed(channel, Err(_)) => {
                self.set(&channel, State::Wanted);
                self.try_later(NOWHERE);
            }
            Done::Opened(url, Ok(line)) => {
                tracing::debug!(line = line.id, "the bus has a line");
                self.resting.remove(NOWHERE);
                self.links.insert(url, Link::Open(line));
                self.place_wanted();
            }
            Done::Opened(url, Err(error)) => {
                tracing::warn!(error, "the bus cannot reach Redis");
                self.links.remove(&url);
                self.try_later(&url);
            }
            Done::Sent(line, false) => self.lose(line),
            Done::Sent(_, true) => {}
            Done::Looked => self.place_wanted(),
        }
    }

    fn open(&mut self, url: String) {
        self.last_line += 1;
        let (id, queue) = (self.last_line, self.ears.0.clone());
        self.links.insert(url.clone(), Link::Opening);
        self.work.push(Box::pin(async move {
            let line = Line::open(id, url.clone(), queue).await;
            Done::Opened(url, line)
        }));
    }

    fn ask(&mut self, line: LineId, channel: &Channel) {
        self.set(channel, State::Asked(line, Instant::now()));
        self.tell(line, channel.subscribe(), channel);
    }

    fn tell(&mut self, line: LineId, what: &str, channel: &Channel) {
        if let Some(line) = self.line(line) {
            let mut command = redis::cmd(what);
            command.arg(channel.name());
            let (id, sent) = (line.id, line.send(command));
            // A refusal is no loss of the line: it says that the channel is elsewhere by now.
            self.work.push(Box::pin(async move { Done::Sent(id, sent.await.is_ok_or_refused()) }));
        }
    }

    fn hear(&mut self, line: LineId, push: PushInfo) {
        let PushInfo { kind, data } = push;
        if kind == PushKind::Disconnection {
            return self.lose(line);
        }
        let mut data = data.into_iter();
        let Some(Value::BulkString(name)) = data.next() else { return };
        let Ok(name) = String::from_utf8(name) else { return };
        let name = name.into();
        match kind {
            PushKind::SMessage | PushKind::Message => {
                let of_slot = kind == PushKind::SMessage;
                let channel = if of_slot { Channel::OfSlot(name) } else { Channel::Everywhere(name) };
                if let Some(Value::BulkString(payload)) = data.next() {
                    self.listener.message(&channel, Bytes::from(payload));
                }
            }
            PushKind::SSubscribe => self.heard(line, &Channel::OfSlot(name)),
            PushKind::Subscribe => self.heard(line, &Channel::Everywhere(name)),
            PushKind::SUnsubscribe => self.dropped(line, &Channel::OfSlot(name)),
            PushKind::Unsubscribe => self.dropped(line, &Channel::Everywhere(name)),
            _ => {}
        }
    }

    /// A subscription is in force.
    fn heard(&mut self, line: LineId, channel: &Channel) {
        let Some(wanted) = self.channels.get_mut(channel) else { return };
        if !matches!(wanted.state, State::Asked(on, _) if on == line) {
            return;
        }
        wanted.state = State::Heard(line);
        for waiting in wanted.waiting.drain(..) {
            let _ = waiting.send(());
        }
        if std::mem::take(&mut wanted.doubted) {
            self.listener.doubt(channel);
        }
        // Not before: a server that takes connections and drops them has not been reached.
        if !self.resting.is_empty()
            && let Some((url, _)) = self.links.iter().find(|(_, link)| link.is(line))
        {
            self.resting.remove(url);
        }
    }

    /// The server ended a subscription. If nobody asked for that, the channel's slot has moved.
    fn dropped(&mut self, line: LineId, channel: &Channel) {
        let Some(wanted) = self.channels.get_mut(channel) else { return };
        if wanted.state == State::Heard(line) {
            wanted.state = State::Wanted;
            wanted.doubted = true;
            self.listener.lost(channel);
            self.look_elsewhere();
        }
    }

    /// A line is gone, and with it all that was heard on it.
    fn lose(&mut self, line: LineId) {
        let url = self.links.iter().find(|(_, link)| link.is(line)).map(|(url, _)| url.clone());
        let Some(url) = url else { return };
        self.links.remove(&url);
        tracing::warn!(line, "the bus lost a line");
        metrics::counter!("pubsub_reconnect_total").increment(1);
        for (channel, wanted) in &mut self.channels {
            if matches!(wanted.state, State::Asked(on, _) | State::Heard(on) if on == line) {
                // What was asked for and never heard has not been missed by anybody.
                if matches!(wanted.state, State::Heard(_)) {
                    wanted.doubted = true;
                    self.listener.lost(channel);
                }
                wanted.state = State::Wanted;
            }
        }
        self.try_later(&url);
        // Some may go elsewhere at once.
        self.place_wanted();
    }

    /// Another server is the master: those that are listened to may be replicas, and hear late or nothing.
    fn leave_replicas(&mut self) {
        let open = |link: &Link| match link {
            Link::Open(line) => Some(line.id),
            Link::Opening => None,
        };
        let lines: Vec<LineId> = self.links.values().filter_map(open).collect();
        lines.into_iter().for_each(|line| self.lose(line));
    }

    fn look_for_overflow(&mut self) {
        for link in self.links.values() {
            if let Link::Open(line) = link
                && line.take_overflow()
            {
                tracing::warn!(line = line.id, "more came over the bus than could be passed on");
                for (channel, wanted) in &self.channels {
                    if wanted.state == State::Heard(line.id) {
                        self.listener.doubt(channel);
                    }
                }
            }
        }
    }

    fn look_after(&mut self) {
        let now = Instant::now();
        for link in self.links.values_mut() {
            if let Link::Open(line) = link
                && let Some(asked) = line.knock()
            {
                let id = line.id;
                self.work.push(Box::pin(async move { Done::Sent(id, asked.await.is_ok_or_refused()) }));
            }
        }
        let mut unheard = false;
        for wanted in self.channels.values_mut() {
            if matches!(wanted.state, State::Asked(_, since) if now - since > UNHEARD) {
                wanted.state = State::Wanted;
                unheard = true;
            }
        }
        if unheard {
            self.look_elsewhere();
        }
        let promotions = self.redis.promotions();
        if std::mem::replace(&mut self.promotions, promotions) != promotions {
            self.leave_replicas();
        }
        let was_reached = std::mem::replace(&mut self.reached, self.redis.is_connected());
        if self.reached && !was_reached {
            // It is back: nothing is gained by waiting out a pause that grew while it was away.
            self.resting.values_mut().for_each(|rest| *rest = Rest { attempt: 0, until: Some(now) });
        }
        let mut rested = false;
        for rest in self.resting.values_mut() {
            rested |= rest.until.take_if(|until| *until <= now).is_some();
        }
        if rested {
            self.place_wanted();
        }
    }

    /// Asks for the map of slots again, and then for every channel that is not placed.
    fn look_elsewhere(&mut self) {
        let redis = self.redis.clone();
        self.work.push(Box::pin(async move {
            redis.servers().look_again().await;
            Done::Looked
        }));
    }

    fn place_wanted(&mut self) {
        let wanted =
            |(channel, wanted): (&Channel, &Wanted)| (wanted.state == State::Wanted).then(|| channel.clone());
        let wanted: Vec<Channel> = self.channels.iter().filter_map(wanted).collect();
        for channel in wanted {
            self.place(channel);
        }
    }

    fn try_later(&mut self, url: &str) {
        let rest = self.resting.entry(url.to_owned()).or_default();
        if rest.until.is_none() {
            rest.until = Some(Instant::now() + pause(rest.attempt));
            rest.attempt += 1;
        }
    }

    /// Whether a server is left alone for now.
    fn rests(&self, url: &str) -> bool {
        self.resting.get(url).is_some_and(|rest| rest.until.is_some())
    }

    /// The line that a channel is asked for on: its server's, and for one that is heard everywhere any other's as well.
    fn line_for(&self, channel: &Channel, url: &str) -> Option<LineId> {
        let id = |link: &Link| match link {
            Link::Open(line) => Some(line.id),
            Link::Opening => None,
        };
        let own = self.links.get(url).and_then(id);
        match channel {
            Channel::OfSlot(_) => own,
            Channel::Everywhere(_) => own.or_else(|| self.links.values().find_map(id)),
        }
    }

    fn set(&mut self, channel: &Channel, state: State) {
        if let Some(wanted) = self.channels.get_mut(channel) {
            wanted.state = state;
        }
    }

    fn line(&self, id: LineId) -> Option<&Line> {
        self.links.values().find_map(|link| match link {
            Link::Open(line) if line.id == id => Some(line),
            _ => None,
        })
    }
}

/// Whether a line still carries: an answer is an answer, also when it is no.
trait Carries {
    fn is_ok_or_refused(&self) -> bool;
}

impl Carries for Result<(), redis::RedisError> {
    fn is_ok_or_refused(&self) -> bool {
        self.as_ref().err().is_none_or(|error| !error.is_io_error())
    }
}
