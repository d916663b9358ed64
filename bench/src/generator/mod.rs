//! The load generator: one thread with one epoll serves all streams and callers.
//! It runs on the same machine as the measured hub, so a delivery costs it only one read, one scan and one histogram
//! entry. `stream` and `caller` are its two kinds of connections, `request` builds the requests of callers, `load` runs
//! a load, `tally` counts. A subject is what a stream follows and a request is about: a room, a person or an event.

mod caller;
mod load;
mod request;
mod stream;
mod tally;
#[cfg(test)]
mod tests;

pub(crate) use load::{CommittedRows, Load, Outcome, Pace};
pub(crate) use request::Request;

use crate::Result;
use crate::clock::Clock;
use caller::{Answer, Caller};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::Duration;
use stream::{Progress, Stream};
use tally::Tally;

/// The number of the first room; all room numbers have six digits.
pub(crate) const FIRST_ROOM: u32 = 100_000;
/// The number of the first person who is notified; all of these numbers have six digits.
pub(crate) const FIRST_PERSON: u32 = 100_000;

const READ_BUFFER_SIZE: usize = 64 * 1024;
const EVENTS_PER_WAIT: usize = 1_024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of requested streams without an answer, smaller than the backlog of any listener.
const MAX_OPENING: usize = 64;
const OPEN_TIMEOUT: Duration = Duration::from_secs(120);
/// This bit of an epoll event's data is set for a caller and not for a stream.
const CALLER_BIT: u64 = 1 << 63;

/// The measured server: its address, and credentials that it accepts.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) tokens: Rc<[String]>,
    pub(crate) internal_key: &'static str,
}

/// Which streams are opened, and how they are distributed over subjects.
#[derive(Clone, Copy)]
pub(crate) enum StreamKind {
    /// Room streams (SSE), distributed evenly over this number of rooms.
    Rooms(u32),
    /// WebSockets, distributed evenly over this number of rooms.
    Sockets(u32),
    /// Personal streams, one per token in turn.
    People,
    /// Streams of outbox events, distributed evenly over this number of events.
    Events(u32),
}

pub(crate) struct Generator {
    target: Target,
    clock: Clock,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    buffer: Box<[u8]>,
    streams: Vec<Stream>,
    opening: usize,
    callers: Vec<Caller>,
    /// Callers without an outstanding request.
    idle: Vec<usize>,
    tally: Tally,
    read_delay: Duration,
}

