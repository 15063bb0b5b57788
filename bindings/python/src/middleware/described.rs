//! What an application adds to a request: attributes, a cost, and the paths by which it may know the request.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyMapping, PyString};
use tidegate::path::EncodedSlashes;
use tidegate_tower::RateLimitLayer;

use crate::arguments::RequestCost;

/// What is added to a request, as one of its extensions.
#[derive(Clone, Default)]
pub(super) struct PythonCall {
    pub(super) other_paths: Vec<String>,
    attributes: Vec<(String, String)>,
    cost: Option<u64>,
}

impl PythonCall {
    /// Reads what the functions of an application have returned.
    pub(super) fn read(
        attributes: Option<&Bound<'_, PyAny>>,
        cost: Option<RequestCost>,
    ) -> PyResult<Self> {
        let attributes = attributes.map(read_attributes).transpose()?;
        Ok(Self {
            other_paths: Vec::new(),
            attributes: attributes.unwrap_or_default(),
            cost: cost.map(|cost| cost.0),
        })
    }

    /// Whether the application names the address of the client itself.
    pub(super) fn has_address(&self) -> bool {
        self.attributes.iter().any(|(name, _)| name == "ip")
    }

    /// Whether it adds nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.other_paths.is_empty() && self.attributes.is_empty() && self.cost.is_none()
    }
}

fn read_attributes(given: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
    let Ok(given) = given.cast::<PyMapping>() else {
        return Err(not_text("`attributes` returns a dict of texts", given)?);
    };
    let mut found = Vec::new();
    for pair in given.items()?.iter() {
        let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
        let Ok(name) = name.cast::<PyString>() else {
            return Err(not_text("the name of an attribute is a `str`", &name)?);
        };
        let name = name.to_str()?.to_owned();
        // A client of which something is not known.
        if value.is_none() {
            found.push((name, String::new()));
            continue;
        }
        let Ok(value) = value.cast::<PyString>() else {
            let message = format!("the attribute `{name}` is a `str` or `None`");
            return Err(not_text(&message, &value)?);
        };
        found.push((name, value.to_str()?.to_owned()));
    }
    Ok(found)
}

fn not_text(expected: &str, given: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let kind = given.get_type().name()?;
    Ok(PyTypeError::new_err(format!("{expected}, not `{kind}`")))
}

/// The layer, with what its requests bring as [`PythonCall`].
pub(super) fn with_descriptions(layer: RateLimitLayer) -> RateLimitLayer {
    layer.attributes(|request, attributes| {
        let Some(described) = request.extensions.get::<PythonCall>() else {
            return Ok(());
        };
        for path in &described.other_paths {
            attributes.add_path_reading(path, EncodedSlashes::Decode)?;
        }
        for (name, value) in &described.attributes {
            attributes.set(name.as_str(), value.as_str())?;
        }
        if let Some(cost) = described.cost {
            attributes.set_cost(cost);
        }
        Ok(())
    })
}
