//! Amounts and costs as `limits` takes them.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyFloat;

/// An amount or a cost: a whole number, or a fraction, which counts as the next whole number.
pub(super) struct HitNumber(pub(super) u64);

impl<'a, 'py> FromPyObject<'a, 'py> for HitNumber {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(number) = given.extract::<u64>() {
            return Ok(Self(number));
        }
        let whole = if given.is_instance_of::<PyFloat>() {
            given.call_method0("__ceil__")?
        } else {
            given.to_owned()
        };
        if whole.lt(0)? {
            let message = format!("`{whole}` is negative; give 0 or more");
            return Err(PyValueError::new_err(message));
        }
        match whole.extract() {
            Ok(number) => Ok(Self(number)),
            // More than any limit.
            Err(_) if whole.gt(u64::MAX)? => Ok(Self(u64::MAX)),
            Err(error) => Err(error),
        }
    }
}
