//! Bounds the streams that clients without a token keep open.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use super::status::{Code, Status};

/// The most of them on one connection, and on all.
const ON_A_CONNECTION: usize = 16;
const IN_ALL: usize = 1_024;

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

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct OpenStream {
    open: Arc<Mutex<StreamCounts>>,
    connection: SocketAddr,
}

impl OpenStreams {
    /// Opens one more; an error if there are too many.
    pub(super) fn open(&self, connection: SocketAddr) -> Result<OpenStream, Status> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let on_this = open.on.get(&connection).copied().unwrap_or(0);
        if open.all >= IN_ALL || on_this >= ON_A_CONNECTION {
            return Err(Status::new(
                Code::ResourceExhausted,
                format!(
                    "too many streams are open without a token: at most {ON_A_CONNECTION} on a connection and {IN_ALL} on all; send a token as metadata `authorization: Bearer TOKEN`, or close some"
                ),
            ));
        }
        open.all += 1;
        open.on.insert(connection, on_this + 1);
        Ok(OpenStream {
            open: Arc::clone(&self.open),
            connection,
        })
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
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
            let refused = streams.open(connection(port)).unwrap_err();
            assert_eq!(refused.code, Code::ResourceExhausted);
        }
        assert!(streams.open(connection(9_999)).is_err(), "all are open");
        open.pop();
        assert!(streams.open(connection(0)).is_err());
        assert!(streams.open(connection(9_999)).is_ok());
        open.clear();
        let counts = streams.open.lock().unwrap();
        assert!(counts.all == 0 && counts.on.is_empty());
    }
}
