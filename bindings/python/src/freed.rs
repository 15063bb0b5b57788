//! Who waits for a permit of a store in memory, and is woken when one is released: threads and event loops.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use pyo3::prelude::*;

use crate::runtime::locked;

/// Who waits. Used with the interpreter held, so that the lock is free when the process forks.
#[derive(Default)]
pub(crate) struct Freed {
    all: Mutex<AllWaiting>,
}

#[derive(Default)]
struct AllWaiting {
    next: u64,
    waiting: BTreeMap<u64, (u32, FreedWaiter)>,
}

enum FreedWaiter {
    Thread(Sender<()>),
    Callback(Py<PyAny>),
}

/// A thread that waits, until it is dropped.
pub(crate) struct WaitingThread<'f> {
    freed: &'f Freed,
    number: u64,
    pub(crate) receiver: Receiver<()>,
}

impl Drop for WaitingThread<'_> {
    fn drop(&mut self) {
        self.freed.forget(self.number);
    }
}

impl Freed {
    fn add(&self, waiting: FreedWaiter) -> u64 {
        let mut all = locked(&self.all);
        all.next += 1;
        let number = all.next;
        all.waiting.insert(number, (std::process::id(), waiting));
        number
    }

    /// A thread that waits: it receives once, at the next release.
    pub(crate) fn thread(&self) -> WaitingThread<'_> {
        let (sender, receiver) = channel();
        WaitingThread {
            freed: self,
            number: self.add(FreedWaiter::Thread(sender)),
            receiver,
        }
    }

    /// Calls `callback` once, at the next release, unless its number is forgotten before.
    pub(crate) fn call(&self, callback: Py<PyAny>) -> u64 {
        self.add(FreedWaiter::Callback(callback))
    }

    /// Wakes it no more.
    pub(crate) fn forget(&self, number: u64) {
        let forgotten = locked(&self.all).waiting.remove(&number);
        drop(forgotten);
    }

    /// A permit was released: wakes all.
    pub(crate) fn wake(&self, py: Python<'_>) {
        let woken = {
            let mut all = locked(&self.all);
            if all.waiting.is_empty() {
                return;
            }
            std::mem::take(&mut all.waiting)
        };
        for (_, (process, waiting)) in woken {
            if process != std::process::id() {
                // Of the parent process: its threads and loops are not here.
                std::mem::forget(waiting);
                continue;
            }
            match waiting {
                FreedWaiter::Thread(sender) => {
                    let _ = sender.send(());
                }
                // Fails if its event loop is closed: then nothing waits any more.
                FreedWaiter::Callback(callback) => {
                    let _ = callback.call0(py);
                }
            }
        }
    }
}
