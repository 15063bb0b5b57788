//! The tokens of a request, and the units that rules count them in.

use crate::json::MAX_NUMBER;
use crate::prices::ModelPrice;

/// The tokens of one request, as reported or as estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TokenCounts {
    /// All tokens of the input.
    pub input: u64,
    /// Those of the input that were read from a cache.
    pub cached: u64,
    /// Those of the input that were written to a cache.
    pub cache_write: u64,
    /// The tokens of the output.
    pub output: u64,
}

/// A unit that rules count in, made of the tokens of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UsageUnit {
    /// `input_tokens`.
    InputTokens,
    /// `output_tokens`.
    OutputTokens,
    /// `tokens`: input and output.
    Tokens,
    /// `uncached_tokens`: input and output, without what was read from a cache.
    UncachedTokens,
    /// `money`, by the operator's prices.
    Money,
}

impl UsageUnit {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::InputTokens,
        Self::OutputTokens,
        Self::Tokens,
        Self::UncachedTokens,
        Self::Money,
    ];

    /// Its name in rules, headers and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
            Self::Tokens => "tokens",
            Self::UncachedTokens => "uncached_tokens",
            Self::Money => "money",
        }
    }

    /// The unit of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name() == name)
    }
}

impl TokenCounts {
    /// Counts of an input and an output, nothing of which is cached.
    pub fn new(input: u64, output: u64) -> Self {
        Self {
            input,
            output,
            ..Self::default()
        }
    }

    /// The cost in a unit, at most 2^53 - 1. `None` for money without a price.
    ///
    /// ```
    /// use tidegate_usage::{TokenCounts, UsageUnit};
    ///
    /// let counts = TokenCounts::new(20, 40);
    /// assert_eq!(counts.cost(UsageUnit::Tokens, None), Some(60));
    /// assert_eq!(counts.cost(UsageUnit::Money, None), None);
    /// ```
    pub fn cost(&self, unit: UsageUnit, price: Option<&ModelPrice>) -> Option<u64> {
        let both = self.input.saturating_add(self.output);
        let cost = match unit {
            UsageUnit::InputTokens => self.input,
            UsageUnit::OutputTokens => self.output,
            UsageUnit::Tokens => both,
            UsageUnit::UncachedTokens => both.saturating_sub(self.cached.min(self.input)),
            UsageUnit::Money => price?.cost(self),
        };
        Some(cost.min(MAX_NUMBER))
    }

    /// The costs in all units that have one; `money` only with a price.
    pub fn costs<'p>(
        &self,
        price: Option<&'p ModelPrice>,
    ) -> impl Iterator<Item = (UsageUnit, u64)> + use<'p> {
        let counts = *self;
        let cost = move |unit| Some((unit, counts.cost(unit, price)?));
        UsageUnit::ALL.into_iter().filter_map(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_made_of_input_output_and_cached() {
        let counts = TokenCounts {
            input: 100,
            cached: 80,
            cache_write: 5,
            output: 7,
        };
        let costs: Vec<_> = counts
            .costs(None)
            .map(|(unit, cost)| (unit.name(), cost))
            .collect();
        assert_eq!(
            costs,
            [
                ("input_tokens", 100),
                ("output_tokens", 7),
                ("tokens", 107),
                ("uncached_tokens", 27),
            ]
        );
    }

    #[test]
    fn more_cached_than_read_takes_nothing_from_the_output() {
        let counts = TokenCounts {
            input: 10,
            cached: 500,
            cache_write: 0,
            output: 7,
        };
        assert_eq!(counts.cost(UsageUnit::UncachedTokens, None), Some(7));
    }

    #[test]
    fn every_unit_has_its_name() {
        for unit in UsageUnit::ALL {
            assert_eq!(UsageUnit::named(unit.name()), Some(unit));
        }
        assert_eq!(UsageUnit::named("requests"), None);
    }
}
