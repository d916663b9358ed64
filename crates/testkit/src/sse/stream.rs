//! One SSE connection, whose read speed the test controls.
//!
//! Bytes are read from the socket only while a `next` method is awaited. All `next` methods are cancellation-safe.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http::HeaderMap;
use tokio::time::{Instant, timeout, timeout_at};

use super::parser::{Event, Item, Parser};
use super::source::{OpenedResponse, Source, open_http2, open_socket};
use crate::answer::Answer;
use crate::hub::Hub;

const OPEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Builds the request for a stream.
#[derive(Clone, Debug)]
pub struct Request {
    addr: SocketAddr,
    path: String,
    headers: Vec<(String, String)>,
    receive_buffer: Option<u32>,
    is_http2: bool,
    includes_presence: bool,
}

impl Request {
    /// A request with `Accept: text/event-stream`, as an EventSource sends it.
    pub fn new(addr: SocketAddr, path: &str) -> Self {
        let headers = [("accept", "text/event-stream"), ("cache-control", "no-cache")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Self {
            addr,
            path: path.to_owned(),
            headers,
            receive_buffer: None,
            is_http2: false,
            includes_presence: false,
        }
    }

    /// Sets a header; it replaces a header of the same name.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn bearer(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// Sends a token of this person, signed with the development secret.
    pub fn person(self, user: impl std::fmt::Display) -> Self {
        self.bearer(&crate::tokens::token(user))
    }

    /// Sends this position as `Last-Event-ID`; an empty position sends no header.
    pub fn last_event_id(self, id: &str) -> Self {
        if id.is_empty() { self } else { self.header("last-event-id", id) }
    }

    /// Sets the receive buffer to about this size (SO_RCVBUF), so that the hub soon notices when the client stops
    /// reading.
    pub fn receive_buffer(mut self, bytes: u32) -> Self {
        self.receive_buffer = Some(bytes);
        self
    }

    /// Uses HTTP/2 instead of HTTP/1.1.
    pub fn http2(mut self) -> Self {
        self.is_http2 = true;
        self
    }

    /// Also returns `presence.update` events. They are skipped by default, because most tests do not test presence, but
    /// open and close streams, which changes presence.
    pub fn with_presence(mut self) -> Self {
        self.includes_presence = true;
        self
    }

    /// Opens the stream; the error is a response that is not an event stream. Panics if no response arrives.
    pub async fn open(self) -> Result<Stream, Answer> {
        let path = self.path.clone();
        self.try_open().await.unwrap_or_else(|error| panic!("no response to {path}: {error}"))
    }

    /// As [`Request::open`]; the outer error means that no response arrived.
    pub async fn try_open(self) -> io::Result<Result<Stream, Answer>> {
        timeout(OPEN_TIMEOUT, self.send()).await?
    }

    async fn send(self) -> io::Result<Result<Stream, Answer>> {
        let opened = if self.is_http2 {
            open_http2(self.addr, &self.path, &self.headers).await?
        } else {
            open_socket(self.addr, &self.path, &self.headers, self.receive_buffer).await?
        };
        let content_type =
            opened.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
        if opened.status == 200 && content_type.split(';').next() == Some("text/event-stream") {
            let position = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("last-event-id"));
            Ok(Ok(Stream::new(opened, position.map_or("", |(_, id)| id), self.includes_presence)))
        } else {
            opened.into_answer().await.map(Err)
        }
    }
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The server ended the response body as HTTP requires.
    Proper,
    /// The connection ended within the body.
    Cut,
}

/// No item arrived in time; the stream is still open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;

/// An open stream.
pub struct Stream {
    pub status: u16,
    pub headers: HeaderMap,
    source: Source,
    parser: Parser,
    ready: VecDeque<Item>,
    /// The last event id string after the last returned event; the parser may be ahead of it.
    returned_id: String,
    includes_presence: bool,
    end: Option<End>,
}

impl Stream {
    /// Opens a stream of the hub with these headers.
    pub async fn open(hub: &Hub, path: &str, headers: &[(&str, &str)]) -> Result<Self, Answer> {
        let request = Request::new(hub.addr(), path);
        headers.iter().fold(request, |request, (name, value)| request.header(name, value)).open().await
    }

    /// A request for a stream of the hub, to set more options.
    pub fn request(hub: &Hub, path: &str) -> Request {
        Request::new(hub.addr(), path)
    }

    fn new(opened: OpenedResponse, position: &str, includes_presence: bool) -> Self {
        let OpenedResponse { status, headers, source } = opened;
        let (parser, ready) = (Parser::resumed(position), VecDeque::new());
        let returned_id = position.to_owned();
        Self { status, headers, source, parser, ready, returned_id, includes_presence, end: None }
    }

