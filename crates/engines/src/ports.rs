//! Ports for hubs and engines: free now, kept for as long as the process may be restarted on them.
//!
//! They lie below the range from which the system takes ports for outgoing connections; inside it, a client of
//! another test could be given a killed hub's port before the hub is back. The same number is held as a UDP
//! port meanwhile, so that no other test process picks it.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;

const RANGE: Range<u64> = 20_000..32_000;
const MAX_ATTEMPTS: u64 = 10_000;

/// A port that no other test uses while this value lives.
pub struct Port {
    number: u16,
    _held: UdpSocket,
}

impl Port {
    pub fn pick() -> Self {
        // The standard library's hasher is keyed with random bytes of the system, anew for each value.
        let random = RandomState::new();
        for attempt in 0..MAX_ATTEMPTS {
            let offset = random.hash_one(attempt) % (RANGE.end - RANGE.start);
            let number = (RANGE.start + offset) as u16;
            let Ok(held) = UdpSocket::bind(loopback(number)) else { continue };
            if TcpListener::bind(loopback(number)).is_ok() {
                return Self { number, _held: held };
            }
        }
        panic!("no free port from {} to {}", RANGE.start, RANGE.end);
    }

    pub fn number(&self) -> u16 {
        self.number
    }
}

pub fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_gets_a_port_that_is_held() {
        let ports: Vec<Port> = (0..200).map(|_| Port::pick()).collect();
        let numbers: std::collections::BTreeSet<u16> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
        assert!(UdpSocket::bind(loopback(ports[0].number())).is_err());
    }
}
