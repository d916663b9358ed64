//! A client that behaves like a browser's EventSource: after every end of a stream it waits for the server's `retry`
//! time and reconnects with its position. It stops only when a response is not an event stream (204, any status but
//! 200, another content type).

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::parser::{Event, Item};
use super::stream::{Request, Stream, TimedOut};
use crate::answer::Answer;
use crate::tier;

/// The delay of browsers if the server has sent no `retry`.
const DEFAULT_RETRY_DELAY: Duration = Duration::from_secs(3);

/// A reconnecting client.
pub struct ResumingClient {
    request: Request,
    state: State,
    retry: Duration,
    max_retry_delay: Duration,
    last_event_id: String,
    connections: usize,
}

enum State {
    Waiting(Instant),
    Open(Box<Stream>),
    Stopped(Answer),
}

impl ResumingClient {
    /// A client that connects when the first event is requested.
    pub fn new(request: Request) -> Self {
        // Tests that resume look for missing and repeated events.
        tier::counts_events();
        Self {
            request,
            state: State::Waiting(Instant::now()),
            retry: DEFAULT_RETRY_DELAY,
            max_retry_delay: Duration::MAX,
            last_event_id: String::new(),
            connections: 0,
        }
    }

    /// Limits the delay before a reconnect, whatever `retry` the server sends.
    pub fn max_retry_delay(mut self, max: Duration) -> Self {
        self.max_retry_delay = max;
        self
    }

    /// Starts after this position, as if the client had read up to it before.
    pub fn starting_after(mut self, last_event_id: &str) -> Self {
        last_event_id.clone_into(&mut self.last_event_id);
        self
    }

    /// The next event over any number of connections; None once a response has stopped the client.
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
                        None => self.schedule_reconnect(),
                    }
                }
            }
        }
    }

    /// As [`ResumingClient::try_next_event`]; panics if no event arrives in time.
    pub async fn next_event(&mut self, timeout: Duration) -> Option<Event> {
        self.try_next_event(timeout).await.unwrap_or_else(|TimedOut| {
            panic!("no event within {timeout:?}; the last event id is {:?}", self.last_event_id)
        })
    }

    /// Drops the connection, as a network failure does. The next call reconnects immediately, after the last returned
    /// event.
    pub fn break_connection(&mut self) {
        if matches!(self.state, State::Open(_)) {
            self.state = State::Waiting(Instant::now());
        }
    }

    pub fn last_event_id(&self) -> &str {
        &self.last_event_id
    }

    /// The current delay before a reconnect.
    pub fn retry(&self) -> Duration {
        self.retry.min(self.max_retry_delay)
    }

    /// The number of streams opened so far.
    pub fn connections(&self) -> usize {
        self.connections
    }

    /// The response that stopped the client; None while it has not stopped.
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
            // A network error is not a response, so the client continues.
            Err(_) => self.schedule_reconnect(),
        }
    }

    fn schedule_reconnect(&mut self) {
        self.state = State::Waiting(Instant::now() + self.retry());
    }
}
