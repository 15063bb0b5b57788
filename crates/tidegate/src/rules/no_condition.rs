//! Conditions where the feature `cel` is off: none can be read, so there are none.

use tidegate_core::CostUnit;

use super::facts::{ConditionFailed, Reading};
use super::work::ConditionWork;

/// A condition on the attributes and the cost of a request. There are none without the feature `cel`.
#[derive(Debug, Clone, PartialEq)]
pub enum NoCondition {}

pub use self::NoCondition as Condition;

impl Condition {
    pub(super) fn parse(_text: &str) -> Result<Self, String> {
        Err("a condition needs the feature `cel` of the crate `tidegate`, which this program was built without; enable it, or remove `when`".to_owned())
    }

    /// The condition as it was written.
    pub fn text(&self) -> &str {
        match *self {}
    }

    pub(super) fn names(&self) -> Option<Vec<&str>> {
        match *self {}
    }

    pub(super) fn work(&self) -> &ConditionWork {
        match *self {}
    }

    pub(super) fn reads(&self, _attribute: &str) -> bool {
        match *self {}
    }

    pub(super) fn reads_by_name(&self) -> std::iter::Empty<Option<&str>> {
        match *self {}
    }

    pub(super) fn holds(
        &self,
        _reading: &Reading<'_, '_>,
        _unit: &CostUnit,
    ) -> Result<bool, ConditionFailed> {
        match *self {}
    }
}
