//! Errors of Rust as those of Python. The classes are in `python/tidegate/_errors.py`.

use std::error::Error as _;

use pyo3::prelude::*;
use pyo3::types::PyList;
use tidegate::rules::{Place, Problems};
use tidegate::{LimitError, StoreError};

mod classes {
    pyo3::import_exception!(tidegate._errors, LimitError);
    pyo3::import_exception!(tidegate._errors, RateLimited);
    pyo3::import_exception!(tidegate._errors, RulesError);
    pyo3::import_exception!(tidegate._errors, StoreError);
}

pub(crate) use classes::{RateLimited, StoreError as StoreFailed};

/// A limit that is malformed.
pub(crate) fn limit_error(error: &LimitError) -> PyErr {
    classes::LimitError::new_err(error.to_string())
}

/// The same, with a message of the binding.
pub(crate) fn invalid_limit(message: String) -> PyErr {
    classes::LimitError::new_err(message)
}

/// A store that did not answer.
pub(crate) fn store_error(error: &StoreError) -> PyErr {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    unanswered(message, error.left_nothing())
}

/// A store that could not be asked, for a reason of its own.
pub(crate) fn unanswered(message: String, is_nothing_charged: bool) -> PyErr {
    let charged = is_nothing_charged.then_some(false);
    classes::StoreError::new_err((message, charged))
}

/// Rules that are malformed, with every problem as line, column and message.
pub(crate) fn rules_error(py: Python<'_>, problems: &Problems) -> PyErr {
    match listed(py, problems) {
        Ok(list) => classes::RulesError::new_err((problems.to_string(), list.unbind())),
        Err(error) => error,
    }
}

fn listed<'py>(py: Python<'py>, problems: &Problems) -> PyResult<Bound<'py, PyList>> {
    let problem = py.import("tidegate._errors")?.getattr("Problem")?;
    let list = PyList::empty(py);
    for found in problems.errors() {
        let (line, column) = match &found.place {
            Place::Text { line, column, .. } => (*line, *column),
            Place::Setting(_) | Place::Nowhere => (0, 0),
        };
        list.append(problem.call1((line, column, found.message.as_str()))?)?;
    }
    Ok(list)
}
