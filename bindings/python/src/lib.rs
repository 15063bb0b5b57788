//! The native module of the Python package `tidegate`. Each file is one class or one concern; the names that users see are
//! those of `python/tidegate/__init__.py`.
#![forbid(unsafe_code)]

mod acquiring;
mod arguments;
mod clock;
mod decision;
mod errors;
mod explained;
mod freed;
mod gate;
mod limit;
mod limiter;
mod limiter_core;
mod limits_plugin;
mod middleware;
mod permit;
mod rules_argument;
mod runtime;
mod shared_limiter;
mod stores;

use pyo3::prelude::*;

/// The native module of `tidegate`.
#[pymodule]
mod _native {
    use super::{Bound, PyAnyMethods as _, PyModule, PyResult};

    #[expect(non_upper_case_globals, reason = "its name in Python")]
    #[pymodule_export]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use super::acquiring::PyTurn;
    #[pymodule_export]
    use super::clock::PyManualClock;
    #[pymodule_export]
    use super::decision::{PyDecision, PyOutcome};
    #[pymodule_export]
    use super::gate::PyGate;
    #[pymodule_export]
    use super::limit::PyLimit;
    #[pymodule_export]
    use super::limiter::PyLimiter;
    #[pymodule_export]
    use super::limits_plugin::{LimitsCall, LimitsCounters};
    #[pymodule_export]
    use super::middleware::{Middleware, PyAdmitted, PyReply};
    #[pymodule_export]
    use super::permit::PyPermit;
    #[pymodule_export]
    use super::runtime::{Mailbox, PendingCall};
    #[pymodule_export]
    use super::stores::{PyMemoryStore, PyRedisStore};

    /// The public names are those of the package, not of this module.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.delattr("__all__")
    }
}
