//! Bounds the cost of unfinished requests: how many one person has in flight, and how many bytes of responses wait for
//! slow clients, over all connections.
//!
//! A response is tracked until the kernel has accepted its last byte. While too many bytes wait, the response that has
//! made no progress for the longest time is aborted, so that clients that read are served. A response without progress
//! for `HTTP_STALL_SECS` is aborted in any case. Event streams and WebSockets are not tracked here: `live` bounds them.

mod tracked;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::Response;
use bongsu_kernel::settings::{Scope, Values};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Id, lock};
use http_body::Body as _;
use metrics::{Counter, Gauge};

use crate::answer::ApiError;
use crate::detached_body::DetachedBody;
use crate::server::ConnectionControl;
use tracked::TrackedBody;

bongsu_kernel::settings! { "server":
    pub(crate) HTTP_MAX_REQUESTS_PER_USER = "64", scope(Scope::Instance), integer(0, 1_000_000):
        "Requests of one person that this process handles, or whose responses wait for the client, at the same time; further ones are refused (429). Open streams do not count. 0: no limit.";
    pub(crate) HTTP_WAITING_BYTES = "67108864", scope(Scope::Instance), integer(65_536, u64::MAX):
        "Bytes of responses in memory that wait for slow clients, over all connections. Above this limit, the response that has waited longest for its client is cut off.";
    pub(crate) HTTP_STALL_SECS = "30", scope(Scope::Instance), integer(1, 3_600):
        "Seconds after which a response is cut off if the client reads nothing of it.";
}

/// Responses of at most this many bytes are not tracked on HTTP/1.1: they cost no more memory than their
/// connection, and most responses are that small.
const MAX_UNTRACKED_SIZE: u64 = 1 << 10;

/// Time between two checks for responses without progress, and from aborting a response to closing its connection.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The limits for unfinished requests.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Maximum number of requests in flight of one person; 0: no limit.
    pub per_person: usize,
    pub waiting_bytes: usize,
    pub stall: Duration,
}

impl Options {
    pub fn from_settings(values: &Values) -> Self {
        Self {
            per_person: values.size(&HTTP_MAX_REQUESTS_PER_USER),
            waiting_bytes: values.size(&HTTP_WAITING_BYTES),
            stall: values.seconds(&HTTP_STALL_SECS),
        }
    }
}

/// The requests in flight of this process. Cheap to clone.
#[derive(Clone)]
pub struct InFlightRequests(Arc<Inner>);

struct Inner {
    options: Options,
    requests_per_person: Mutex<HashMap<Id, usize>>,
    responses: Mutex<Responses>,
    waiting: Gauge,
    stalled: Counter,
    evicted: Counter,
}

/// The responses whose last byte the kernel has not accepted yet.
#[derive(Default)]
struct Responses {
    open: HashMap<u64, OpenResponse>,
    next_id: u64,
    /// Bytes of the responses that were not aborted.
    waiting_bytes: usize,
}

struct OpenResponse {
    /// None if the request came over no socket, as in tests.
    peer: Option<ConnectionControl>,
    bytes: usize,
    /// Whether the connection has taken all bytes produced so far, and the handler is still producing the next ones.
    /// Then no byte waits for the client.
    is_waiting_for_producer: bool,
    progress_at: Instant,
    aborted_at: Option<Instant>,
}

impl InFlightRequests {
    /// Starts the loop that aborts responses without progress.
    pub fn start(options: Options, supervisor: &Supervisor) -> Self {
        let counter = |reason| metrics::counter!("http_responses_cut_total", "reason" => reason);
        let this = Self(Arc::new(Inner {
            options,
            requests_per_person: Mutex::default(),
            responses: Mutex::default(),
            waiting: metrics::gauge!("http_response_bytes_waiting"),
            stalled: counter("stalled"),
            evicted: counter("memory"),
        }));
        let check = |this: Self| async move { this.check_stalled() };
        supervisor.every("response-stalls", CHECK_INTERVAL, &this, check);
        this
    }

    /// Bytes of responses that wait for their clients.
    pub fn waiting_bytes(&self) -> usize {
        lock(&self.0.responses).waiting_bytes
    }

    /// The slot of a request that has just arrived. Its person is assigned when its credentials have been checked.
    pub(crate) fn begin(&self) -> RequestSlot {
        RequestSlot { in_flight: self.clone(), person: Arc::default() }
    }

    /// Adds bytes to a response, and aborts other responses while too many bytes wait.
    fn reserve(&self, id: u64, bytes: usize) {
        let mut aborted = Vec::new();
        let mut responses = lock(&self.0.responses);
        responses.add(id, bytes);
        while responses.waiting_bytes > self.0.options.waiting_bytes {
            let Some(peer) = responses.abort_longest_waiting(id) else { break };
            aborted.extend(peer);
            self.0.evicted.increment(1);
        }
        self.0.waiting.set(responses.waiting_bytes as f64);
        drop(responses);
        for peer in aborted {
            peer.abort_request();
        }
    }

    /// Begins to track a response, and returns its number.
    fn open(&self, peer: Option<ConnectionControl>) -> u64 {
        let mut responses = lock(&self.0.responses);
        let id = responses.next_id;
        responses.next_id += 1;
        let (progress_at, aborted_at) = (Instant::now(), None);
        let response =
            OpenResponse { peer, bytes: 0, is_waiting_for_producer: false, progress_at, aborted_at };
        responses.open.insert(id, response);
        id
    }

    fn close(&self, id: u64) {
        lock(&self.0.responses).open.remove(&id);
    }

