//! A client that does what a browser's EventSource does: it comes back after every ending, with its position and
//! after the time it was told, and gives up only on an answer that is no stream (204, any status but 200, another
//! content type).

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::parser::{Event, Item};
use super::stream::{Request, Stream, TimedOut};
use crate::answer::Answer;
use crate::tier;

/// What browsers wait when the server says nothing.
const DEFAULT_RETRY: Duration = Duration::from_secs(3);

/// A reconnecting client.
pub struct Resuming {
    request: Request,
    state: State,
    retry: Duration,
    longest_retry: Duration,
    last_event_id: String,
    connections: usize,
}

enum State {
    Waiting(Instant),
    Open(Box<Stream>),
    Stopped(Answer),
}

impl Resuming {
    /// A client that connects when it is first asked for an event.
    pub fn new(request: Request) -> Self {
        // Whoever resumes looks for what is missing or comes twice.
        tier::counts_events();
        Self {
            request,
            state: State::Waiting(Instant::now()),
            retry: DEFAULT_RETRY,
            longest_retry: Duration::MAX,
            last_event_id: String::new(),
            connections: 0,
        }
    }

    /// Waits no longer than this before it comes back, whatever the server says: a browser in a hurry.
    pub fn retry_at_most(mut self, longest: Duration) -> Self {
        self.longest_retry = longest;
        self
    }

    /// Begins after this position, as if it had been read before.
    pub fn starting_after(mut self, last_event_id: &str) -> Self {
        last_event_id.clone_into(&mut self.last_event_id);
        self
    }

    /// The next event over any number of connections; none once it was told to stay away.
    pub async fn try_next_event(&mut self, timeout: Duration) -> Result<Option<Event>, TimedOut> {
        let deadline = Instant::now() + timeout;
        loop {
            match &mut self.state {
                State::Stopped(_) => return Ok(None),
                State::Waiting(until) => {
                    let until = *until;
                    timeout_at(deadline, sleep_until(until)).await.map_err(|_| TimedOut)?;
                    timeout_at(deadline, self.connect()).await.map_err(|_| TimedOut)?;
                }
                State::Open(stream) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let item = stream.try_next(left).await?;
                    stream.last_event_id().clone_into(&mut self.last_event_id);
                    match item {
                        Some(Item::Event(event)) => return Ok(Some(event)),
                        Some(Item::Retry(ms)) => self.retry = Duration::from_millis(ms),
                        Some(Item::Comment(_)) => {}
                        None => self.wait_to_come_back(),
                    }
                }
            }
        }
    }

    /// As [`Resuming::try_next_event`]; panics when nothing comes in time.
    pub async fn next_event(&mut self, timeout: Duration) -> Option<Event> {
        self.try_next_event(timeout).await.unwrap_or_else(|TimedOut| {
            panic!("nothing came within {timeout:?}; the last event id is {:?}", self.last_event_id)
        })
    }

    /// Breaks the connection as a network would; the next call comes back at once, from the last event that was
    /// handed out.
    pub fn break_connection(&mut self) {
        if matches!(self.state, State::Open(_)) {
            self.state = State::Waiting(Instant::now());
        }
    }

    pub fn last_event_id(&self) -> &str {
        &self.last_event_id
    }

    /// How long it waits before it comes back, as things stand.
    pub fn retry(&self) -> Duration {
        self.retry.min(self.longest_retry)
    }

    /// How many streams it has opened.
    pub fn connections(&self) -> usize {
        self.connections
    }

    /// The answer that made it stop for good.
    pub fn stopped_by(&self) -> Option<&Answer> {
        match &self.state {
            State::Stopped(answer) => Some(answer),
            _ => None,
        }
    }

    async fn connect(&mut self) {
        let request = self.request.clone().last_event_id(&self.last_event_id);
        match request.try_open().await {
            Ok(Ok(stream)) => {
                self.connections += 1;
                self.state = State::Open(Box::new(stream));
            }
            Ok(Err(answer)) => self.state = State::Stopped(answer),
            // A network error: nothing answered, so nothing said to stay away.
            Err(_) => self.wait_to_come_back(),
        }
    }

    fn wait_to_come_back(&mut self) {
        self.state = State::Waiting(Instant::now() + self.retry());
    }
}
