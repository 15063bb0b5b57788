//! Bounds the memory of request bodies and gRPC messages that are held at a time, for all connections together.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use prometheus_client::registry::Registry;

use crate::telemetry::{counter, gauge};

/// A body of this size that arrives in one piece is not counted: it is in the buffer of its connection anyway.
pub(crate) const UNCOUNTED: usize = 4 << 10;

/// The memory for bodies of calls with the scope `read` or `write`: other calls cannot lock an operator out.
const ADMINISTRATION: usize = 16 << 20;

/// The bounds of all front ends.
pub(crate) struct BodyMemory {
    /// For calls of clients and proxies, and those that need no token.
    pub(crate) clients: Arc<BodyPool>,
    /// For calls with the scope `read` or `write`.
    pub(crate) operators: Arc<BodyPool>,
}

impl BodyMemory {
    /// Bodies of clients may take this many bytes together.
    pub(crate) fn of(most: usize) -> Self {
        Self {
            clients: BodyPool::new(most),
            operators: BodyPool::new(ADMINISTRATION),
        }
    }

    pub(crate) fn register_metrics(&self, registry: &mut Registry) {
        let pools = [&self.clients, &self.operators];
        let held = pools.map(|pool| pool.held.load(Ordering::Relaxed));
        let refused = pools.map(|pool| pool.refused.load(Ordering::Relaxed));
        registry.register(
            "body_memory_bytes",
            "Memory of request bodies and gRPC messages that are held",
            gauge(held.iter().sum::<usize>() as u64),
        );
        registry.register(
            "bodies_refused",
            "Requests answered with 503 because the bodies of others took all of their memory",
            counter(refused.iter().sum()),
        );
    }
}

/// A number of bytes that bodies share.
pub(crate) struct BodyPool {
    most: usize,
    held: AtomicUsize,
    refused: AtomicU64,
}

/// The bodies of others take all of the memory that there is for bodies.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BodyMemoryUsedUp;

impl BodyMemoryUsedUp {
    pub(crate) const DETAIL: &str =
        "the bodies of other requests take all of the memory for bodies; try again";
}

impl BodyPool {
    fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            held: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// A share of no bytes, for a body that is about to arrive.
    pub(crate) fn share(self: &Arc<Self>) -> BodyShare {
        BodyShare {
            pool: Arc::clone(self),
            bytes: 0,
        }
    }
}

/// The memory of one body. Given back when dropped.
pub(crate) struct BodyShare {
    pool: Arc<BodyPool>,
    bytes: usize,
}

impl BodyShare {
    /// Takes more, so that the share has at least this many bytes. Called before the memory is allocated.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), BodyMemoryUsedUp> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let held = self.pool.held.fetch_add(more, Ordering::Relaxed);
        if held.saturating_add(more) > self.pool.most {
            self.pool.held.fetch_sub(more, Ordering::Relaxed);
            self.pool.refused.fetch_add(1, Ordering::Relaxed);
            return Err(BodyMemoryUsedUp);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Gives all of it back.
    pub(crate) fn clear(&mut self) {
        self.pool.held.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = 0;
    }
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A whole body, with its share of the memory.
pub(crate) struct HeldBody {
    bytes: Bytes,
    _share: Option<BodyShare>,
}

impl HeldBody {
    pub(crate) fn new(bytes: Bytes, share: Option<BodyShare>) -> Self {
        Self {
            bytes,
            _share: share,
        }
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl Deref for HeldBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_together_never_exceed_the_memory_and_come_back() {
        let pool = BodyPool::new(100);
        let (mut a, mut b) = (pool.share(), pool.share());
        #[rustfmt::skip]
        let table = [
            // a    b   fits    held after
            (60,    0,  true,   60),
            (60,    40, true,   100),
            (61,    40, false,  100),
            (10,    40, true,   100), // never smaller
        ];
        for (of_a, of_b, fits, held) in table {
            let grown = a.grow_to(of_a).and_then(|()| b.grow_to(of_b));
            assert_eq!(grown.is_ok(), fits, "{of_a} {of_b}");
            assert_eq!(pool.held.load(Ordering::Relaxed), held);
        }
        a.clear();
        assert_eq!(b.grow_to(100), Ok(()));
        drop((a, b));
        assert_eq!(pool.held.load(Ordering::Relaxed), 0);
        assert_eq!(pool.refused.load(Ordering::Relaxed), 1);
        assert_eq!(pool.share().grow_to(usize::MAX), Err(BodyMemoryUsedUp));
    }
}
