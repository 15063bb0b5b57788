//! Who waits for a permit of a store in memory, and is woken when one is released: threads and event loops.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

/// Who waits. Used with the interpreter held, so that the lock is free when the process forks.
#[derive(Default)]
pub(crate) struct Freed {
    waiting: Mutex<Vec<(u32, Waiting)>>,
}

enum Waiting {
    Thread(Sender<()>),
    Callback(Py<PyAny>),
}

impl Freed {
    fn add(&self, waiting: Waiting) {
        let mut all = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((std::process::id(), waiting));
    }

    /// For a thread that waits: receives once, or fails when nothing more can come.
    pub(crate) fn receiver(&self, _: Python<'_>) -> Receiver<()> {
        let (sender, receiver) = channel();
        self.add(Waiting::Thread(sender));
        receiver
    }

    /// Calls `callback` once, at the next release.
    pub(crate) fn call(&self, callback: Py<PyAny>) {
        self.add(Waiting::Callback(callback));
    }

    /// A permit was released: wakes all.
    pub(crate) fn wake(&self, py: Python<'_>) {
        let mut all = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if all.is_empty() {
            return;
        }
        let woken = std::mem::take(&mut *all);
        drop(all);
        for (process, waiting) in woken {
            if process != std::process::id() {
                // Of the parent process: its threads and loops are not here.
                std::mem::forget(waiting);
                continue;
            }
            match waiting {
                Waiting::Thread(sender) => {
                    let _ = sender.send(());
                }
                // Fails if its event loop is closed: then nothing waits any more.
                Waiting::Callback(callback) => {
                    let _ = callback.call0(py);
                }
            }
        }
    }
}
