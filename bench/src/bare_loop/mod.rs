//! The reference for CPU time: a server that only writes each published frame to each socket.
//! It has one thread and one epoll, calls write(2) once per stream and event, and has no log and no authorization. It
//! implements the part of the hub's API that the generator uses: `GET /api/v1/rooms/{n}/stream`, and a POST whose body
//! names the room and the send time.

mod connection;
mod frame;

use crate::Result;
use crate::args::BareLoopOptions;
use crate::process::raise_descriptor_limit;
use connection::{Connection, Request, WriteOutcome};
use frame::FrameTemplate;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

/// The epoll data of the listener; connections have their slot.
const LISTENER_TOKEN: u64 = u64::MAX;
const EVENTS_PER_WAIT: usize = 1_024;
const READ_BUFFER_SIZE: usize = 16 * 1024;
const STREAM_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

struct BareLoop {
    listener: TcpListener,
    epoll: OwnedFd,
    /// Connections by slot.
    connections: Vec<Option<Connection>>,
    free_slots: Vec<usize>,
    /// Slots of the streams of each room.
    rooms: HashMap<u32, Vec<usize>>,
    frame: FrameTemplate,
    /// Number of connections with a backlog.
    blocked_count: usize,
    /// Slots of publishers without an answer. They are answered when no connection has a backlog, which limits the
    /// memory for backlogs.
    unanswered: Vec<usize>,
}

pub(crate) fn serve(options: &BareLoopOptions) -> Result<()> {
    raise_descriptor_limit();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))?;
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER_TOKEN), epoll::EventFlags::IN)?;
    let mut this = BareLoop {
        listener,
        epoll,
        connections: Vec::new(),
        free_slots: Vec::new(),
        rooms: HashMap::new(),
        frame: FrameTemplate::new(options.frame_bytes)?,
        blocked_count: 0,
        unanswered: Vec::new(),
    };
    this.run(Instant::now() + Duration::from_secs(options.max_secs))
}

impl BareLoop {
    fn run(&mut self, deadline: Instant) -> Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_PER_WAIT);
        let mut buffer = vec![0; READ_BUFFER_SIZE];
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        while Instant::now() < deadline {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&second)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let (token, flags) = (event.data.u64(), event.flags);
                if token == LISTENER_TOKEN {
                    self.accept_all()?;
                    continue;
                }
                let slot = token as usize;
                if flags.contains(epoll::EventFlags::OUT) {
                    self.flush(slot)?;
                }
                if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::HUP)
                {
                    self.read(slot, &mut buffer)?;
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
            let slot = self.free_slots.pop().unwrap_or(self.connections.len());
            let token = epoll::EventData::new_u64(slot as u64);
            epoll::add(&self.epoll, &socket, token, epoll::EventFlags::IN | epoll::EventFlags::RDHUP)?;
            if slot == self.connections.len() {
                self.connections.push(None);
            }
            self.connections[slot] = Some(Connection::new(socket));
        }
    }

    fn read(&mut self, slot: usize, buffer: &mut [u8]) -> Result<()> {
        let Some(connection) = &mut self.connections[slot] else { return Ok(()) };
        if !connection.read(buffer) {
            return self.remove(slot);
        }
        while let Some(request) = self.connections[slot].as_mut().and_then(Connection::next_request) {
            match request {
                Request::Stream { room } => {
                    self.rooms.entry(room).or_default().push(slot);
                    self.write(slot, STREAM_HEAD)?;
                    if let Some(connection) = &mut self.connections[slot] {
                        connection.room = Some(room);
                    }
                }
                Request::Publish { room, stamp } => {
                    self.broadcast(room, &stamp)?;
                    self.unanswered.push(slot);
                    self.answer_when_unblocked()?;
                }
                Request::Other => self.write(slot, ANSWER)?,
            }
        }
        Ok(())
    }

    fn broadcast(&mut self, room: u32, stamp: &[u8]) -> Result<()> {
        let Self { rooms, connections, frame, epoll, blocked_count, .. } = self;
        let bytes = frame.next(stamp);
        for &slot in rooms.get(&room).into_iter().flatten() {
            let Some(connection) = &mut connections[slot] else { continue };
            if let WriteOutcome::NowBlocked = connection.write(bytes) {
                *blocked_count += 1;
                watch_writable(epoll, slot, connection, true)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, slot: usize, bytes: &[u8]) -> Result<()> {
        let Some(connection) = &mut self.connections[slot] else { return Ok(()) };
        if let WriteOutcome::NowBlocked = connection.write(bytes) {
            self.blocked_count += 1;
            watch_writable(&self.epoll, slot, connection, true)?;
        }
        Ok(())
    }

    fn flush(&mut self, slot: usize) -> Result<()> {
        let Some(connection) = &mut self.connections[slot] else { return Ok(()) };
        if connection.is_blocked() && connection.flush() {
            self.blocked_count -= 1;
            watch_writable(&self.epoll, slot, connection, false)?;
            self.answer_when_unblocked()?;
        }
        Ok(())
    }

    fn answer_when_unblocked(&mut self) -> Result<()> {
        while self.blocked_count == 0 {
            let Some(slot) = self.unanswered.pop() else { break };
            self.write(slot, ANSWER)?;
        }
        Ok(())
    }

    fn remove(&mut self, slot: usize) -> Result<()> {
        let Some(connection) = self.connections[slot].take() else { return Ok(()) };
        if let Some(streams) = connection.room.and_then(|room| self.rooms.get_mut(&room))
            && let Some(index) = streams.iter().position(|stream| *stream == slot)
        {
            streams.swap_remove(index);
        }
        self.unanswered.retain(|publisher| *publisher != slot);
        self.free_slots.push(slot);
        if connection.is_blocked() {
            self.blocked_count -= 1;
            self.answer_when_unblocked()?;
        }
        Ok(())
    }
}

fn watch_writable(epoll: &OwnedFd, slot: usize, connection: &Connection, watch: bool) -> Result<()> {
    let mut flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
    flags.set(epoll::EventFlags::OUT, watch);
    Ok(epoll::modify(epoll, &connection.socket, epoll::EventData::new_u64(slot as u64), flags)?)
}
