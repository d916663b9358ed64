//! One direction of one connection: reads bytes and forwards them, according to the current faults.
//!
//! A pump moves bytes only while it holds the read lock of the faults. A change of the faults takes the write lock, so
//! no byte is forwarded by the old faults once the change is made.

use std::io;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};
use tokio::time::{Instant, sleep_until};

use super::link::Link;
use super::messages::MessageFilter;
use super::{Direction, Faults};

/// Maximum size of one read, in bytes. A direction keeps no more than this in memory, except for a held message.
const MAX_READ_SIZE: usize = 16 * 1024;

struct Pump<'a> {
    link: &'a Link,
    direction: Direction,
    /// Bytes that were read and filtered, and are not written yet.
    pending: Vec<u8>,
    filter: MessageFilter,
    /// The sender has closed its side.
    has_sender_closed: bool,
    next_read: Instant,
}

/// The condition for the next step of the pump.
enum Wait {
    Readable,
    Writable,
    Until(Instant),
    /// A change of the faults.
    FaultChange,
    None,
    /// The direction has ended.
    Finished,
}

/// Forwards bytes of one direction until its sender closes. Fails when the connection must end.
pub(super) async fn pump(link: &Link, direction: Direction) -> io::Result<()> {
    let (from, to) = link.ends(direction);
    let mut faults = link.shared.faults.subscribe();
    let mut pump = Pump {
        link,
        direction,
        pending: Vec::new(),
        filter: MessageFilter::default(),
        has_sender_closed: false,
        next_read: Instant::now(),
    };
    loop {
        let wait = pump.step(&faults.borrow_and_update())?;
        let ready = async {
            match wait {
                Wait::Readable => from.readable().await,
                Wait::Writable => to.writable().await,
                Wait::Until(time) => {
                    sleep_until(time).await;
                    Ok(())
                }
                Wait::FaultChange => std::future::pending().await,
                Wait::None | Wait::Finished => Ok(()),
            }
        };
        tokio::select! {
            ready = ready => ready?,
            // The sender of faults lives as long as the proxy.
            _ = faults.changed() => continue,
        }
        if matches!(wait, Wait::Finished) {
            return Ok(());
        }
        // Lets other connections run, also when this direction never has to wait.
        tokio::task::yield_now().await;
    }
}

impl Pump<'_> {
    fn step(&mut self, faults: &Faults) -> io::Result<Wait> {
        if self.link.is_silent(self.direction, faults) {
            return self.discard();
        }
        if faults.is_paused(self.direction) {
            return Ok(Wait::FaultChange);
        }
        if !self.pending.is_empty() {
            return self.write_pending(faults);
        }
        if self.has_sender_closed {
            // Fails if the receiver has closed already.
            let _ = shutdown(self.link.ends(self.direction).1, Shutdown::Write);
            self.link.finish(self.direction)?;
            return Ok(Wait::Finished);
        }
        if faults.bytes_per_second.is_some() && self.next_read > Instant::now() {
            return Ok(Wait::Until(self.next_read));
        }
        self.read(faults)
    }

    fn read(&mut self, faults: &Faults) -> io::Result<Wait> {
        let mut piece = [0; MAX_READ_SIZE];
        let limit = faults
            .bytes_per_second
            .map_or(MAX_READ_SIZE, |speed| (speed as usize / 10).clamp(1, MAX_READ_SIZE));
        match self.link.ends(self.direction).0.try_read(&mut piece[..limit]) {
            Ok(0) => {
                self.has_sender_closed = true;
                self.filter.finish(&mut self.pending);
            }
            Ok(count) => {
                if let Some(speed) = faults.bytes_per_second {
                    self.next_read = Instant::now() + Duration::from_secs_f64(count as f64 / speed as f64);
                }
                match self.direction {
                    Direction::ToServer => self.pending.extend_from_slice(&piece[..count]),
                    Direction::ToClient => {
                        self.filter.feed(&piece[..count], &self.link.shared.dropper, &mut self.pending);
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Wait::Readable),
            Err(error) => return Err(error),
        }
        Ok(Wait::None)
    }

    fn write_pending(&mut self, faults: &Faults) -> io::Result<Wait> {
        match self.link.ends(self.direction).1.try_write(&self.pending) {
            Ok(count) => {
                self.pending.drain(..count);
                Ok(Wait::None)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Wait::Writable),
            // The receiver has closed, and the sender must not notice it because the other direction is stalled.
            Err(_) if self.link.is_silent(self.direction.reverse(), faults) => {
                self.link.mark_lost(self.direction);
                Ok(Wait::None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads and discards bytes.
    fn discard(&mut self) -> io::Result<Wait> {
        if !self.pending.is_empty() || self.filter.is_holding() {
            self.pending.clear();
            self.link.mark_lost(self.direction);
        }
        if self.has_sender_closed {
            self.link.finish(self.direction)?;
            return Ok(Wait::FaultChange);
        }
        match self.link.ends(self.direction).0.try_read(&mut [0; MAX_READ_SIZE]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Wait::Readable),
            // The close is not forwarded now. If no bytes were lost, it is forwarded after the end of the fault.
            Ok(0) | Err(_) => self.has_sender_closed = true,
            Ok(_) => self.link.mark_lost(self.direction),
        }
        Ok(Wait::None)
    }
}
