//! `Limit`: what may be granted, and how it is counted.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tidegate::Limit;

/// A limit, such as `100/minute burst 20`.
#[pyclass(name = "Limit", module = "tidegate", frozen, from_py_object)]
#[derive(Clone)]
pub(crate) struct PyLimit(pub(crate) Limit);

#[pymethods]
impl PyLimit {
    #[new]
    fn new(rate: &str) -> PyResult<Self> {
        let limit = rate.parse();
        limit
            .map(Self)
            .map_err(|error: tidegate::LimitError| PyValueError::new_err(error.to_string()))
    }

    fn __repr__(&self) -> String {
        format!("Limit('{}')", self.0)
    }
}
