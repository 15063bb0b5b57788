//! Which part of sharded state a thread uses, so that threads seldom share a lock or a cache line.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The number of this thread: 0 for the first thread that asks, then 1, and so on.
#[inline]
pub(crate) fn thread_number() -> usize {
    let number = NUMBER.get();
    if number == usize::MAX {
        return new_number();
    }
    number
}

#[cold]
fn new_number() -> usize {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    NUMBER.set(number);
    number
}

/// A value on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
