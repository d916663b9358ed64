//! One SSE connection, read as slowly as a test wants.
//!
//! Bytes are taken from the socket only while a `next` method is awaited. Cancelling one loses nothing.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http::HeaderMap;
use tokio::time::{Instant, timeout, timeout_at};

use super::parser::{Event, Item, Parser};
use super::source::{Opened, Source, open_http2, open_socket};
use crate::answer::Answer;
use crate::hub::Hub;

const OPEN: Duration = Duration::from_secs(60);

/// A stream that is about to be opened.
#[derive(Clone, Debug)]
pub struct Request {
    addr: SocketAddr,
    path: String,
    headers: Vec<(String, String)>,
    receive_buffer: Option<u32>,
    http2: bool,
    presence: bool,
}

impl Request {
    /// A request with `Accept: text/event-stream`, as an EventSource sends it.
    pub fn new(addr: SocketAddr, path: &str) -> Self {
        let headers = [("accept", "text/event-stream"), ("cache-control", "no-cache")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Self { addr, path: path.to_owned(), headers, receive_buffer: None, http2: false, presence: false }
    }

    /// Sets a header; it replaces one of that name.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn bearer(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// Signs in as this person with the development secret.
    pub fn person(self, user: impl std::fmt::Display) -> Self {
        self.bearer(&crate::tokens::token(user))
    }

    /// Continues after this position; nothing is sent when it is empty.
    pub fn last_event_id(self, id: &str) -> Self {
        if id.is_empty() { self } else { self.header("last-event-id", id) }
    }

    /// A receive buffer of about so many bytes (SO_RCVBUF), so that a reader that stops is soon noticed.
    pub fn receive_buffer(mut self, bytes: u32) -> Self {
        self.receive_buffer = Some(bytes);
        self
    }

    /// Over HTTP/2 instead of HTTP/1.1.
    pub fn http2(mut self) -> Self {
        self.http2 = true;
        self
    }

    /// Hands out `presence.update` as well. Most tests are about other things, and people come and go beside them.
    pub fn with_presence(mut self) -> Self {
        self.presence = true;
        self
    }

    /// Opens it: the stream, or the answer that was no stream. Panics when no answer comes.
    pub async fn open(self) -> Result<Stream, Answer> {
        let path = self.path.clone();
        self.try_open().await.unwrap_or_else(|error| panic!("no answer to {path}: {error}"))
    }

    /// Opens it; the outer error means that no answer came.
    pub async fn try_open(self) -> io::Result<Result<Stream, Answer>> {
        timeout(OPEN, self.ask()).await?
    }

    async fn ask(self) -> io::Result<Result<Stream, Answer>> {
        let opened = if self.http2 {
            open_http2(self.addr, &self.path, &self.headers).await?
        } else {
            open_socket(self.addr, &self.path, &self.headers, self.receive_buffer).await?
        };
        let kind =
            opened.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
        if opened.status == 200 && kind.split(';').next() == Some("text/event-stream") {
            let position = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("last-event-id"));
            Ok(Ok(Stream::new(opened, position.map_or("", |(_, id)| id), self.presence)))
        } else {
            opened.into_answer().await.map(Err)
        }
    }
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The server ended the body as HTTP wants it.
    Proper,
    /// The connection broke in the middle.
    Cut,
}

/// Nothing came in time; the stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;

/// An open stream.
pub struct Stream {
    pub status: u16,
    pub headers: HeaderMap,
    source: Source,
    parser: Parser,
    ready: VecDeque<Item>,
    /// The last event id string as of the last event that was handed out; the parser may be ahead of it.
    handed_out: String,
    presence: bool,
    end: Option<End>,
}

impl Stream {
    /// Opens a stream of the hub with these headers.
    pub async fn open(hub: &Hub, path: &str, headers: &[(&str, &str)]) -> Result<Self, Answer> {
        let request = Request::new(hub.addr(), path);
        headers.iter().fold(request, |request, (name, value)| request.header(name, value)).open().await
    }

    /// Prepares one, to say more about it.
    pub fn request(hub: &Hub, path: &str) -> Request {
        Request::new(hub.addr(), path)
    }

    fn new(opened: Opened, position: &str, presence: bool) -> Self {
        let Opened { status, headers, source } = opened;
        let (parser, ready) = (Parser::resumed(position), VecDeque::new());
        Self { status, headers, source, parser, ready, handed_out: position.to_owned(), presence, end: None }
    }

