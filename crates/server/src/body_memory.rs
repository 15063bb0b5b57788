//! The memory of request bodies and gRPC messages that are held at a time: one bound for clients of all front ends, the
//! gateway's among them, and one for operators.

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use prometheus_client::registry::Registry;
use tidegate_tower::{BodyPool, BodyShare};

use crate::telemetry::{counter, gauge};

/// A body of this size that arrives in one piece is not counted: it is in the buffer of its connection anyway.
pub(crate) const UNCOUNTED: usize = 4 << 10;

/// The memory for bodies of calls with the scope `read` or `write`: other calls cannot lock an operator out.
const ADMINISTRATION: usize = 16 << 20;

/// The bounds of all front ends.
#[derive(Clone)]
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
        let held: usize = pools.iter().map(|pool| pool.held()).sum();
        let refused = pools.iter().map(|pool| pool.refused()).sum();
        registry.register(
            "body_memory_bytes",
            "Memory of request bodies and gRPC messages that are held",
            gauge(held as u64),
        );
        registry.register(
            "bodies_refused",
            "Requests answered with 503 because the bodies of others took all of their memory",
            counter(refused),
        );
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
