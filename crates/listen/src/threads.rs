//! Threads for connections, one per core, each with its own runtime.
//!
//! A connection with many short requests is best served on one thread: requests that arrive together are answered
//! together, in one write.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The threads. They end when this is dropped, with all of their tasks.
#[derive(Debug)]
pub struct Threads {
    runtimes: Vec<(Handle, oneshot::Sender<()>)>,
}

impl Threads {
    /// As many as there are cores.
    pub fn start() -> io::Result<Self> {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let runtimes = (0..count).map(start).collect::<io::Result<_>>()?;
        Ok(Self { runtimes })
    }

    /// The runtime of each.
    pub fn runtimes(&self) -> impl Iterator<Item = &Handle> {
        self.runtimes.iter().map(|(runtime, _)| runtime)
    }
}

/// Starts a thread. It ends when the sender is dropped.
fn start(number: usize) -> io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (sender, ended) = oneshot::channel();
    std::thread::Builder::new()
        .name(format!("connections-{number}"))
        .spawn(move || {
            // An error means that this was dropped.
            let _ = runtime.block_on(ended);
        })?;
    Ok((handle, sender))
}

/// Round robin over a list.
#[derive(Debug)]
pub struct RoundRobin<T> {
    things: Vec<T>,
    next: AtomicUsize,
}

impl<T: Clone> RoundRobin<T> {
    /// Over these; there must be at least one.
    pub fn new(things: Vec<T>) -> Self {
        Self {
            things,
            next: AtomicUsize::new(0),
        }
    }

    /// The next item.
    pub fn take(&self) -> T {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.things[turn % self.things.len()].clone()
    }
}