    /// The next item, or none at the stream's end.
    pub async fn try_next(&mut self, timeout: Duration) -> Result<Option<Item>, TimedOut> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(item) = self.ready.pop_front() {
                if let Item::Event(event) = &item {
                    event.id.clone_into(&mut self.handed_out);
                }
                return Ok(Some(item));
            }
            if self.end.is_some() {
                return Ok(None);
            }
            self.read_more(deadline).await?;
        }
    }

    /// Takes what comes next from the connection, be it a part of an item, some of them, or the end.
    async fn read_more(&mut self, deadline: Instant) -> Result<(), TimedOut> {
        match timeout_at(deadline, self.source.read()).await {
            Err(_) => return Err(TimedOut),
            Ok(Ok(Some(bytes))) => {
                let presence = self.presence;
                let about_people =
                    |item: &Item| matches!(item, Item::Event(event) if event.event == "presence.update");
                let items = self.parser.feed(&bytes);
                self.ready.extend(items.into_iter().filter(|item| presence || !about_people(item)));
            }
            Ok(Ok(None)) => self.end = Some(End::Proper),
            Ok(Err(_)) => self.end = Some(End::Cut),
        }
        Ok(())
    }

    /// The next event, passing over comments and retries, or none at the stream's end.
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

    /// As [`Stream::try_next`]; panics when nothing comes in time.
    pub async fn next(&mut self, timeout: Duration) -> Option<Item> {
        self.try_next(timeout).await.unwrap_or_else(|TimedOut| self.nothing_within(timeout))
    }

    /// As [`Stream::try_next_event`]; panics when nothing comes in time.
    pub async fn next_event(&mut self, timeout: Duration) -> Option<Event> {
        self.try_next_event(timeout).await.unwrap_or_else(|TimedOut| self.nothing_within(timeout))
    }

    /// The next event, which has to be of this type.
    pub async fn expect_event(&mut self, event: &str, timeout: Duration) -> Event {
        match self.next_event(timeout).await {
            Some(found) if found.event == event => found,
            Some(found) => panic!("expected {event}, and {found:?} came"),
            None => panic!("expected {event}, and the stream ended ({:?})", self.end),
        }
    }

    /// Passes over events until one is wanted; panics, naming what was waited for, when it does not come in time.
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
                Ok(None) => panic!("waited for {what}, and the stream ended ({:?})", self.end),
                Err(TimedOut) => panic!("{what} did not come within {timeout:?}"),
            }
        }
    }

    /// Reads until the stream has told its position, for a client that goes before the first event; gives it.
    pub async fn position(&mut self, timeout: Duration) -> String {
        let deadline = Instant::now() + timeout;
        loop {
            while let Some(item) = self.ready.pop_front() {
                assert!(!matches!(item, Item::Event(_)), "waited for a position, and {item:?} came");
            }
            if !self.last_event_id().is_empty() {
                return self.last_event_id().to_owned();
            }
            assert!(self.end.is_none(), "waited for a position, and the stream ended ({:?})", self.end);
            let read = self.read_more(deadline).await;
            read.unwrap_or_else(|TimedOut| panic!("no position came within {timeout:?}"));
        }
    }

    /// The next so many events.
    pub async fn take_events(&mut self, count: usize, timeout: Duration) -> Vec<Event> {
        let deadline = Instant::now() + timeout;
        let mut events = Vec::with_capacity(count);
        while events.len() < count {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.try_next_event(left).await {
                Ok(Some(event)) => events.push(event),
                Ok(None) => panic!("the stream ended after {} of {count} events", events.len()),
                Err(TimedOut) => panic!("{} of {count} events within {timeout:?}", events.len()),
            }
        }
        events
    }

    /// Everything until the stream's end.
    pub async fn read_to_end(&mut self, timeout: Duration) -> Vec<Item> {
        let deadline = Instant::now() + timeout;
        let mut items = Vec::new();
        while let Some(item) = self.next(deadline.saturating_duration_since(Instant::now())).await {
            items.push(item);
        }
        items
    }

    /// How it ended, once a `next` method has seen the end.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// What a client that has seen what was handed out would send as `Last-Event-ID` now.
    pub fn last_event_id(&self) -> &str {
        if self.ready.is_empty() { self.parser.last_event_id() } else { &self.handed_out }
    }

    /// From now on no more than so many bytes a second are taken from the socket (HTTP/1.1 only).
    pub fn read_slowly(&mut self, bytes_per_sec: u64) {
        self.source.set_pace(bytes_per_sec);
    }

    /// Holds the connection and takes nothing more from it.
    pub fn stop_reading(self) -> Held {
        Held(self)
    }

    /// Ends the connection.
    pub fn close(self) {}

    fn nothing_within(&self, timeout: Duration) -> ! {
        panic!("nothing came within {timeout:?}; the last event id is {:?}", self.last_event_id())
    }
}

/// A connection that is open and not read.
pub struct Held(Stream);

impl Held {
    pub fn resume(self) -> Stream {
        self.0
    }
}
