//! Bounds the streams of gRPC that clients without a token keep open.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// The most open streams on one connection, and on all.
pub(crate) const ON_A_CONNECTION: usize = 16;
pub(crate) const IN_ALL: usize = 1_024;

/// The streams of one method that are open without a token.
#[derive(Debug, Default)]
pub(crate) struct OpenStreams {
    open: Arc<Mutex<StreamCounts>>,
}

/// How many are open, in all and by the client's side of the connection.
#[derive(Debug, Default)]
struct StreamCounts {
    all: usize,
    on: HashMap<SocketAddr, usize>,
}

/// An open stream, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenStream {
    open: Arc<Mutex<StreamCounts>>,
    connection: SocketAddr,
}

impl OpenStreams {
    /// Opens one more; none if there are too many.
    pub(crate) fn open(&self, connection: SocketAddr) -> Option<OpenStream> {
        let mut open = self.open.lock();
        let on_this = open.on.get(&connection).copied().unwrap_or(0);
        if open.all >= IN_ALL || on_this >= ON_A_CONNECTION {
            return None;
        }
        open.all += 1;
        open.on.insert(connection, on_this + 1);
        Some(OpenStream {
            open: Arc::clone(&self.open),
            connection,
        })
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        open.all -= 1;
        if let Some(on_this) = open.on.get_mut(&self.connection) {
            *on_this -= 1;
            if *on_this == 0 {
                open.on.remove(&self.connection);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_and_all_connections_have_a_bound_and_ended_streams_do_not_count() {
        let streams = OpenStreams::default();
        let connection = |port: usize| {
            let port = u16::try_from(port).unwrap();
            SocketAddr::from(([127, 0, 0, 1], port))
        };
        let mut open = Vec::new();
        for port in 0..IN_ALL / ON_A_CONNECTION {
            for _ in 0..ON_A_CONNECTION {
                open.push(streams.open(connection(port)).unwrap());
            }
            assert!(streams.open(connection(port)).is_none());
        }
        assert!(streams.open(connection(9_999)).is_none(), "all are open");
        open.pop();
        assert!(streams.open(connection(0)).is_none());
        assert!(streams.open(connection(9_999)).is_some());
        open.clear();
        let counts = streams.open.lock();
        assert!(counts.all == 0 && counts.on.is_empty());
    }
}
