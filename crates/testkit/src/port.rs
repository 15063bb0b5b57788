//! Ports for servers that are given theirs, and keep it when they are restarted.
//!
//! They lie below the range that the system takes outgoing connections from, and each is reserved
//! across processes for as long as the test holds it: by a UDP socket on the same number, which
//! disturbs no other program and vanishes with the process. A cluster's bus, ten thousand above, is free too.

#![expect(
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a machine without ports cannot test"
)]

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;

const PORTS: Range<u16> = 10_300..20_300;
const BUS: u16 = 10_000;

/// A port of 127.0.0.1 that no other test uses while this value lives.
#[derive(Debug)]
pub struct ReservedPort {
    number: u16,
    _reservation: UdpSocket,
}

impl ReservedPort {
    /// A port that is free now, and whose bus is.
    #[expect(clippy::new_without_default, reason = "no two are alike")]
    pub fn new() -> Self {
        let width = u32::from(PORTS.end - PORTS.start);
        let mut offset = std::process::id().wrapping_mul(7_919) % width;
        for _ in 0..width {
            let number = PORTS.start + u16::try_from(offset).unwrap_or(0);
            if let Some(port) = Self::at(number) {
                return port;
            }
            offset = (offset + 1) % width;
        }
        panic!("no port between {} and {} is free", PORTS.start, PORTS.end);
    }

    fn at(number: u16) -> Option<Self> {
        let reservation = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        for port in [number, number + BUS] {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
        }
        Some(Self {
            number,
            _reservation: reservation,
        })
    }

    /// The port.
    pub fn number(&self) -> u16 {
        self.number
    }
}
