//! What a request may cost, before it is sent.

use crate::prices::ModelPrice;
use crate::tokens::{TokenCounts, UsageUnit};

/// How requests are estimated.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EstimateSettings {
    /// The output of a request without a maximum.
    pub output: u64,
    /// The most output that is estimated, whatever the request asks for.
    pub output_cap: Option<u64>,
    /// How many bytes of a body are one token of input.
    pub bytes_per_token: u64,
    /// How many tokens a picture or another medium is, in place of its bytes.
    pub media: u64,
}

impl Default for EstimateSettings {
    fn default() -> Self {
        Self {
            output: 1_000,
            output_cap: None,
            bytes_per_token: 4,
            media: 1_000,
        }
    }
}

/// The estimated tokens of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenEstimate {
    counts: TokenCounts,
    has_maximum: bool,
}

impl TokenEstimate {
    pub(crate) fn new(input: u64, output: u64, has_maximum: bool) -> Self {
        Self {
            counts: TokenCounts::new(input, output),
            has_maximum,
        }
    }

    /// The tokens of the input.
    pub fn input(&self) -> u64 {
        self.counts.input
    }

    /// The tokens of the output.
    pub fn output(&self) -> u64 {
        self.counts.output
    }

    /// The tokens.
    pub fn counts(&self) -> TokenCounts {
        self.counts
    }

    /// The cost in a unit, at least 1: a rule that counts the unit is asked. `None` for money without a price.
    pub fn cost(&self, unit: UsageUnit, price: Option<&ModelPrice>) -> Option<u64> {
        self.counts.cost(unit, price).map(|cost| cost.max(1))
    }

    /// Reduces the output so that the cost in a unit is at most `most`, as far as it can. A request that says its
    /// maximum keeps it.
    ///
    /// ```
    /// use tidegate_usage::{EstimateSettings, ModelRequest, UsageForm, UsageUnit};
    ///
    /// let form = UsageForm::openai();
    /// let request = ModelRequest::read(&form, "/v1/chat/completions", b"{\"messages\": []}").unwrap();
    /// let mut estimate = request.estimate(&EstimateSettings::default());
    /// assert_eq!(estimate.cost(UsageUnit::Tokens, None), Some(1_004));
    /// estimate.fit(UsageUnit::Tokens, 100, None);
    /// assert_eq!(estimate.cost(UsageUnit::Tokens, None), Some(100));
    /// ```
    pub fn fit(&mut self, unit: UsageUnit, most: u64, price: Option<&ModelPrice>) {
        if self.has_maximum {
            return;
        }
        let output = match unit {
            UsageUnit::InputTokens => return,
            UsageUnit::OutputTokens => most,
            UsageUnit::Tokens | UsageUnit::UncachedTokens => most.saturating_sub(self.counts.input),
            UsageUnit::Money => match price {
                Some(price) => price.output_for(&self.counts, most),
                None => return,
            },
        };
        self.counts.output = self.counts.output.min(output);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prices::{MoneyUnit, PriceList, PriceRow};

    #[test]
    fn output_is_reduced_only_without_a_maximum() {
        let mut asked = TokenEstimate::new(10, 500, true);
        asked.fit(UsageUnit::Tokens, 100, None);
        assert_eq!(asked.output(), 500);
        for (unit, most, output) in [
            (UsageUnit::Tokens, 100, 90),
            (UsageUnit::UncachedTokens, 100, 90),
            (UsageUnit::OutputTokens, 100, 100),
            (UsageUnit::InputTokens, 1, 500),
            (UsageUnit::Tokens, 1_000, 500),
            (UsageUnit::Tokens, 5, 0),
            (UsageUnit::Money, 1, 500),
        ] {
            let mut open = TokenEstimate::new(10, 500, false);
            open.fit(unit, most, None);
            assert_eq!(open.output(), output, "{unit:?} {most}");
        }
    }

    #[test]
    fn money_is_fitted_by_the_price() {
        let mut prices = PriceList::new(MoneyUnit::default());
        let row = PriceRow::new("10".parse().unwrap(), "30".parse().unwrap());
        prices.add("*", row);
        let price = prices.price("m");
        let mut open = TokenEstimate::new(100, 1_000, false);
        assert_eq!(open.cost(UsageUnit::Money, price.as_ref()), Some(310));
        open.fit(UsageUnit::Money, 100, price.as_ref());
        assert_eq!(open.output(), 300);
        assert_eq!(open.cost(UsageUnit::Money, price.as_ref()), Some(100));
    }

    #[test]
    fn an_estimate_is_at_least_one() {
        let embedding = TokenEstimate::new(10, 0, false);
        assert_eq!(embedding.cost(UsageUnit::OutputTokens, None), Some(1));
    }
}
