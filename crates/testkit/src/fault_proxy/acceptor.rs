//! The listening half of a proxy: while it is open, clients can connect.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::connection::{ProxyShared, carry};

/// A thread that accepts connections.
#[derive(Debug)]
pub(super) struct Acceptor {
    address: SocketAddr,
    closing: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Acceptor {
    pub(super) fn open(address: SocketAddr, shared: Arc<ProxyShared>) -> Self {
        let listener = TcpListener::bind(address).expect("the proxy's port is its own");
        let closing = Arc::new(AtomicBool::new(false));
        let closed = Arc::clone(&closing);
        let thread = std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if closed.load(Ordering::SeqCst) {
                    return;
                }
                let connection = shared.connections.fetch_add(1, Ordering::SeqCst);
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || carry(connection, &client, &shared));
            }
        });
        Self {
            address,
            closing,
            thread,
        }
    }

    /// Refuses connections from when it returns.
    pub(super) fn close(self) {
        self.closing.store(true, Ordering::SeqCst);
        // Wakes the thread, which then drops the listener.
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.join();
    }
}
