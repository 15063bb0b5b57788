//! Bounds the memory of request bodies that are held at a time, for all connections together.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;

/// The least memory that a body takes, and the most by which it grows beyond what has arrived.
const FIRST: usize = 4 << 10;
const FAST: usize = 64 << 10;

/// A number of bytes that bodies share.
#[derive(Debug)]
pub struct BodyPool {
    most: usize,
    held: AtomicUsize,
    refused: AtomicU64,
}

/// The bodies of others take all of the memory that there is for bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", Self::DETAIL)]
pub struct BodyMemoryUsedUp;

impl BodyMemoryUsedUp {
    /// What clients read.
    pub const DETAIL: &str =
        "the bodies of other requests take all of the memory for bodies; try again";
}

impl BodyPool {
    /// So many bytes.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            held: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// How many bytes are taken.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// How many bodies have found no memory.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// A share of no bytes, for a body that is about to arrive.
    pub fn share(self: &Arc<Self>) -> BodyShare {
        BodyShare {
            pool: Arc::clone(self),
            bytes: 0,
        }
    }
}

/// The memory of one body. Given back when dropped.
#[derive(Debug)]
pub struct BodyShare {
    pool: Arc<BodyPool>,
    bytes: usize,
}

impl BodyShare {
    /// Takes more, so that the share has at least this many bytes. Called before the memory is allocated.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), BodyMemoryUsedUp> {
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
    pub fn clear(&mut self) {
        self.pool.held.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = 0;
    }
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A body in memory that bodies share, until the last reference to its bytes is dropped.
#[derive(Debug)]
pub struct PooledBytes {
    bytes: Vec<u8>,
    share: BodyShare,
}

impl PooledBytes {
    /// Nothing, in this memory.
    pub fn new(pool: &Arc<BodyPool>) -> Self {
        Self {
            bytes: Vec::new(),
            share: pool.share(),
        }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends bytes, if there is memory for them.
    pub fn push(&mut self, data: &[u8]) -> Result<(), BodyMemoryUsedUp> {
        let before = self.bytes.capacity();
        if before - self.bytes.len() < data.len() {
            // Few steps, because a client may send a byte at a time.
            let next = if before < FAST {
                (before * 4).clamp(FIRST, FAST)
            } else {
                before * 2
            };
            let size = next.max(self.bytes.len() + data.len());
            self.share.grow_to(size)?;
            self.bytes.reserve_exact(size - self.bytes.len());
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    /// Replaces a range by a short text, whether or not there is memory for it.
    pub(crate) fn replace(&mut self, range: Range<usize>, text: &str) {
        drop(self.bytes.splice(range, text.bytes()));
    }
}

impl AsRef<[u8]> for PooledBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl From<PooledBytes> for Bytes {
    fn from(held: PooledBytes) -> Self {
        Self::from_owner(held)
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

    #[test]
    fn the_memory_of_a_body_is_counted_until_its_bytes_are_dropped() {
        let pool = BodyPool::new(100 << 10);
        let mut body = PooledBytes::new(&pool);
        for (pushed, counted) in [(1, FIRST), (FIRST, 4 * FIRST), (FAST, FAST + FIRST + 1)] {
            body.push(&vec![b'x'; pushed]).unwrap();
            assert_eq!(pool.held(), counted);
        }
        assert_eq!(body.push(&vec![b'x'; FAST]), Err(BodyMemoryUsedUp));
        let bytes = Bytes::from(body);
        let slice = bytes.slice(1..2);
        drop(bytes);
        assert_ne!(pool.held(), 0);
        drop(slice);
        assert_eq!(pool.held(), 0);
    }
}