impl Generator {
    pub(crate) fn new(target: Target) -> Result<Self> {
        Ok(Self {
            target,
            clock: Clock::start(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(EVENTS_PER_WAIT),
            buffer: vec![0; READ_BUFFER_SIZE].into_boxed_slice(),
            streams: Vec::new(),
            opening: 0,
            callers: Vec::new(),
            idle: Vec::new(),
            tally: Tally::new(),
            read_delay: Duration::ZERO,
        })
    }

    /// Opens `count` more streams, and returns when all of them are answered.
    pub(crate) fn open_streams(&mut self, count: usize, kind: StreamKind) -> Result<()> {
        let deadline = self.deadline(OPEN_TIMEOUT);
        for number in 0..count {
            while self.opening >= MAX_OPENING {
                self.wait_for_heads(deadline)?;
            }
            let (subject, person, path) = kind.stream(number);
            let token = &self.target.tokens[person % self.target.tokens.len()];
            let socket = connect(self.target.address)?;
            let room = matches!(kind, StreamKind::Sockets(_)).then_some(FIRST_ROOM + subject);
            let mut stream = Stream::open(socket, self.target.address, &path, subject, token, room)?;
            stream.cursor.has_ordered_ids = !matches!(kind, StreamKind::Events(_));
            epoll::add(&self.epoll, &stream.socket, epoll_data(self.streams.len(), 0), epoll_flags())?;
            self.streams.push(stream);
            self.opening += 1;
        }
        while self.opening > 0 {
            self.wait_for_heads(deadline)?;
        }
        Ok(())
    }

    /// Combines each `size` consecutive subjects of the streams to one, for requests that are about `size` subjects.
    pub(crate) fn group_subjects(&mut self, size: u32) {
        self.streams.iter_mut().for_each(|stream| stream.cursor.subject /= size);
    }

    pub(crate) fn close_streams(&mut self) {
        self.streams.clear();
        self.opening = 0;
    }

    pub(crate) fn open_callers(&mut self, count: usize, request: Request) -> Result<()> {
        let target = self.target.clone();
        self.open_callers_at(&target, count, request)
    }

    /// As [`Generator::open_callers`], at another server than that of the streams.
    pub(crate) fn open_callers_at(&mut self, target: &Target, count: usize, request: Request) -> Result<()> {
        for _ in 0..count {
            let caller = Caller::new(connect(target.address)?, request, target)?;
            let number = self.callers.len();
            epoll::add(&self.epoll, &caller.socket, epoll_data(number, CALLER_BIT), epoll_flags())?;
            self.callers.push(caller);
            self.idle.push(number);
        }
        Ok(())
    }

    pub(crate) fn close_callers(&mut self) {
        self.callers.clear();
        self.idle.clear();
    }

    /// Waits for `time` before each read, so that several deliveries arrive during the pause. Otherwise the hub would
    /// wake the generator for each delivery, and a measurement of the hub's CPU time would include that.
    pub(crate) fn set_read_delay(&mut self, time: Duration) {
        self.read_delay = time;
    }

    /// The clock of the stamps that this generator writes and reads.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Reads for `time`, so that presence events and keepalives do not stay in the socket buffers.
    pub(crate) fn read_for(&mut self, time: Duration) -> Result<()> {
        let deadline = self.deadline(time);
        loop {
            let left = deadline.saturating_sub(self.clock.now_ns());
            if left == 0 {
                return Ok(());
            }
            self.poll(Duration::from_nanos(left))?;
        }
    }

    pub(crate) fn streams_closed_by_server(&self) -> usize {
        self.streams.iter().filter(|stream| stream.is_closed()).count()
    }

    fn deadline(&self, after: Duration) -> u64 {
        self.clock.now_ns() + u64::try_from(after.as_nanos()).unwrap_or(u64::MAX / 2)
    }

    fn wait_for_heads(&mut self, deadline: u64) -> Result<()> {
        if self.clock.now_ns() > deadline {
            return Err(format!("{} streams were not answered in time", self.opening).into());
        }
        self.poll(Duration::from_millis(100))
    }

    /// Waits up to `timeout` until connections are readable, and reads from them.
    fn poll(&mut self, timeout: Duration) -> Result<()> {
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        let Self { epoll, events, buffer, streams, callers, idle, tally, opening, clock, read_delay, .. } =
            self;
        if !read_delay.is_zero() {
            std::thread::sleep(*read_delay);
        }
        events.clear();
        match epoll::wait(&*epoll, spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.iter() {
            let token = event.data.u64();
            let number = (token & !CALLER_BIT) as usize;
            if token & CALLER_BIT != 0 {
                let caller = &mut callers[number];
                match caller.on_readable(buffer)? {
                    Answer::Done => tally.record_answer(caller.subject, clock.now_ns() - caller.sent_ns),
                    Answer::Refused => tally.refused += 1,
                    Answer::Incomplete => continue,
                }
                idle.push(number);
            } else if let Progress::Opened = streams[number].on_readable(buffer, *clock, tally)? {
                *opening -= 1;
            }
        }
        Ok(())
    }
}

impl StreamKind {
    /// The subject, the index of the person's token and the path of a stream.
    fn stream(self, number: usize) -> (u32, usize, String) {
        match self {
            Self::Sockets(rooms) => {
                let (room, person, _) = Self::Rooms(rooms).stream(number);
                (room, person, "/api/v1/ws".to_owned())
            }
            Self::Rooms(rooms) => {
                let room = (number % rooms as usize) as u32;
                // Consecutive streams of a room belong to different persons.
                let person = number / rooms as usize + room as usize;
                (room, person, format!("/api/v1/rooms/{}/stream", FIRST_ROOM + room))
            }
            Self::People => (number as u32, number, "/api/notifications/stream".to_owned()),
            Self::Events(events) => {
                let event = (number % events as usize) as u32;
                (event, number, format!("/events/{}/stream", FIRST_ROOM + event))
            }
        }
    }
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let socket = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)
        .map_err(|error| format!("connecting to {address}: {error}"))?;
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

fn epoll_data(number: usize, kind: u64) -> epoll::EventData {
    epoll::EventData::new_u64(number as u64 | kind)
}

/// Edge-triggered, because epoll would check a level-triggered socket a second time after each read.
fn epoll_flags() -> epoll::EventFlags {
    epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET
}
