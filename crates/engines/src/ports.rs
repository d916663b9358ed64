//! Free TCP ports for hubs and engines. A [`Port`] reserves its number, so that a server can restart on it.
//!
//! The ports lie below the range from which the kernel takes ports for outgoing connections. Inside that range the kernel
//! could give the port of a killed hub to a client of another test before the hub is restarted. A UDP socket bound to
//! the same number reserves it, so that no other test process picks the port.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;

const PORT_RANGE: Range<u64> = 20_000..32_000;
const MAX_ATTEMPTS: u64 = 10_000;

/// A port that no other test uses while this value lives.
pub struct Port {
    number: u16,
    _reservation: UdpSocket,
}

impl Port {
    pub fn pick() -> Self {
        // Every `RandomState` has its own random keys, so the hash of the attempt number is a random number.
        let random = RandomState::new();
        for attempt in 0..MAX_ATTEMPTS {
            let offset = random.hash_one(attempt) % (PORT_RANGE.end - PORT_RANGE.start);
            let number = (PORT_RANGE.start + offset) as u16;
            let Ok(reservation) = UdpSocket::bind(loopback(number)) else { continue };
            if TcpListener::bind(loopback(number)).is_ok() {
                return Self { number, _reservation: reservation };
            }
        }
        panic!("no free port in {}..{} after {MAX_ATTEMPTS} attempts", PORT_RANGE.start, PORT_RANGE.end);
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
