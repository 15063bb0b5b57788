//! What a gate is given: rules, and the attributes of requests.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyString};
use tidegate::Attributes;
use tidegate::rules::{RuleSet, RuleSettings, Source};

use crate::arguments::RequestCost;
use crate::errors::rules_error;

/// Reads rules: the text of a rule file, or a list of rules.
pub(crate) fn read_rules(rules: &Bound<'_, PyAny>) -> PyResult<RuleSet> {
    let py = rules.py();
    if let Ok(text) = rules.cast::<PyString>() {
        return parse_rules(py, "rules", text.to_str()?);
    }
    if rules.is_instance_of::<pyo3::types::PyBytes>() || rules.is_none() {
        return Err(not_rules());
    }
    let document = PyDict::new(py);
    if let Ok(whole) = rules.cast::<PyMapping>() {
        document.update(whole)?;
    } else {
        let list = rules.try_iter().map_err(|_| not_rules())?;
        document.set_item("rules", list.collect::<PyResult<Vec<_>>>()?)?;
    }
    let text = py.import("json")?.call_method1("dumps", (document,));
    let text = text.map_err(|_| not_rules())?;
    parse_rules(py, "rules", text.cast::<PyString>()?.to_str()?)
}

fn not_rules() -> PyErr {
    PyTypeError::new_err("`rules` is the text of a rule file, or a list of rules as dictionaries")
}

pub(crate) fn parse_rules(py: Python<'_>, name: &str, text: &str) -> PyResult<RuleSet> {
    let source = Source::new(name, text);
    let rules = RuleSet::read(&source, &RuleSettings::default());
    rules.map_err(|problems| rules_error(py, &problems))
}

/// Reads the attributes of a request.
pub(crate) fn read_attributes(
    attributes: &Bound<'_, PyAny>,
    cost: RequestCost,
) -> PyResult<Attributes<'static>> {
    let mut read = Attributes::new().with_cost(cost.0);
    let wrong = || PyTypeError::new_err("attributes are a dictionary of texts");
    let mapping = attributes.cast::<PyMapping>().map_err(|_| wrong())?;
    for item in mapping.items()? {
        let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
        let name = name
            .cast::<PyString>()
            .map_err(|_| wrong())?
            .to_str()?
            .to_owned();
        let Ok(value) = value.cast::<PyString>() else {
            let kind = value.get_type().name()?;
            let message = format!("the attribute `{name}` is a text, not `{kind}`");
            return Err(PyTypeError::new_err(message));
        };
        let value = value.to_str()?.to_owned();
        let inserted = read.insert(name, value);
        inserted.map_err(|error| PyValueError::new_err(error.to_string()))?;
    }
    Ok(read)
}