    /// Records that the connection has asked for the next bytes of a response.
    fn record_progress(&self, id: u64, is_waiting_for_producer: bool) {
        if let Some(response) = lock(&self.0.responses).open.get_mut(&id) {
            response.progress_at = Instant::now();
            response.is_waiting_for_producer = is_waiting_for_producer;
        }
    }

    fn release(&self, id: u64, bytes: usize) {
        let mut responses = lock(&self.0.responses);
        responses.remove(id, bytes);
        self.0.waiting.set(responses.waiting_bytes as f64);
    }

    /// Aborts responses without progress. Aborting a request of an HTTP/2 connection frees the bytes that the
    /// connection has not taken. Bytes that the connection holds because the client's window is closed are freed only
    /// when the connection is closed, which is done at the next check.
    fn check_stalled(&self) {
        let (now, mut aborted, mut to_close) = (Instant::now(), Vec::new(), Vec::new());
        let mut responses = lock(&self.0.responses);
        let Responses { open, waiting_bytes, .. } = &mut *responses;
        for response in open.values_mut() {
            match response.aborted_at {
                Some(aborted_at) if now.duration_since(aborted_at) >= CHECK_INTERVAL => {
                    to_close.extend(response.peer.clone());
                }
                None if response.waits_for_client()
                    && now.duration_since(response.progress_at) >= self.0.options.stall =>
                {
                    aborted.extend(response.abort(now, waiting_bytes));
                    self.0.stalled.increment(1);
                }
                _ => {}
            }
        }
        self.0.waiting.set(*waiting_bytes as f64);
        drop(responses);
        for peer in aborted {
            peer.abort_request();
        }
        for peer in to_close {
            peer.close_connection();
        }
    }
}

impl Responses {
    fn add(&mut self, id: u64, bytes: usize) {
        if let Some(response) = self.open.get_mut(&id) {
            response.bytes += bytes;
            if response.aborted_at.is_none() {
                self.waiting_bytes += bytes;
            }
        }
    }

    fn remove(&mut self, id: u64, bytes: usize) {
        if let Some(response) = self.open.get_mut(&id) {
            response.bytes -= bytes;
            response.progress_at = Instant::now();
            if response.aborted_at.is_none() {
                self.waiting_bytes -= bytes;
            }
        }
    }

    /// Aborts the response that has made no progress for the longest time. None if no response but `except`
    /// has bytes that wait.
    fn abort_longest_waiting(&mut self, except: u64) -> Option<Option<ConnectionControl>> {
        let others = self
            .open
            .iter_mut()
            .filter(|(id, response)| **id != except && response.bytes > 0 && response.aborted_at.is_none());
        let (_, response) = others.min_by_key(|(_, response)| response.progress_at)?;
        Some(response.abort(Instant::now(), &mut self.waiting_bytes))
    }
}

impl OpenResponse {
    /// Whether the response waits for its client, and not for its handler.
    fn waits_for_client(&self) -> bool {
        self.bytes > 0 || !self.is_waiting_for_producer
    }

    fn abort(&mut self, now: Instant, waiting_bytes: &mut usize) -> Option<ConnectionControl> {
        self.aborted_at = Some(now);
        *waiting_bytes -= self.bytes;
        self.peer.clone()
    }
}

/// A request that is in flight; an extension of the request until its response is tracked.
#[derive(Clone)]
pub(crate) struct RequestSlot {
    in_flight: InFlightRequests,
    person: Arc<Mutex<Option<CountedRequest>>>,
}

impl RequestSlot {
    /// Counts the request as one of this person's; an error if the person has too many in flight.
    pub(crate) fn assign(&self, person: &Id) -> Result<(), ApiError> {
        let mut counted = lock(&self.person);
        if counted.is_none() {
            *counted = Some(self.in_flight.count(person).ok_or_else(|| {
                ApiError::too_many(
                    "처리 중인 요청이 너무 많습니다. 앞선 요청이 끝난 뒤 다시 시도해 주세요.",
                    "You have too many requests in flight; retry when some of them have completed.",
                )
            })?);
        }
        Ok(())
    }

    /// Returns the response with a body that is tracked until its last byte was sent. A small or detached response is
    /// returned unchanged.
    pub(crate) fn track(self, response: Response, peer: Option<ConnectionControl>) -> Response {
        let untracked = if peer.as_ref().is_none_or(ConnectionControl::has_own_connection) {
            MAX_UNTRACKED_SIZE
        } else {
            0
        };
        let size = response.body().size_hint();
        if DetachedBody::is_in(&response) || size.upper().is_some_and(|bytes| bytes <= untracked) {
            return response;
        }
        let person = lock(&self.person).take();
        response.map(|body| Body::new(TrackedBody::new(body, self.in_flight, person, peer)))
    }
}

/// Counts one request of a person until the value is dropped.
struct CountedRequest {
    in_flight: InFlightRequests,
    person: Id,
}

impl InFlightRequests {
    fn count(&self, person: &Id) -> Option<CountedRequest> {
        let mut counts = lock(&self.0.requests_per_person);
        let max = self.0.options.per_person;
        let counted = counts.get(person).copied().unwrap_or(0);
        if max > 0 && counted >= max {
            return None;
        }
        counts.insert(person.clone(), counted + 1);
        Some(CountedRequest { in_flight: self.clone(), person: person.clone() })
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        let mut counts = lock(&self.in_flight.0.requests_per_person);
        match counts.get_mut(&self.person) {
            Some(counted) if *counted > 1 => *counted -= 1,
            _ => drop(counts.remove(&self.person)),
        }
    }
}
