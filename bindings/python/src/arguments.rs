//! The arguments that most methods have: a key and a cost.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyString};

/// Whose counter is asked: a `str`. A missing identity must not become a shared counter.
pub(crate) struct KeyArgument<'a>(pub(crate) &'a str);

impl<'a, 'py> FromPyObject<'a, 'py> for KeyArgument<'a> {
    type Error = PyErr;

    #[inline]
    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if given.is_instance_of::<PyString>() {
            return given.extract().map(Self);
        }
        Err(not_a_key(given))
    }
}

#[cold]
fn not_a_key(given: Borrowed<'_, '_, PyAny>) -> PyErr {
    match given.get_type().name() {
        Ok(kind) => PyTypeError::new_err(format!("a key is a `str`, not `{kind}`")),
        Err(error) => error,
    }
}

/// The most that a request may cost.
const MAX_COST: u64 = 1 << 50;

/// How much a request takes: an `int` from 0 to 2^50.
#[derive(Clone, Copy)]
pub(crate) struct RequestCost(pub(crate) u64);

impl RequestCost {
    pub(crate) const ONE: Self = Self(1);
}

impl<'a, 'py> FromPyObject<'a, 'py> for RequestCost {
    type Error = PyErr;

    #[inline]
    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if given.is_instance_of::<PyInt>()
            && !given.is_instance_of::<PyBool>()
            && let Ok(cost) = given.extract::<u64>()
            && cost <= MAX_COST
        {
            return Ok(Self(cost));
        }
        Err(not_a_cost(given))
    }
}

#[cold]
fn not_a_cost(given: Borrowed<'_, '_, PyAny>) -> PyErr {
    if given.is_instance_of::<PyInt>() && !given.is_instance_of::<PyBool>() {
        // A number of any length is not repeated in the message.
        return match given.extract::<i64>() {
            Ok(cost) => PyValueError::new_err(format!(
                "`{cost}` is not a cost; give an `int` from 0 to 2^50"
            )),
            Err(_) => PyValueError::new_err("a cost is an `int` from 0 to 2^50"),
        };
    }
    match given.get_type().name() {
        Ok(kind) => PyTypeError::new_err(format!("a cost is an `int`, not `{kind}`")),
        Err(error) => error,
    }
}

/// A number of things: an `int` from 1.
#[derive(Clone, Copy)]
pub(crate) struct CountArgument(pub(crate) u64);

impl<'a, 'py> FromPyObject<'a, 'py> for CountArgument {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if !given.is_instance_of::<PyInt>() || given.is_instance_of::<PyBool>() {
            let kind = given.get_type().name()?;
            let message = format!("expected an `int` from 1, not `{kind}`");
            return Err(PyTypeError::new_err(message));
        }
        match given.extract::<u64>() {
            Ok(count) if count > 0 => Ok(Self(count)),
            Ok(_) => Err(PyValueError::new_err(
                "`0` is too small; give an `int` from 1",
            )),
            Err(_) => Err(PyValueError::new_err(
                "the number is negative or too large; give an `int` from 1",
            )),
        }
    }
}
