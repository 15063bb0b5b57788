//! The same requests by limits that are multiplied.

use std::sync::Arc;

use tidegate::limit::MAX_COUNT;
use tidegate::rules::RuleSet;
use tidegate::{Limit, LimitError, Rate};

/// A factor, as a decimal number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleFactor {
    numerator: u64,
    /// A power of ten.
    denominator: u64,
}

impl ScaleFactor {
    /// The factor 1.
    pub const ONE: Self = Self {
        numerator: 1,
        denominator: 1,
    };

    /// A decimal number above zero, with up to six decimals.
    pub fn read(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let fraction = fraction.trim_end_matches('0');
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty()
            || whole.len() > 6
            || fraction.len() > 6
            || !is_number(whole)
            || !is_number(fraction)
        {
            return None;
        }
        let denominator = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
        let fraction = if fraction.is_empty() {
            0
        } else {
            fraction.parse().ok()?
        };
        let numerator = whole.parse::<u64>().ok()? * denominator + fraction;
        (numerator > 0).then_some(Self {
            numerator,
            denominator,
        })
    }

    /// It as a number.
    #[expect(clippy::cast_precision_loss, reason = "both are below 10^13")]
    pub fn as_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }

    fn of(self, number: u64) -> u64 {
        let product =
            u128::from(number) * u128::from(self.numerator) / u128::from(self.denominator);
        u64::try_from(product)
            .unwrap_or(MAX_COUNT)
            .clamp(1, MAX_COUNT)
    }

    fn limit(self, limit: &Limit) -> Result<Limit, LimitError> {
        let rate = limit.rate();
        let scaled = rate.with_count(self.of(rate.count));
        let scaled: Rate = match rate.burst {
            Some(burst) => scaled.burst(self.of(burst)),
            None => scaled,
        };
        Limit::new(scaled, limit.algorithm())
    }
}

/// Which limits are multiplied, and by how much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScaleSettings {
    /// The factors; sorted when they are used.
    pub factors: Vec<ScaleFactor>,
    /// The ids of the rules whose limits are multiplied; all if there are none.
    pub rules: Vec<String>,
}

impl Default for ScaleSettings {
    fn default() -> Self {
        let factor = |numerator, denominator| ScaleFactor {
            numerator,
            denominator,
        };
        Self {
            factors: vec![
                factor(5, 10),
                factor(75, 100),
                ScaleFactor::ONE,
                factor(15, 10),
                factor(2, 1),
            ],
            rules: Vec::new(),
        }
    }
}

impl ScaleSettings {
    /// No other limits.
    pub fn off() -> Self {
        Self {
            factors: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// How many factors can be compared.
    pub const MOST: usize = 32;

    /// The factors rising, without repetitions.
    pub(crate) fn sorted(&self) -> Vec<ScaleFactor> {
        let mut factors = self.factors.clone();
        let order =
            |one: &ScaleFactor, other: &ScaleFactor| one.as_f64().total_cmp(&other.as_f64());
        factors.sort_by(order);
        factors.dedup();
        factors.truncate(Self::MOST);
        factors
    }

    /// The rules with multiplied limits.
    pub(crate) fn scaled(
        &self,
        rules: &RuleSet,
        factor: ScaleFactor,
    ) -> Result<RuleSet, LimitError> {
        rules.map_rules(|rule| {
            let is_named = self.rules.is_empty() || self.rules.iter().any(|id| id == rule.id());
            if is_named {
                rule.with_limits(|limit| factor.limit(limit)).map(Arc::new)
            } else {
                Ok(Arc::clone(rule))
            }
        })
    }
}

/// What was decided by multiplied limits.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScaleTally {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// For each rule, what it allowed and denied.
    pub(crate) rules: Vec<(u64, u64)>,
}

impl ScaleTally {
    pub(super) fn new(rules: usize) -> Self {
        Self {
            rules: vec![(0, 0); rules],
            ..Self::default()
        }
    }

    pub(super) fn count(&mut self, is_allowed: bool) {
        self.allowed += u64::from(is_allowed);
        self.denied += u64::from(!is_allowed);
    }

    pub(super) fn count_rule(&mut self, rule: usize, is_denied: bool) {
        let counts = &mut self.rules[rule];
        counts.0 += u64::from(!is_denied);
        counts.1 += u64::from(is_denied);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_decimals() {
        let of = |text: &str, number: u64| ScaleFactor::read(text).unwrap().of(number);
        assert_eq!(of("0.1", 3), 1, "at least one");
        assert_eq!(of("0.29", 100), 29, "as decimals, not as binary fractions");
        assert_eq!(of("1.15", 100), 115);
        assert_eq!(of("0.75", 5), 3);
        assert_eq!(of("2", 1_000_000_000), MAX_COUNT);
        for text in ["", "0", "0.0", "-1", "1e3", "x", ".5", "1.0000001", "inf"] {
            assert_eq!(ScaleFactor::read(text), None, "{text}");
        }
        assert_eq!(ScaleFactor::read("1.00"), Some(ScaleFactor::ONE));
    }
}
