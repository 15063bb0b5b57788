//! What tokens cost: the operator's own prices for models, in whole numbers.

use std::str::FromStr;

use thiserror::Error;

use crate::json::MAX_NUMBER;
use crate::tokens::TokenCounts;

/// The prices of models, by patterns of their names.
///
/// ```
/// use tidegate_usage::{MoneyUnit, PriceList, PriceRow, TokenCounts, UsageUnit};
///
/// let mut prices = PriceList::new("0.0001".parse::<MoneyUnit>()?);
/// prices.add("*", PriceRow::new("10".parse()?, "30".parse()?));
/// prices.add("claude-*", PriceRow::new("3".parse()?, "15".parse()?));
/// let price = prices.price("claude-sonnet-4-5").unwrap();
/// // 1,000 × 3 / 1,000,000 = 0.003, which is 30 of 0.0001.
/// let counts = TokenCounts::new(1_000, 0);
/// assert_eq!(counts.cost(UsageUnit::Money, Some(&price)), Some(30));
/// # Ok::<(), tidegate_usage::AmountError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceList {
    unit: MoneyUnit,
    /// The longest pattern first.
    rows: Vec<(String, PriceRow)>,
}

/// The prices of a model, per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PriceRow {
    /// Of the input.
    pub input: PriceAmount,
    /// Of input that was read from a cache; by default that of the input.
    pub cached: PriceAmount,
    /// Of input that was written to a cache; by default that of the input.
    pub cache_write: PriceAmount,
    /// Of the output.
    pub output: PriceAmount,
}

/// The prices of one model, in the unit `money`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelPrice {
    row: PriceRow,
    unit: MoneyUnit,
}

/// An amount of money, in billionths, from 0 to 1,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PriceAmount(u64);

/// What 1 of the unit `money` is worth: 0.000001 to 0.01.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MoneyUnit(u64);

/// An amount that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AmountError {
    /// Not a decimal number.
    #[error("`{0}` is not an amount: expected a number such as `0.25`, with at most 9 decimals")]
    Number(String),
    /// Above the maximum.
    #[error("`{0}` is too large: expected at most 1000000")]
    Large(String),
    /// Not a unit.
    #[error("`{0}` is out of range: expected 0.000001 to 0.01")]
    Unit(String),
}

const BILLION: u64 = 1_000_000_000;
const DECIMALS: usize = 9;
const MAX_AMOUNT: u64 = 1_000_000;

impl FromStr for PriceAmount {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Self, AmountError> {
        let invalid = || AmountError::Number(text.to_owned());
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) {
            return Err(invalid());
        }
        let decimals = decimals.trim_end_matches('0');
        if decimals.len() > DECIMALS {
            return Err(invalid());
        }
        let whole: u64 = whole.parse().unwrap_or(u64::MAX);
        let fraction: u64 = format!("{decimals:0<DECIMALS$}")
            .parse()
            .map_err(|_| invalid())?;
        if whole > MAX_AMOUNT || (whole == MAX_AMOUNT && fraction > 0) {
            return Err(AmountError::Large(text.to_owned()));
        }
        Ok(Self(whole * BILLION + fraction))
    }
}

impl FromStr for MoneyUnit {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Self, AmountError> {
        match text.parse()? {
            PriceAmount(amount @ 1_000..=10_000_000) => Ok(Self(amount)),
            PriceAmount(_) => Err(AmountError::Unit(text.to_owned())),
        }
    }
}

impl Default for MoneyUnit {
    /// 0.0001.
    fn default() -> Self {
        Self(BILLION / 10_000)
    }
}

impl PriceRow {
    /// Prices of input and output; a cache costs the same as input.
    pub fn new(input: PriceAmount, output: PriceAmount) -> Self {
        Self {
            input,
            cached: input,
            cache_write: input,
            output,
        }
    }
}

impl PriceList {
    /// A list without prices.
    pub fn new(unit: MoneyUnit) -> Self {
        Self {
            unit,
            rows: Vec::new(),
        }
    }

    /// Adds the prices of the models that match a pattern, in which `*` stands for any text. Of patterns that are equally
    /// long, the first one added wins.
    pub fn add(&mut self, pattern: &str, row: PriceRow) {
        let longer = |(known, _): &(String, PriceRow)| known.len() >= pattern.len();
        let index = self.rows.partition_point(longer);
        self.rows.insert(index, (pattern.to_owned(), row));
    }

    /// The prices of a model: those of the longest pattern that matches its name.
    pub fn price(&self, model: &str) -> Option<ModelPrice> {
        let mut rows = self.rows.iter();
        let (_, row) = rows.find(|(pattern, _)| matches(pattern, model))?;
        let (row, unit) = (*row, self.unit);
        Some(ModelPrice { row, unit })
    }
}

/// Whether a text matches a pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(first) else {
        return false;
    };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*').filter(|part| !part.is_empty()) {
        let Some((_, after)) = text.split_once(part) else {
            return false;
        };
        text = after;
    }
    text.ends_with(last)
}

impl ModelPrice {
    /// The cost of tokens, rounded up once, at most 2^53 - 1.
    pub(crate) fn cost(&self, counts: &TokenCounts) -> u64 {
        let cost = self.parts(counts).div_ceil(self.parts_of_one());
        u64::try_from(cost).unwrap_or(u64::MAX).min(MAX_NUMBER)
    }

