//! What JavaScript knows by numbers: limiters, turns and steps.

use std::cell::RefCell;

use crate::memory_limiter::{MemoryLimiter, MemoryTurn};
use crate::redis_limiter::{WireLimiter, WireStep};

thread_local! {
    pub(crate) static LIMITERS: RefCell<Numbered<MemoryLimiter>> = const { RefCell::new(Numbered::new()) };
    pub(crate) static TURNS: RefCell<Numbered<MemoryTurn>> = const { RefCell::new(Numbered::new()) };
    pub(crate) static WIRE_LIMITERS: RefCell<Numbered<WireLimiter>> = const { RefCell::new(Numbered::new()) };
    pub(crate) static WIRE_STEPS: RefCell<Numbered<WireStep>> = const { RefCell::new(Numbered::new()) };
}

/// Calls a function with a limiter. Nothing happens if there is none with this number.
#[inline]
pub(crate) fn with_limiter<T: Default>(
    number: usize,
    call: impl FnOnce(&mut MemoryLimiter) -> T,
) -> T {
    LIMITERS.with_borrow_mut(|limiters| limiters.get(number).map(call).unwrap_or_default())
}

/// The same with a limiter over Redis.
pub(crate) fn with_wire<T>(
    limiter: usize,
    call: impl FnOnce(&WireLimiter) -> Option<T>,
) -> Option<T> {
    WIRE_LIMITERS
        .with_borrow_mut(|limiters| limiters.get(limiter).and_then(|limiter| call(limiter)))
}

/// Values by number. Numbers are used again.
pub(crate) struct Numbered<T> {
    values: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Numbered<T> {
    pub(crate) const fn new() -> Self {
        Self {
            values: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, value: T) -> usize {
        if let Some(number) = self.free.pop() {
            self.values[number] = Some(value);
            return number;
        }
        self.values.push(Some(value));
        self.values.len() - 1
    }

    #[inline]
    pub(crate) fn get(&mut self, number: usize) -> Option<&mut T> {
        self.values.get_mut(number)?.as_mut()
    }

    pub(crate) fn take(&mut self, number: usize) -> Option<T> {
        let value = self.values.get_mut(number)?.take();
        if value.is_some() {
            self.free.push(number);
        }
        value
    }
}
