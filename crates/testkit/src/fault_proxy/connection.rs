//! The connections of a proxy: two streams each, and a reader and a writer for either direction, so
//! that a delay moves bytes in time and does not thin them out.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::FaultMode;
use super::mode::Direction;
use crate::now;

const CONNECT: Duration = Duration::from_secs(5);

/// What the threads of one proxy share.
#[derive(Debug)]
pub(super) struct ProxyShared {
    server: SocketAddr,
    state: Mutex<ProxyState>,
    changed: Condvar,
    pub(super) connections: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) replies: AtomicU64,
}

#[derive(Debug, Default)]
struct ProxyState {
    mode: FaultMode,
    /// The streams of open connections, by the number of the connection.
    open: Vec<(u64, TcpStream)>,
}

/// Bytes, and when to send them on.
struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
}

impl ProxyShared {
    pub(super) fn new(server: SocketAddr) -> Self {
        Self {
            server,
            state: Mutex::default(),
            changed: Condvar::new(),
            connections: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            replies: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, ProxyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn mode(&self) -> FaultMode {
        self.state().mode
    }

    pub(super) fn set_mode(&self, mode: FaultMode) {
        self.state().mode = mode;
        self.changed.notify_all();
    }

    pub(super) fn close_all(&self) {
        for (_, stream) in self.state().open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Remembers a stream so that it can be closed; one that comes too late is closed here.
    fn register(&self, connection: u64, stream: &TcpStream) {
        let mut state = self.state();
        if state.mode == FaultMode::Cut {
            let _ = stream.shutdown(Shutdown::Both);
        } else if let Ok(copy) = stream.try_clone() {
            state.open.push((connection, copy));
        }
    }

    fn forget(&self, connection: u64) {
        self.state()
            .open
            .retain(|(number, _)| *number != connection);
    }

    /// Waits out a stall; false if the connection is cut then.
    fn may_pass(&self) -> bool {
        let stalled = |state: &mut ProxyState| state.mode == FaultMode::Stall;
        let state = self.changed.wait_while(self.state(), stalled);
        state.unwrap_or_else(PoisonError::into_inner).mode != FaultMode::Cut
    }
}

/// Carries the connection of that number until either side closes it.
pub(super) fn carry(connection: u64, client: &TcpStream, shared: &ProxyShared) {
    shared.register(connection, client);
    if shared.mode() == FaultMode::BlackHole {
        swallow(client, &shared.requests);
    } else if let Ok(server) = TcpStream::connect_timeout(&shared.server, CONNECT) {
        shared.register(connection, &server);
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        std::thread::scope(|scope| {
            for (from, to, direction) in [
                (client, &server, Direction::Requests),
                (&server, client, Direction::Replies),
            ] {
                let (chunks, queue) = channel();
                scope.spawn(move || read(from, &chunks, direction, shared));
                scope.spawn(move || write(to, &queue, shared));
            }
        });
    }
    shared.forget(connection);
}

/// Reads until the stream ends; what the mode loses is counted and gone, and so is all that follows it.
fn read(
    mut from: &TcpStream,
    chunks: &Sender<Option<Chunk>>,
    direction: Direction,
    shared: &ProxyShared,
) {
    let counter = match direction {
        Direction::Requests => &shared.requests,
        Direction::Replies => &shared.replies,
    };
    let mut buffer = vec![0; 64 * 1024];
    let lossy = loop {
        let length = from.read(&mut buffer).unwrap_or(0);
        counter.fetch_add(length as u64, Ordering::SeqCst);
        let mode = shared.mode();
        if mode.loses(direction) {
            if length > 0 {
                swallow(from, counter);
            }
            break true;
        }
        if length == 0 {
            break false;
        }
        let due = now() + mode.delay(direction);
        let bytes = buffer[..length].to_vec();
        let _ = chunks.send(Some(Chunk { due, bytes }));
    };
    // The server's end is lost like its bytes. The client's is passed on: no client is left to notice.
    if !lossy || direction == Direction::Requests {
        let _ = chunks.send(None);
    }
}

/// Sends chunks on when they are due, and then the end of the stream, if that comes.
fn write(mut to: &TcpStream, queue: &Receiver<Option<Chunk>>, shared: &ProxyShared) {
    for chunk in queue {
        let Some(chunk) = chunk else {
            shared.may_pass();
            let _ = to.shutdown(Shutdown::Both);
            return;
        };
        std::thread::sleep(chunk.due.saturating_duration_since(now()));
        if !shared.may_pass() {
            return;
        }
        // A side that is gone is noticed by its reader.
        let _ = to.write_all(&chunk.bytes);
    }
}

/// Counts what arrives until the stream ends, and passes none of it on.
fn swallow(mut from: &TcpStream, counter: &AtomicU64) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        counter.fetch_add(length as u64, Ordering::SeqCst);
    }
}
