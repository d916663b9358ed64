//! The load generator: one thread, one epoll, streams and callers in the same loop.
//! It shares the machine with what it measures, so a delivery costs it one read, one scan and one histogram entry.
//! `stream` and `caller` are its two kinds of connection, `request` is what callers send, `load` what happens to them,
//! `tally` what is counted. What streams follow and requests are about is a subject: a room or a person.

mod caller;
mod load;
mod request;
mod stream;
mod tally;
#[cfg(test)]
mod tests;

pub(crate) use load::{Load, Outcome, Pace, Written};
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

/// Rooms are numbered from here, so that each number has the same count of digits.
pub(crate) const FIRST_ROOM: u32 = 100_000;
/// And so are the people who are told of something.
pub(crate) const FIRST_PERSON: u32 = 100_000;

const READ_BUFFER: usize = 64 * 1024;
const EVENTS_PER_WAIT: usize = 1_024;
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Streams that are asked for and not yet answered: below any listener's backlog.
const OPENING_AT_ONCE: usize = 64;
const OPENING_LIMIT: Duration = Duration::from_secs(120);
/// Set in an event's data when it belongs to a caller, not a stream.
const CALLER_BIT: u64 = 1 << 63;

/// What is loaded: an address, and the credentials it takes.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) tokens: Rc<[String]>,
    pub(crate) internal_key: &'static str,
}

/// What streams follow.
#[derive(Clone, Copy)]
pub(crate) enum Follow {
    /// So many rooms, evenly.
    Rooms(u32),
    /// The same over WebSockets.
    Sockets(u32),
    /// Each the person whose token is next.
    People,
    /// So many events of an outbox, evenly.
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
    gather: Duration,
}

impl Generator {
    pub(crate) fn new(target: Target) -> Result<Self> {
        Ok(Self {
            target,
            clock: Clock::start(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(EVENTS_PER_WAIT),
            buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            streams: Vec::new(),
            opening: 0,
            callers: Vec::new(),
            idle: Vec::new(),
            tally: Tally::new(),
            gather: Duration::ZERO,
        })
    }

    /// Opens `count` more streams, and returns when all are answered.
    pub(crate) fn open_streams(&mut self, count: usize, follow: Follow) -> Result<()> {
        let deadline = self.deadline(OPENING_LIMIT);
        for number in 0..count {
            while self.opening >= OPENING_AT_ONCE {
                self.await_heads(deadline)?;
            }
            let (subject, person, path) = follow.stream(number);
            let token = &self.target.tokens[person % self.target.tokens.len()];
            let socket = connect(self.target.address)?;
            let room = matches!(follow, Follow::Sockets(_)).then_some(FIRST_ROOM + subject);
            let mut stream = Stream::open(socket, self.target.address, &path, subject, token, room)?;
            stream.cursor.by_id = !matches!(follow, Follow::Events(_));
            epoll::add(&self.epoll, &stream.socket, token_of(self.streams.len(), 0), interest())?;
            self.streams.push(stream);
            self.opening += 1;
        }
        while self.opening > 0 {
            self.await_heads(deadline)?;
        }
        Ok(())
    }

    /// Requests will be about so many neighbouring subjects each: a group of them is one subject from now on.
    pub(crate) fn group_subjects(&mut self, each: u32) {
        self.streams.iter_mut().for_each(|stream| stream.cursor.subject /= each);
    }

    pub(crate) fn close_streams(&mut self) {
        self.streams.clear();
        self.opening = 0;
    }

    pub(crate) fn open_callers(&mut self, count: usize, request: Request) -> Result<()> {
        let target = self.target.clone();
        self.open_callers_at(&target, count, request)
    }

    /// At another server than that of the streams.
    pub(crate) fn open_callers_at(&mut self, target: &Target, count: usize, request: Request) -> Result<()> {
        for _ in 0..count {
            let caller = Caller::new(connect(target.address)?, request, target)?;
            let number = self.callers.len();
            epoll::add(&self.epoll, &caller.socket, token_of(number, CALLER_BIT), interest())?;
            self.callers.push(caller);
            self.idle.push(number);
        }
        Ok(())
    }

    pub(crate) fn close_callers(&mut self) {
        self.callers.clear();
        self.idle.clear();
    }

    /// Lets arrivals gather for so long before each look at them. A reader that sleeps for each delivery makes the
    /// writer pay for waking it each time; where CPU is measured and not latency, that is a cost of the generator.
    pub(crate) fn gather_for(&mut self, time: Duration) {
        self.gather = time;
    }

    /// The clock of the stamps that this one reads.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Reads whatever arrives for `time`: presence and heartbeats are not left in socket buffers.
    pub(crate) fn stay_idle(&mut self, time: Duration) -> Result<()> {
        let deadline = self.deadline(time);
        loop {
            let left = deadline.saturating_sub(self.clock.now_ns());
            if left == 0 {
                return Ok(());
            }
            self.pump(Duration::from_nanos(left))?;
        }
    }

    pub(crate) fn streams_closed_by_server(&self) -> usize {
        self.streams.iter().filter(|stream| stream.is_closed()).count()
    }

    fn deadline(&self, after: Duration) -> u64 {
        self.clock.now_ns() + u64::try_from(after.as_nanos()).unwrap_or(u64::MAX / 2)
    }

    fn await_heads(&mut self, deadline: u64) -> Result<()> {
        if self.clock.now_ns() > deadline {
            return Err(format!("{} streams were not answered in time", self.opening).into());
        }
        self.pump(Duration::from_millis(100))
    }

    /// Waits at most `timeout` for connections to become readable, and reads them.
    fn pump(&mut self, timeout: Duration) -> Result<()> {
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        let Self { epoll, events, buffer, streams, callers, idle, tally, opening, clock, gather, .. } = self;
        if !gather.is_zero() {
            std::thread::sleep(*gather);
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
                    Answer::Done => tally.note_done(caller.subject, clock.now_ns() - caller.sent_ns),
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

impl Follow {
    /// What the stream of this number follows, whose it is, and where it is found.
    fn stream(self, number: usize) -> (u32, usize, String) {
        match self {
            Self::Sockets(rooms) => {
                let (room, person, _) = Self::Rooms(rooms).stream(number);
                (room, person, "/api/v1/ws".to_owned())
            }
            Self::Rooms(rooms) => {
                let room = (number % rooms as usize) as u32;
                // Neighbours in a room belong to different people.
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
    let socket = TcpStream::connect_timeout(&address, CONNECT_LIMIT)
        .map_err(|error| format!("connecting to {address}: {error}"))?;
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

fn token_of(number: usize, kind: u64) -> epoll::EventData {
    epoll::EventData::new_u64(number as u64 | kind)
}

/// Edge-triggered: a level-triggered socket is put back on the ready list and looked at twice for each read.
fn interest() -> epoll::EventFlags {
    epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET
}
