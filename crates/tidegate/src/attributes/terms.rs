//! What is asked for a request besides its attributes: its cost, and its time.

use tidegate_core::{CostUnit, Costs, Timestamp};

use super::Attributes;

/// The unit of rules that deny a request without a price.
pub(crate) const MONEY: &str = "money";

impl Attributes<'_> {
    /// The same request with this cost, or with costs by unit. Zero asks and takes nothing.
    #[must_use]
    #[inline]
    pub fn with_cost(mut self, cost: impl Into<Costs>) -> Self {
        self.costs = cost.into();
        self
    }

    /// The same request at a time of its own: for replays and tests.
    #[must_use]
    pub fn at(self, at: impl Into<Timestamp>) -> Self {
        Self {
            at: Some(at.into()),
            ..self
        }
    }

    /// Says that nothing is known of what the request costs in `money`, such as for a model without a price: rules that
    /// count it deny the request.
    pub fn set_unpriced(&mut self) {
        self.is_unpriced = true;
    }

    /// Whether its cost in `money` is not known.
    #[inline]
    pub(crate) fn is_unpriced(&self) -> bool {
        self.is_unpriced
    }

    /// Makes this the time of the request: for replays and tests.
    pub fn set_time(&mut self, at: impl Into<Timestamp>) {
        self.at = Some(at.into());
    }

    /// Makes this the cost of the request. Zero asks and takes nothing.
    pub fn set_cost(&mut self, cost: impl Into<Costs>) {
        self.costs = cost.into();
    }

    /// How much the request takes of rules that count requests.
    pub fn cost(&self) -> u64 {
        self.costs.of(&CostUnit::REQUESTS)
    }

    /// How much the request takes of rules, by their unit.
    #[inline]
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// The request's own time, if it brings one.
    pub fn time(&self) -> Option<Timestamp> {
        self.at
    }
}
