//! State that the stripes of a store share: counts, the register of permits, and the resets.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::permits::PermitRegister;
use super::resets::Resets;
use crate::time::Timestamp;

/// The memory of a key in a table: a slot, and its part of the empty slots.
const KEY_BYTES: usize = 44;

/// The memory of spilled states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct StateSize {
    /// Of all states.
    pub(super) bytes: usize,
    /// The part of `bytes` that is taken by permits.
    pub(super) permit_bytes: usize,
    pub(super) permit_keys: usize,
}

#[derive(Debug)]
pub(super) struct SharedCounts {
    pub(super) permits: PermitRegister,
    pub(super) resets: Resets,
    max_keys: usize,
    /// How much memory states may take, in bytes.
    max_memory: usize,
    /// The memory of spilled states.
    outside: AtomicUsize,
    permit_bytes: AtomicUsize,
    permit_keys: AtomicUsize,
    /// Whether this store's clock decides which keys are idle.
    expires: AtomicBool,
    /// Whether it does so even if requests bring their own time.
    is_clock_of_requests: bool,
    keys: AtomicUsize,
    expired: AtomicU64,
    evicted: AtomicU64,
}

/// The contents of a memory store, and its evictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Keys with a state now, idle ones that were not yet swept among them.
    pub keys: usize,
    /// The most keys it may hold.
    pub max_keys: usize,
    /// The memory of the states, in bytes: 44 for each key, plus spilled states.
    pub memory: usize,
    /// The most that they may take.
    pub max_memory: usize,
    /// Permits that are held, or have ended since they were last looked at.
    pub permits: usize,
    /// Stored reservations that are open.
    pub reservations: usize,
    /// The most that may be open.
    pub max_reservations: usize,
    /// Stored reservations that ended unsettled so far.
    pub expired_reservations: u64,
    /// Idle keys that were removed so far.
    pub expired: u64,
    /// Keys that were still in use and had to make room for others. Each of them got its whole
    /// limit back: if this grows, raise the maximum.
    pub evicted: u64,
}

impl super::MemoryStoreBuilder {
    /// Lets the clock decide which keys are idle also if requests bring their own time: for a clock that follows those
    /// times. Otherwise no key is idle once a request brought its own.
    #[doc(hidden)]
    #[must_use]
    pub fn expire_by_clock(self) -> Self {
        Self {
            is_clock_of_requests: true,
            ..self
        }
    }
}

impl SharedCounts {
    pub(super) fn new(max_keys: usize, max_memory: usize, is_clock_of_requests: bool) -> Self {
        Self {
            permits: PermitRegister::new(),
            resets: Resets::default(),
            max_keys,
            max_memory,
            outside: AtomicUsize::new(0),
            permit_bytes: AtomicUsize::new(0),
            permit_keys: AtomicUsize::new(0),
            expires: AtomicBool::new(true),
            is_clock_of_requests,
            keys: AtomicUsize::new(0),
            expired: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
        }
    }

    /// The current time, for expiry; none once requests bring their own time.
    pub(super) fn idle_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.expires.load(Ordering::Relaxed).then_some(now)
    }

    /// From here on requests bring their own time, of which the clock knows nothing unless it was said to.
    pub(super) fn stop_expiring(&self) {
        if !self.is_clock_of_requests && self.expires.load(Ordering::Relaxed) {
            self.expires.store(false, Ordering::Relaxed);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.keys.load(Ordering::Relaxed) >= self.max_keys || self.memory() >= self.max_memory
    }

    pub(super) fn is_over(&self) -> bool {
        self.keys.load(Ordering::Relaxed) > self.max_keys || self.memory() > self.max_memory
    }

    /// Whether permits take 15/16 of the memory. Permits are never evicted: without a reserve for counters, those would
    /// be evicted right after each charge and limit nothing.
    pub(super) fn is_full_of_permits(&self) -> bool {
        let keys = self.permit_keys.load(Ordering::Relaxed);
        let bytes = self.permit_bytes.load(Ordering::Relaxed);
        let bytes = bytes.saturating_add(keys.saturating_mul(KEY_BYTES));
        let most = |of: usize| of - of / 16;
        keys >= most(self.max_keys) || bytes >= most(self.max_memory)
    }

    pub(super) fn has_room_for_permit(&self) -> bool {
        !self.is_over() && !self.is_full_of_permits()
    }

    fn memory(&self) -> usize {
        let keys = self.keys.load(Ordering::Relaxed);
        keys.saturating_mul(KEY_BYTES)
            .saturating_add(self.outside.load(Ordering::Relaxed))
    }

    /// A state outside of the table has the size `after`, and had `before`.
    pub(super) fn count_outside(&self, before: StateSize, after: StateSize) {
        let count = |counter: &AtomicUsize, before: usize, after: usize| {
            if before != after {
                counter.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
            }
        };
        count(&self.outside, before.bytes, after.bytes);
        count(&self.permit_bytes, before.permit_bytes, after.permit_bytes);
        count(&self.permit_keys, before.permit_keys, after.permit_keys);
    }

    /// A reservation takes this much memory. As permits, it is never evicted.
    pub(super) fn count_record(&self, bytes: usize) {
        self.outside.fetch_add(bytes, Ordering::Relaxed);
        self.permit_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn uncount_record(&self, bytes: usize) {
        self.outside.fetch_sub(bytes, Ordering::Relaxed);
        self.permit_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn count_key(&self) {
        self.keys.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn uncount_key(&self) {
        self.keys.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn count_expired(&self, keys: u64) {
        self.expired.fetch_add(keys, Ordering::Relaxed);
    }

    pub(super) fn count_evicted(&self) {
        self.evicted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn stats(&self) -> MemoryStats {
        MemoryStats {
            keys: self.keys.load(Ordering::Relaxed),
            max_keys: self.max_keys,
            memory: self.memory(),
            max_memory: self.max_memory,
            permits: self.permits.len(),
            reservations: 0,
            max_reservations: 0,
            expired_reservations: 0,
            expired: self.expired.load(Ordering::Relaxed),
            evicted: self.evicted.load(Ordering::Relaxed),
        }
    }
}
