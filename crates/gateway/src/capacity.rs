//! Bounds the connections to servers, in total and per client, so that neither one client nor all of them use up
//! the file descriptors.
//!
//! A request counts for its client from the time it takes a connection to the end of its answer: two atomic additions.
//! Addresses share a few thousand counters by a keyed hash, so that a client cannot choose the clients that it shares a
//! counter with.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use rustix::io::Errno;
use tidegate::address::canonical;
use tidegate_listen::clock::{Instant, now};

/// The number of client counters.
const COUNTERS: usize = 1 << 14;

/// How often a shortage is logged.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Why no connection to a server is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// The client has reached its limit.
    Client,
    /// The gateway has reached its limit.
    All,
    /// The system has run out of a resource; the log says which.
    System(&'static str),
}

impl Shortage {
    /// The names in metrics.
    pub(crate) const NAMES: [&'static str; 3] = ["client", "all", "system"];

    /// The shortage behind an I/O error, if it is one.
    pub(crate) fn from_error(error: &io::Error) -> Option<Self> {
        let what = match Errno::from_io_error(error)? {
            Errno::MFILE => "file descriptors of this process (`ulimit -n`)",
            Errno::NFILE => "file descriptors of the system (`fs.file-max`)",
            Errno::ADDRNOTAVAIL => "local ports (`net.ipv4.ip_local_port_range`)",
            Errno::NOBUFS | Errno::NOMEM => "memory of the kernel",
            _ => return None,
        };
        Some(Self::System(what))
    }

    fn index(self) -> usize {
        match self {
            Self::Client => 0,
            Self::All => 1,
            Self::System(_) => 2,
        }
    }
}

/// The counts of connections to servers.
pub(crate) struct Capacity {
    most: usize,
    most_per_client: u32,
    ipv6_prefix: u8,
    open: Arc<AtomicUsize>,
    clients: Box<[AtomicU32]>,
    hash: RandomState,
    refused: [AtomicU64; 3],
    logged: Mutex<Option<Instant>>,
}

/// A connection, counted until this is dropped.
pub(crate) struct OpenConnection(Arc<AtomicUsize>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The counter of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientCounter(u16);

impl Capacity {
    pub(crate) fn new(most: usize, most_per_client: usize, ipv6_prefix: u8) -> Self {
        Self {
            most,
            most_per_client: u32::try_from(most_per_client).unwrap_or(u32::MAX / 2),
            ipv6_prefix,
            open: Arc::default(),
            clients: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
            hash: RandomState::default(),
            refused: Default::default(),
            logged: Mutex::new(None),
        }
    }

    /// Counts one more connection, if allowed.
    pub(crate) fn open(&self) -> Option<OpenConnection> {
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        let connection = OpenConnection(Arc::clone(&self.open));
        (before < self.most).then_some(connection)
    }

    /// The number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// The counter of an address. Addresses that make one key in rules are one client.
    pub(crate) fn counter(&self, ip: IpAddr) -> ClientCounter {
        let bits = match canonical(ip) {
            IpAddr::V4(ip) => u128::from(ip.to_bits()),
            IpAddr::V6(ip) => {
                let host = 128 - u32::from(self.ipv6_prefix.min(128));
                ip.to_bits() & u128::MAX.checked_shl(host).unwrap_or(0)
            }
        };
        let hash = std::hash::BuildHasher::hash_one(&self.hash, bits);
        ClientCounter(u16::try_from(hash % COUNTERS as u64).unwrap_or(0))
    }

    /// Counts a connection for a client, if allowed.
    pub(crate) fn take(&self, client: ClientCounter) -> bool {
        let Some(counter) = self.clients.get(usize::from(client.0)) else {
            return true;
        };
        let before = counter.fetch_add(1, Ordering::Relaxed);
        if before >= self.most_per_client {
            counter.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    pub(crate) fn give_back(&self, client: ClientCounter) {
        if let Some(counter) = self.clients.get(usize::from(client.0)) {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts a request that got no connection, and logs it from time to time.
    pub(crate) fn refuse(&self, shortage: Shortage) {
        self.refused[shortage.index()].fetch_add(1, Ordering::Relaxed);
        {
            let mut logged = self.logged.lock();
            if logged.is_some_and(|at| at.elapsed() < LOG_EVERY) {
                return;
            }
            *logged = Some(now());
        }
        match shortage {
            Shortage::Client => tracing::warn!(
                max_upstream_connections_per_client = self.most_per_client,
                "a client has reached its limit of connections to servers; its other requests get 503"
            ),
            Shortage::All => tracing::warn!(
                max_upstream_connections = self.most,
                "the limit of connections to servers is reached; other requests get 503"
            ),
            Shortage::System(what) => tracing::warn!(
                shortage = what,
                connections = self.connections(),
                "no connection to a server can be opened, because the system has run out; requests get 503"
            ),
        }
    }

    /// The number of requests that got no connection, in the order of [`Shortage::NAMES`].
    pub(crate) fn refused(&self) -> [u64; 3] {
        [0, 1, 2].map(|index: usize| self.refused[index].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_in_all_and_for_a_client() {
        let capacity = Capacity::new(2, 1, 64);
        let (first, second) = (capacity.open(), capacity.open());
        assert!(first.is_some() && second.is_some() && capacity.open().is_none());
        drop(first);
        assert_eq!(capacity.connections(), 1);
        assert!(capacity.open().is_some());

        let counter = |text: &str| capacity.counter(text.parse().unwrap());
        assert_eq!(counter("1.2.3.4"), counter("::ffff:1.2.3.4"));
        assert_eq!(counter("2001:db8::1"), counter("2001:db8::2:3"));
        let client = counter("1.2.3.4");
        assert!(capacity.take(client) && !capacity.take(client));
        capacity.give_back(client);
        assert!(capacity.take(client));
        let others = (0..100).map(|last| counter(&format!("10.0.0.{last}")));
        let mut others: Vec<_> = others.map(|counter| counter.0).collect();
        others.sort_unstable();
        others.dedup();
        assert!(others.len() > 90, "{}", others.len());
    }

    #[test]
    fn what_the_system_lacks_is_not_the_fault_of_a_server() {
        for (error, is_local) in [
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::ADDRNOTAVAIL, true),
            (Errno::NOBUFS, true),
            (Errno::CONNREFUSED, false),
            (Errno::HOSTUNREACH, false),
            (Errno::TIMEDOUT, false),
        ] {
            let shortage = Shortage::from_error(&io::Error::from(error));
            assert_eq!(shortage.is_some(), is_local, "{error}");
        }
        assert_eq!(Shortage::from_error(&io::Error::other("no name")), None);
    }
}