    /// The next item; None at the end of the stream.
    pub async fn try_next(&mut self, timeout: Duration) -> Result<Option<Item>, TimedOut> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(item) = self.ready.pop_front() {
                if let Item::Event(event) = &item {
                    event.id.clone_into(&mut self.returned_id);
                }
                return Ok(Some(item));
            }
            if self.end.is_some() {
                return Ok(None);
            }
            self.read_more(deadline).await?;
        }
    }

    /// Reads once from the connection: a part of an item, several items, or the end.
    async fn read_more(&mut self, deadline: Instant) -> Result<(), TimedOut> {
        match timeout_at(deadline, self.source.read()).await {
            Err(_) => return Err(TimedOut),
            Ok(Ok(Some(bytes))) => {
                let includes_presence = self.includes_presence;
                let is_presence =
                    |item: &Item| matches!(item, Item::Event(event) if event.event == "presence.update");
                let items = self.parser.feed(&bytes);
                self.ready.extend(items.into_iter().filter(|item| includes_presence || !is_presence(item)));
            }
            Ok(Ok(None)) => self.end = Some(End::Proper),
            Ok(Err(_)) => self.end = Some(End::Cut),
        }
        Ok(())
    }

    /// The next event, skipping comments and retries; None at the end of the stream.
    pub async fn try_next_event(&mut self, timeout: Duration) -> Result<Option<Event>, TimedOut> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.try_next(deadline.saturating_duration_since(Instant::now())).await? {
                Some(Item::Event(event)) => return Ok(Some(event)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// As [`Stream::try_next`]; panics if no item arrives in time.
    pub async fn next(&mut self, timeout: Duration) -> Option<Item> {
        self.try_next(timeout).await.unwrap_or_else(|TimedOut| self.panic_timed_out(timeout))
    }

    /// As [`Stream::try_next_event`]; panics if no event arrives in time.
    pub async fn next_event(&mut self, timeout: Duration) -> Option<Event> {
        self.try_next_event(timeout).await.unwrap_or_else(|TimedOut| self.panic_timed_out(timeout))
    }

    /// The next event; panics if it is not of this type.
    pub async fn expect_event(&mut self, event: &str, timeout: Duration) -> Event {
        match self.next_event(timeout).await {
            Some(found) if found.event == event => found,
            Some(found) => panic!("expected {event}, got {found:?}"),
            None => panic!("expected {event}, but the stream ended ({:?})", self.end),
        }
    }

    /// Skips events until `is_wanted` returns true. Panics with the description `what` if no such event arrives in
    /// time.
    pub async fn find_event(
        &mut self,
        what: &str,
        timeout: Duration,
        mut is_wanted: impl FnMut(&Event) -> bool,
    ) -> Event {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.try_next_event(left).await {
                Ok(Some(event)) if is_wanted(&event) => return event,
                Ok(Some(_)) => {}
                Ok(None) => panic!("waited for {what}, but the stream ended ({:?})", self.end),
                Err(TimedOut) => panic!("{what} did not arrive within {timeout:?}"),
            }
        }
    }

    /// Reads until the stream has sent a position and returns it, for a client that disconnects before the first event.
    pub async fn position(&mut self, timeout: Duration) -> String {
        let deadline = Instant::now() + timeout;
        loop {
            while let Some(item) = self.ready.pop_front() {
                assert!(!matches!(item, Item::Event(_)), "waited for a position, got {item:?}");
            }
            if !self.last_event_id().is_empty() {
                return self.last_event_id().to_owned();
            }
            assert!(self.end.is_none(), "waited for a position, but the stream ended ({:?})", self.end);
            let read = self.read_more(deadline).await;
            read.unwrap_or_else(|TimedOut| panic!("no position within {timeout:?}"));
        }
    }

    /// The next `count` events; panics if fewer arrive in time.
    pub async fn take_events(&mut self, count: usize, timeout: Duration) -> Vec<Event> {
        let deadline = Instant::now() + timeout;
        let mut events = Vec::with_capacity(count);
        while events.len() < count {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.try_next_event(left).await {
                Ok(Some(event)) => events.push(event),
                Ok(None) => panic!("the stream ended after {} of {count} events", events.len()),
                Err(TimedOut) => panic!("only {} of {count} events within {timeout:?}", events.len()),
            }
        }
        events
    }

    /// All items until the end of the stream.
    pub async fn read_to_end(&mut self, timeout: Duration) -> Vec<Item> {
        let deadline = Instant::now() + timeout;
        let mut items = Vec::new();
        while let Some(item) = self.next(deadline.saturating_duration_since(Instant::now())).await {
            items.push(item);
        }
        items
    }

    /// How the stream ended; None until a `next` method has seen the end.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// The `Last-Event-ID` of a client that has processed the returned events and reconnects now.
    pub fn last_event_id(&self) -> &str {
        if self.ready.is_empty() { self.parser.last_event_id() } else { &self.returned_id }
    }

    /// Limits reads from the socket to this number of bytes per second from now on (HTTP/1.1 only).
    pub fn read_slowly(&mut self, bytes_per_sec: u64) {
        self.source.set_pace(bytes_per_sec);
    }

    /// Keeps the connection open without reading from it.
    pub fn stop_reading(self) -> PausedStream {
        PausedStream(self)
    }

    /// Closes the connection.
    pub fn close(self) {}

    fn panic_timed_out(&self, timeout: Duration) -> ! {
        panic!("no item within {timeout:?}; the last event id is {:?}", self.last_event_id())
    }
}

/// A stream that is open and not being read.
pub struct PausedStream(Stream);

impl PausedStream {
    pub fn resume(self) -> Stream {
        self.0
    }
}
