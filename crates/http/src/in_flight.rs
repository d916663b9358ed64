//! Bounds what unfinished requests cost: how many one person has in flight, and how many bytes of responses wait for
//! clients that do not read, over all connections.
//!
//! A response is tracked until the kernel has taken its last byte. While too many bytes wait, the response that has
//! made no progress for the longest time is cut off, so that those who read are served; a response without progress for
//! `HTTP_STALL_SECS` is cut off in any case. Event streams and WebSockets are not tracked here: `live` bounds them.

mod tracked;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::Response;
use bongsu_kernel::Id;
use bongsu_kernel::settings::{Scope, Values};
use bongsu_kernel::task::Supervisor;
use http_body::Body as _;
use metrics::{Counter, Gauge};

use crate::answer::ApiError;
use crate::carried::Carried;
use crate::server::Peer;
use tracked::TrackedBody;

bongsu_kernel::settings! { "server":
    pub(crate) HTTP_MAX_REQUESTS_PER_USER = "64", scope(Scope::Instance), whole(0, 1_000_000):
        "Requests of one person that this process works on or whose responses wait for the client; the next one is refused (429). Open streams do not count. 0: no limit.";
    pub(crate) HTTP_WAITING_BYTES = "67108864", scope(Scope::Instance), whole(65_536, u64::MAX):
        "Bytes of responses in memory that wait for slow clients, over all connections. Past it, the response that has waited longest for its client is cut off.";
    pub(crate) HTTP_STALL_SECS = "30", scope(Scope::Instance), whole(1, 3_600):
        "A response of which the client takes nothing for so long is cut off.";
}

/// A response of this size costs no more than the HTTP/1.1 connection that it has to itself, and most are that small.
const UNTRACKED_BYTES: u64 = 1 << 10;

/// Time between two checks for responses without progress, and from cutting off a response to closing its connection.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Requests in flight of one person; 0: no limit.
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
pub struct InFlight(Arc<Inner>);

struct Inner {
    options: Options,
    people: Mutex<HashMap<Id, usize>>,
    responses: Mutex<Responses>,
    waiting: Gauge,
    stalled: Counter,
    evicted: Counter,
}

/// The responses whose last byte the kernel has not taken yet.
#[derive(Default)]
struct Responses {
    open: HashMap<u64, OpenResponse>,
    next_id: u64,
    /// Bytes of those that were not cut off.
    waiting_bytes: usize,
}

struct OpenResponse {
    /// None where a request came over no socket, as in tests.
    peer: Option<Peer>,
    bytes: usize,
    /// Whether the connection has all there is, and what comes next is still being read: nothing waits for the client then.
    is_read_on: bool,
    progress_at: Instant,
    cut_at: Option<Instant>,
}

impl InFlight {
    /// Starts the loop that cuts off responses without progress.
    pub fn start(options: Options, supervisor: &Supervisor) -> Self {
        let cut = |reason| metrics::counter!("http_responses_cut_total", "reason" => reason);
        let this = Self(Arc::new(Inner {
            options,
            people: Mutex::default(),
            responses: Mutex::default(),
            waiting: metrics::gauge!("http_response_bytes_waiting"),
            stalled: cut("stalled"),
            evicted: cut("memory"),
        }));
        supervisor.every(
            "response-stalls",
            CHECK_INTERVAL,
            &this,
            |this| async move { this.check_stalled() },
        );
        this
    }

    /// Bytes of responses that wait for their clients.
    pub fn waiting_bytes(&self) -> usize {
        self.responses().waiting_bytes
    }

    /// A place for a request that has just arrived: whose it is comes out when its credentials are read.
    pub(crate) fn begin(&self) -> RequestSlot {
        RequestSlot { in_flight: self.clone(), person: Arc::default() }
    }

    fn responses(&self) -> MutexGuard<'_, Responses> {
        self.0.responses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts bytes of a response, and cuts off others while too many wait.
    fn reserve(&self, id: u64, bytes: usize) {
        let mut cut = Vec::new();
        let mut responses = self.responses();
        responses.add(id, bytes);
        while responses.waiting_bytes > self.0.options.waiting_bytes {
            let Some(peer) = responses.cut_longest_waiting(id) else { break };
            cut.extend(peer);
            self.0.evicted.increment(1);
        }
        self.0.waiting.set(responses.waiting_bytes as f64);
        drop(responses);
        for peer in cut {
            peer.cut();
        }
    }

    /// Begins to track a response, and gives its number.
    fn open(&self, peer: Option<Peer>) -> u64 {
        let mut responses = self.responses();
        let id = responses.next_id;
        responses.next_id += 1;
        responses.open.insert(
            id,
            OpenResponse { peer, bytes: 0, is_read_on: false, progress_at: Instant::now(), cut_at: None },
        );
        id
    }

    fn close(&self, id: u64) {
        self.responses().open.remove(&id);
    }

    /// The connection has come for more.
    fn note_progress(&self, id: u64, is_read_on: bool) {
        if let Some(response) = self.responses().open.get_mut(&id) {
            response.progress_at = Instant::now();
            response.is_read_on = is_read_on;
        }
    }