    /// The most output that costs no more than `most` together with these tokens, whose output is left out.
    pub(crate) fn output_for(&self, counts: &TokenCounts, most: u64) -> u64 {
        let input = TokenCounts {
            output: 0,
            ..*counts
        };
        let room = u128::from(most) * self.parts_of_one();
        let left = room.saturating_sub(self.parts(&input));
        match left.checked_div(u128::from(self.row.output.0)) {
            Some(output) => u64::try_from(output).unwrap_or(u64::MAX),
            None => u64::MAX,
        }
    }

    /// Σ tokens × price, in billionths for a million tokens.
    fn parts(&self, counts: &TokenCounts) -> u128 {
        let cached = counts.cached.min(counts.input);
        let cache_write = counts.cache_write.min(counts.input - cached);
        let plain = counts.input - cached - cache_write;
        let row = &self.row;
        [
            (plain, row.input),
            (cached, row.cached),
            (cache_write, row.cache_write),
            (counts.output, row.output),
        ]
        .into_iter()
        .map(|(tokens, price)| u128::from(tokens) * u128::from(price.0))
        .sum()
    }

    /// What 1 of the unit is, in the same parts.
    fn parts_of_one(&self) -> u128 {
        u128::from(self.unit.0) * 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> PriceAmount {
        text.parse().unwrap()
    }

    fn counts(input: u64, cached: u64, cache_write: u64, output: u64) -> TokenCounts {
        TokenCounts {
            input,
            cached,
            cache_write,
            output,
        }
    }

    fn claude() -> PriceRow {
        PriceRow {
            cached: amount("0.3"),
            cache_write: amount("3.75"),
            ..PriceRow::new(amount("3"), amount("15"))
        }
    }

    #[test]
    fn costs_are_whole_and_rounded_up_once() {
        let mut prices = PriceList::new(MoneyUnit::default());
        prices.add("m", claude());
        let price = prices.price("m").unwrap();
        // Units of 0.0001: a million tokens of input are 30,000.
        for (tokens, cost) in [
            (counts(0, 0, 0, 0), 0),
            (counts(1, 0, 0, 0), 1),
            (counts(33, 0, 0, 0), 1),
            (counts(34, 0, 0, 0), 2),
            (counts(1_000_000, 0, 0, 0), 30_000),
            (counts(1_000_000, 1_000_000, 0, 0), 3_000),
            (counts(1_000_000, 0, 1_000_000, 0), 37_500),
            (counts(1_000_000, 0, 0, 1_000_000), 180_000),
            // Each part alone would be rounded up to 1.
            (counts(3, 1, 1, 1), 1),
            // More cached than read: all of the input is cached.
            (counts(1_000_000, 5_000_000, 9, 0), 3_000),
            (counts(MAX_NUMBER, 0, 0, MAX_NUMBER), 1_621_295_865_853_379),
        ] {
            assert_eq!(price.cost(&tokens), cost, "{tokens:?}");
        }
    }

    #[test]
    fn output_that_fits_costs_no_more() {
        let mut prices = PriceList::new(MoneyUnit::default());
        prices.add("m", claude());
        prices.add("free", PriceRow::new(amount("1"), amount("0")));
        let price = prices.price("m").unwrap();
        for (input, most) in [(0, 1), (10, 5), (33, 1), (34, 2), (1_000, 29), (1_000, 30)] {
            let output = price.output_for(&TokenCounts::new(input, 7), most);
            let fits = |output| price.cost(&TokenCounts::new(input, output)) <= most;
            assert!(fits(output) || output == 0, "{input} {most}");
            assert!(!fits(output + 1), "{input} {most}");
        }
        let free = prices.price("free").unwrap();
        assert_eq!(free.output_for(&TokenCounts::new(1, 0), 1), u64::MAX);
    }

    #[test]
    fn the_longest_pattern_wins() {
        let mut prices = PriceList::new(MoneyUnit::default());
        for (pattern, input) in [
            ("*", "1"),
            ("gpt-5-mini", "2"),
            ("gpt-*", "3"),
            ("gpt-5*", "4"),
            ("*-mini*x*", "5"),
        ] {
            prices.add(pattern, PriceRow::new(amount(input), amount("0")));
        }
        for (model, input) in [
            ("gpt-5-mini", "2"),
            ("gpt-5-mini-2", "4"),
            ("gpt-4", "3"),
            ("o-mini-x", "5"),
            ("o-minix", "5"),
            ("o-mini", "1"),
            ("", "1"),
        ] {
            let price = prices.price(model).unwrap();
            assert_eq!(price.row.input, amount(input), "{model}");
        }
        let none = PriceList::new(MoneyUnit::default());
        assert_eq!(none.price("gpt-5"), None);
        assert!(matches("a*a", "aa") && !matches("a*a", "a"));
    }

    #[test]
    fn amounts_are_exact_decimals() {
        assert_eq!(amount("0.25"), PriceAmount(250_000_000));
        assert_eq!(amount("3"), PriceAmount(3_000_000_000));
        assert_eq!(amount("0.0000000010000"), PriceAmount(1));
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "1e3",
            "0.0000000001",
            "1,5",
            "1.2.3",
        ] {
            let error = text.parse::<PriceAmount>().unwrap_err();
            assert_eq!(error, AmountError::Number(text.to_owned()));
        }
        for text in ["1000000.1", "99999999999999999999999999"] {
            let error = text.parse::<PriceAmount>().unwrap_err();
            assert_eq!(error, AmountError::Large(text.to_owned()));
        }
        for text in ["0.000001", "0.01", "0.0001"] {
            text.parse::<MoneyUnit>().unwrap();
        }
        for text in ["0.0000009", "0.011", "0", "1"] {
            let error = text.parse::<MoneyUnit>().unwrap_err();
            assert_eq!(error, AmountError::Unit(text.to_owned()));
        }
    }
}
