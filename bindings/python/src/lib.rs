//! The native module of the Python package `tidegate`. Each file is one class or one concern; the names that users see are
//! those of `python/tidegate/__init__.py`.
#![forbid(unsafe_code)]

mod clock;
mod errors;
mod freed;
mod limit;
mod limits_plugin;
mod middleware;
mod runtime;
mod stores;

use pyo3::prelude::*;

/// The native module of `tidegate`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::clock::PyManualClock;
    #[pymodule_export]
    use super::limit::PyLimit;
    #[pymodule_export]
    use super::runtime::{Mailbox, PendingCall};
    #[pymodule_export]
    use super::stores::{PyMemoryStore, PyRedisStore};
}
