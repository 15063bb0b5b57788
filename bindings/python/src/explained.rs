//! The answer of `explain`, as dictionaries with the names of `POST /v1/explain`.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tidegate::gate::{ExplainedRule, ExplainedTier, Explanation};

use crate::clock::seconds_of;
use crate::decision::PyDecision;

/// The rules and the decision that a check would have made.
pub(crate) fn as_dict<'py>(
    py: Python<'py>,
    explanation: &Explanation,
    decision: PyDecision,
) -> PyResult<Bound<'py, PyDict>> {
    let rules = PyList::empty(py);
    for rule in explanation.rules() {
        rules.append(rule_as_dict(py, explanation, rule)?)?;
    }
    let all = PyDict::new(py);
    all.set_item("rules", rules)?;
    all.set_item("omitted", explanation.omitted())?;
    all.set_item("decision", Py::new(py, decision)?)?;
    Ok(all)
}

fn rule_as_dict<'py>(
    py: Python<'py>,
    explanation: &Explanation,
    explained: &ExplainedRule,
) -> PyResult<Bound<'py, PyDict>> {
    let rule = PyDict::new(py);
    rule.set_item("rule", explained.rule.id())?;
    rule.set_item("applies", explained.applies())?;
    let failed = explained.failed.as_ref().map(|failed| {
        let condition = PyDict::new(py);
        condition.set_item("condition", &failed.condition)?;
        condition.set_item("expected", &failed.expected)?;
        condition.set_item("actual", failed.actual.as_deref())?;
        PyResult::Ok(condition)
    });
    rule.set_item("failed", failed.transpose()?)?;
    let grant = explained.grant.as_ref().map(|grant| {
        let granted = PyDict::new(py);
        granted.set_item("from", grant.source.name())?;
        granted.set_item("value", &grant.text)?;
        PyResult::Ok(granted)
    });
    rule.set_item("grant", grant.transpose()?)?;
    let key = explained.key.as_ref().map(|values| {
        let key = PyDict::new(py);
        for (name, value) in values {
            key.set_item(name, value)?;
        }
        PyResult::Ok(key)
    });
    rule.set_item("key", key.transpose()?)?;
    match &explained.tier {
        Some(ExplainedTier::Known(tier)) => rule.set_item("tier", tier)?,
        Some(ExplainedTier::Unknown(tiers)) => {
            rule.set_item("tier", "unknown")?;
            let known = PyDict::new(py);
            for (name, limit) in tiers {
                known.set_item(name, limit)?;
            }
            rule.set_item("tiers", known)?;
        }
        Some(_) | None => rule.set_item("tier", py.None())?,
    }
    let limits = PyList::empty(py);
    for limit in explanation.limits_of(&explained.rule) {
        let answer = PyDict::new(py);
        answer.set_item("allowed", limit.outcome.allowed)?;
        answer.set_item("limit", limit.outcome.limit)?;
        answer.set_item("remaining", limit.outcome.remaining)?;
        answer.set_item("retry_after", limit.outcome.retry.wait().map(seconds_of))?;
        answer.set_item("reason", limit.reason.map(tidegate::Reason::name))?;
        answer.set_item("promise", limit.highest().map(|limit| limit.promise()))?;
        limits.append(answer)?;
    }
    rule.set_item("limits", limits)?;
    Ok(rule)
}
