//! The reference: what delivery costs when nothing is done but to write each frame to each socket.
//! One thread, one epoll, one write(2) per stream and event, no log and no rights. It speaks just enough of the hub's
//! HTTP that the same generator loads both: `GET /api/v1/rooms/{n}/stream` and a POST whose body names room and send time.

mod connection;
mod frame;

use crate::Result;
use crate::args::BareLoopOptions;
use crate::process::raise_descriptor_limit;
use connection::{Connection, Request, Written};
use frame::FrameTemplate;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

const LISTENER: u64 = u64::MAX;
const EVENTS_PER_WAIT: usize = 1_024;
const READ_BUFFER: usize = 16 * 1024;
const STREAM_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

struct BareLoop {
    listener: TcpListener,
    epoll: OwnedFd,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// Streams of a room, as places in `connections`.
    rooms: HashMap<u32, Vec<usize>>,
    frame: FrameTemplate,
    /// Streams that could not take a whole frame.
    blocked: usize,
    /// Publishers that are answered when nobody is blocked: this bounds what waits in memory.
    unanswered: Vec<usize>,
}

pub(crate) fn serve(options: &BareLoopOptions) -> Result<()> {
    raise_descriptor_limit();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))?;
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
    let mut this = BareLoop {
        listener,
        epoll,
        connections: Vec::new(),
        free: Vec::new(),
        rooms: HashMap::new(),
        frame: FrameTemplate::new(options.frame_bytes)?,
        blocked: 0,
        unanswered: Vec::new(),
    };
    this.run(Instant::now() + Duration::from_secs(options.max_secs))
}

impl BareLoop {
    fn run(&mut self, until: Instant) -> Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_PER_WAIT);
        let mut buffer = vec![0; READ_BUFFER];
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        while Instant::now() < until {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&second)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let (token, flags) = (event.data.u64(), event.flags);
                if token == LISTENER {
                    self.accept_all()?;
                    continue;
                }
                let place = token as usize;
                if flags.contains(epoll::EventFlags::OUT) {
                    self.flush(place)?;
                }
                if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::HUP)
                {
                    self.read(place, &mut buffer)?;
                }
            }
        }
        Ok(())
    }

    fn accept_all(&mut self) -> Result<()> {
        loop {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            socket.set_nonblocking(true)?;
            socket.set_nodelay(true)?;
            let place = self.free.pop().unwrap_or(self.connections.len());
            let token = epoll::EventData::new_u64(place as u64);
            epoll::add(&self.epoll, &socket, token, epoll::EventFlags::IN | epoll::EventFlags::RDHUP)?;
            if place == self.connections.len() {
                self.connections.push(None);
            }
            self.connections[place] = Some(Connection::new(socket));
        }
    }

    fn read(&mut self, place: usize, buffer: &mut [u8]) -> Result<()> {
        let Some(connection) = &mut self.connections[place] else { return Ok(()) };
        if !connection.read(buffer) {
            return self.remove(place);
        }
        while let Some(request) = self.connections[place].as_mut().and_then(Connection::next_request) {
            match request {
                Request::Stream { room } => {
                    self.rooms.entry(room).or_default().push(place);
                    self.write(place, STREAM_HEAD)?;
                    if let Some(connection) = &mut self.connections[place] {
                        connection.room = Some(room);
                    }
                }
                Request::Publish { room, stamp } => {
                    self.broadcast(room, &stamp)?;
                    self.unanswered.push(place);
                    self.answer_when_unblocked()?;
                }
                Request::Other => self.write(place, ANSWER)?,
            }
        }
        Ok(())
    }

    fn broadcast(&mut self, room: u32, stamp: &[u8]) -> Result<()> {
        let Self { rooms, connections, frame, epoll, blocked, .. } = self;
        let bytes = frame.next(stamp);
        for &place in rooms.get(&room).into_iter().flatten() {
            let Some(connection) = &mut connections[place] else { continue };
            if let Written::NowBlocked = connection.write(bytes) {
                *blocked += 1;
                watch_for_room(epoll, place, connection, true)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, place: usize, bytes: &[u8]) -> Result<()> {
        let Some(connection) = &mut self.connections[place] else { return Ok(()) };
        if let Written::NowBlocked = connection.write(bytes) {
            self.blocked += 1;
            watch_for_room(&self.epoll, place, connection, true)?;
        }
        Ok(())
    }

    fn flush(&mut self, place: usize) -> Result<()> {
        let Some(connection) = &mut self.connections[place] else { return Ok(()) };
        if connection.is_blocked() && connection.flush() {
            self.blocked -= 1;
            watch_for_room(&self.epoll, place, connection, false)?;
            self.answer_when_unblocked()?;
        }
        Ok(())
    }

    fn answer_when_unblocked(&mut self) -> Result<()> {
        while self.blocked == 0 {
            let Some(place) = self.unanswered.pop() else { break };
            self.write(place, ANSWER)?;
        }
        Ok(())
    }

    fn remove(&mut self, place: usize) -> Result<()> {
        let Some(connection) = self.connections[place].take() else { return Ok(()) };
        if let Some(streams) = connection.room.and_then(|room| self.rooms.get_mut(&room))
            && let Some(at) = streams.iter().position(|stream| *stream == place)
        {
            streams.swap_remove(at);
        }
        self.unanswered.retain(|publisher| *publisher != place);
        self.free.push(place);
        if connection.is_blocked() {
            self.blocked -= 1;
            self.answer_when_unblocked()?;
        }
        Ok(())
    }
}

fn watch_for_room(epoll: &OwnedFd, place: usize, connection: &Connection, watch: bool) -> Result<()> {
    let mut flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
    flags.set(epoll::EventFlags::OUT, watch);
    Ok(epoll::modify(epoll, &connection.socket, epoll::EventData::new_u64(place as u64), flags)?)
}
