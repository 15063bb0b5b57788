//! A client of a key that a fault must not touch: on another master of a Cluster.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::exchange::ask;
use crate::row::RowFact;
use crate::stage::number;

const PAUSE: Duration = Duration::from_millis(20);

/// A client that checks one key until it is asked what it saw.
#[derive(Debug)]
pub(crate) struct Witness {
    stop: Arc<AtomicBool>,
    /// All checks, and those that failed or were decided without Redis.
    thread: JoinHandle<(usize, usize)>,
}

impl Witness {
    /// Checks the key of `user` by the rule `exact-deny-window` of a server.
    pub(crate) fn start(server: SocketAddr, user: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let path = "/exact-deny-window";
        let body = format!(r#"{{"attributes":{{"path":"{path}","user_id":"{user}"}}}}"#);
        let thread = std::thread::spawn(move || {
            let (mut all, mut bad) = (0, 0);
            while !stopped.load(Ordering::SeqCst) {
                let answer = ask(server, "POST /v1/check", None, &body);
                all += 1;
                bad += usize::from(!matches!(answer, Ok((200 | 429, _))));
                std::thread::sleep(PAUSE);
            }
            (all, bad)
        });
        Self { stop, thread }
    }

    /// That next to none of its answers was degraded.
    pub(crate) fn fact(self) -> RowFact {
        self.stop.store(true, Ordering::SeqCst);
        let (all, bad) = self.thread.join().unwrap_or((0, 1));
        let percent = (number(bad) / number(all.max(1)) * 1_000.0).round() / 10.0;
        let name = "degraded answers for a key of another master";
        RowFact::at_most(name, percent, 1.0, "%")
    }
}
