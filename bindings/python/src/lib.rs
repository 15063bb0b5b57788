//! The native module of the Python package `tidegate`. Each file is one class or one concern; the names that users see are
//! those of `python/tidegate/__init__.py`.
#![forbid(unsafe_code)]

mod limit;
mod limits_plugin;
mod middleware;

use pyo3::prelude::*;

/// The native module of `tidegate`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::limit::PyLimit;
}