    fn release(&self, id: u64, bytes: usize) {
        let mut responses = self.responses();
        responses.remove(id, bytes);
        self.0.waiting.set(responses.waiting_bytes as f64);
    }

    /// Cuts off responses without progress. Cutting off a request of an HTTP/2 connection frees what the connection has
    /// not taken; where the peer's window has closed over the last piece, only the end of the connection frees that.
    fn check_stalled(&self) {
        let (now, mut cut, mut close) = (Instant::now(), Vec::new(), Vec::new());
        let mut responses = self.responses();
        let Responses { open, waiting_bytes, .. } = &mut *responses;
        for response in open.values_mut() {
            match response.cut_at {
                Some(cut_at) if now.duration_since(cut_at) >= CHECK_INTERVAL => {
                    close.extend(response.peer.clone());
                }
                None if response.waits_for_client()
                    && now.duration_since(response.progress_at) >= self.0.options.stall =>
                {
                    cut.extend(response.cut(now, waiting_bytes));
                    self.0.stalled.increment(1);
                }
                _ => {}
            }
        }
        self.0.waiting.set(*waiting_bytes as f64);
        drop(responses);
        for peer in cut {
            peer.cut();
        }
        for peer in close {
            peer.close();
        }
    }
}

impl Responses {
    fn add(&mut self, id: u64, bytes: usize) {
        if let Some(response) = self.open.get_mut(&id) {
            response.bytes += bytes;
            if response.cut_at.is_none() {
                self.waiting_bytes += bytes;
            }
        }
    }

    fn remove(&mut self, id: u64, bytes: usize) {
        if let Some(response) = self.open.get_mut(&id) {
            response.bytes -= bytes;
            response.progress_at = Instant::now();
            if response.cut_at.is_none() {
                self.waiting_bytes -= bytes;
            }
        }
    }

    /// None when there is no other response to cut off.
    fn cut_longest_waiting(&mut self, but: u64) -> Option<Option<Peer>> {
        let others = self
            .open
            .iter_mut()
            .filter(|(id, response)| **id != but && response.bytes > 0 && response.cut_at.is_none());
        let (_, response) = others.min_by_key(|(_, response)| response.progress_at)?;
        Some(response.cut(Instant::now(), &mut self.waiting_bytes))
    }
}

impl OpenResponse {
    /// Whether it is the client's turn, and not that of whoever produces the response.
    fn waits_for_client(&self) -> bool {
        self.bytes > 0 || !self.is_read_on
    }

    fn cut(&mut self, now: Instant, waiting_bytes: &mut usize) -> Option<Peer> {
        self.cut_at = Some(now);
        *waiting_bytes -= self.bytes;
        self.peer.clone()
    }
}

/// Travels with a request as an extension, from its arrival until its response is tracked.
#[derive(Clone)]
pub(crate) struct RequestSlot {
    in_flight: InFlight,
    person: Arc<Mutex<Option<CountedRequest>>>,
}

impl RequestSlot {
    /// Counts the request as one of this person's, unless the person has too many in flight.
    pub(crate) fn enter(&self, person: &Id) -> Result<(), ApiError> {
        let mut entered = self.person.lock().unwrap_or_else(PoisonError::into_inner);
        if entered.is_none() {
            *entered = Some(self.in_flight.count(person).ok_or_else(|| {
                ApiError::too_many(
                    "처리 중인 요청이 너무 많습니다. 앞선 요청이 끝난 뒤 다시 시도해 주세요.",
                    "You have too many requests in flight; try again when some of them have ended.",
                )
            })?);
        }
        Ok(())
    }

    /// The response again, tracked until its last byte has left, unless the server carries it on by other means.
    pub(crate) fn track(self, response: Response, peer: Option<Peer>) -> Response {
        let untracked = if peer.as_ref().is_none_or(Peer::is_alone) { UNTRACKED_BYTES } else { 0 };
        let size = response.body().size_hint();
        if Carried::is_in(&response) || size.upper().is_some_and(|bytes| bytes <= untracked) {
            return response;
        }
        let person = self.person.lock().unwrap_or_else(PoisonError::into_inner).take();
        response.map(|body| Body::new(TrackedBody::new(body, self.in_flight, person, peer)))
    }
}

/// One request of a person, until it is dropped.
struct CountedRequest {
    in_flight: InFlight,
    person: Id,
}

impl InFlight {
    fn count(&self, person: &Id) -> Option<CountedRequest> {
        let mut people = self.0.people.lock().unwrap_or_else(PoisonError::into_inner);
        let most = self.0.options.per_person;
        let counted = people.get(person).copied().unwrap_or(0);
        if most > 0 && counted >= most {
            return None;
        }
        people.insert(person.clone(), counted + 1);
        Some(CountedRequest { in_flight: self.clone(), person: person.clone() })
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        let mut people = self.in_flight.0.people.lock().unwrap_or_else(PoisonError::into_inner);
        match people.get_mut(&self.person) {
            Some(counted) if *counted > 1 => *counted -= 1,
            _ => drop(people.remove(&self.person)),
        }
    }
}
