//! What a request costs: one number for every rule, or numbers by unit.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use smallvec::SmallVec;
use smol_str::SmolStr;

/// The largest cost in one unit: the largest number that every JSON reader holds exactly.
pub const MAX_COST: u64 = (1 << 53) - 1;
/// How many units [`Costs`] may name.
pub const MAX_UNITS: usize = 32;
/// The longest name of a unit.
const LONGEST: usize = 32;
/// The unit of a rule that names none.
const REQUESTS: &str = "requests";

/// What a rule counts in: `requests`, `tokens`, `money`. 1 to 32 lower-case letters, digits and `_`, beginning with a
/// letter.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CostUnit(
    /// None for `requests`, which most rules count.
    Option<SmolStr>,
);

/// What a request costs: one cost that every rule is charged, or costs by unit.
///
/// By unit, a rule whose unit is named is charged that number; of the others, rules that count requests are charged 1
/// and the rest nothing. A rule's own `cost` multiplies it. A single cost needs no allocation.
///
/// ```
/// use tidegate_core::Costs;
///
/// let all = Costs::from(3);
/// let by_unit = Costs::by_unit([("tokens", 60), ("input_tokens", 20)])?;
/// # assert!(all.plain() == Some(3) && by_unit.plain().is_none());
/// assert_eq!(by_unit.to_string(), "input_tokens=20 tokens=60");
/// # Ok::<(), tidegate_core::CostsError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Costs(CostList);

/// Two words, because attributes and receipts that have it are moved.
#[derive(Clone, PartialEq, Eq)]
enum CostList {
    /// One for every rule.
    One(u64),
    /// In the order of the names.
    ByUnit(Arc<[(CostUnit, u64)]>),
}

/// Why costs were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CostsError {
    /// A name that cannot be one of a unit.
    #[error(
        "`{name}` cannot be a unit; use 1 to {LONGEST} lower-case letters, digits and `_`, beginning with a letter"
    )]
    BadUnit {
        /// The given name, shortened.
        name: String,
    },
    /// The same unit a second time.
    #[error("the unit `{unit}` is given twice")]
    Twice {
        /// The unit.
        unit: CostUnit,
    },
    /// A cost that is too large.
    #[error("the cost in `{unit}` is {cost}; give at most {MAX_COST}")]
    TooLarge {
        /// Its unit.
        unit: CostUnit,
        /// The given cost.
        cost: u64,
    },
    /// More units than costs may have.
    #[error("there are more than {MAX_UNITS} units")]
    TooMany,
    /// A text that is not costs.
    #[error("expected a number, or `unit=number` for each unit")]
    Unreadable,
}

impl CostUnit {
    /// The unit of a rule that names none.
    pub const REQUESTS: Self = Self(None);

    /// The unit with this name.
    pub fn new(name: &str) -> Result<Self, CostsError> {
        let begins = name
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_lowercase());
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if !begins || name.len() > LONGEST || !name.bytes().all(fits) {
            return Err(CostsError::BadUnit {
                name: shortened(name),
            });
        }
        Ok(Self((name != REQUESTS).then(|| SmolStr::new(name))))
    }

    /// Its name.
    #[inline]
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or(REQUESTS)
    }

    /// Whether it is `requests`.
    #[inline]
    pub fn is_requests(&self) -> bool {
        self.0.is_none()
    }
}

impl Default for CostUnit {
    fn default() -> Self {
        Self::REQUESTS
    }
}

/// By name.
impl Ord for CostUnit {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl PartialOrd for CostUnit {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for CostUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for CostUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The beginning of a name, without control characters.
fn shortened(name: &str) -> String {
    let mut short = name
        .chars()
        .take(LONGEST)
        .collect::<String>()
        .escape_debug()
        .to_string();
    if name.chars().nth(LONGEST).is_some() {
        short.push('…');
    }
    short
}

impl Costs {
    /// Costs by unit, each unit once.
    pub fn by_unit<'n>(
        costs: impl IntoIterator<Item = (&'n str, u64)>,
    ) -> Result<Self, CostsError> {
        let costs = costs.into_iter();
        Self::try_of_units(costs.map(|(name, cost)| Ok((CostUnit::new(name)?, cost))))
    }

    /// The same by units that are known to be valid.
    pub fn of_units(costs: impl IntoIterator<Item = (CostUnit, u64)>) -> Result<Self, CostsError> {
        Self::try_of_units(costs.into_iter().map(Ok))
    }

    fn try_of_units(
        costs: impl Iterator<Item = Result<(CostUnit, u64), CostsError>>,
    ) -> Result<Self, CostsError> {
        let mut list: SmallVec<[(CostUnit, u64); 5]> = SmallVec::new();
        for costing in costs {
            let (unit, cost) = costing?;
            if cost > MAX_COST {
                return Err(CostsError::TooLarge { unit, cost });
            }
            let is_last = list.last().is_none_or(|(known, _)| *known < unit);
            let index = if is_last {
                Err(list.len())
            } else {
                list.binary_search_by(|(known, _)| known.cmp(&unit))
            };
            match index {
                Ok(_) => return Err(CostsError::Twice { unit }),
                Err(_) if list.len() == MAX_UNITS => return Err(CostsError::TooMany),
                Err(index) => list.insert(index, (unit, cost)),
            }
        }
        Ok(Self(CostList::ByUnit(list.into_iter().collect())))
    }

    /// The cost of every rule, if they do not differ by unit.
    #[inline]
    pub fn plain(&self) -> Option<u64> {
        match self.0 {
            CostList::One(cost) => Some(cost),
            CostList::ByUnit(_) => None,
        }
    }

    /// The units that are named, with their costs, in the order of their names; none if one cost is for all.
    pub fn units(&self) -> &[(CostUnit, u64)] {
        match &self.0 {
            CostList::One(_) => &[],
            CostList::ByUnit(list) => list,
        }
    }

    /// What a rule that counts in `unit` is charged, before its own `cost` multiplies it.
    #[inline]
    pub fn of(&self, unit: &CostUnit) -> u64 {
        match &self.0 {
            CostList::One(cost) => *cost,
            CostList::ByUnit(list) => find(list, unit).unwrap_or(u64::from(unit.is_requests())),
        }
    }

    /// The cost in `unit`, if it is said: by one cost for all, or under its name.
    pub fn named(&self, unit: &CostUnit) -> Option<u64> {
        match &self.0 {
            CostList::One(cost) => Some(*cost),
            CostList::ByUnit(list) => find(list, unit),
        }
    }

    /// These costs, replaced by what was spent: a unit that is not named keeps its estimate. Of nothing that was spent,
    /// all are 0. None if one of them is by unit and the other is not.
    pub fn replaced_by(&self, actual: Option<&Self>) -> Option<Self> {
        let Some(actual) = actual else {
            return Some(self.map(|_, _| 0));
        };
        match (&self.0, &actual.0) {
            (CostList::One(_), CostList::One(_)) => Some(actual.clone()),
            (CostList::ByUnit(estimate), CostList::ByUnit(spent)) => {
                let kept = estimate
                    .iter()
                    .filter(|(unit, _)| find(spent, unit).is_none());
                let mut list: Vec<_> = kept.chain(spent.iter()).cloned().collect();
                list.sort_unstable();
                Some(Self(CostList::ByUnit(list.into())))
            }
            _ => None,
        }
    }

    /// A cost for each unit of these; of one cost, the cost that it becomes in `requests`.
    #[must_use]
    pub fn map(&self, of: impl Fn(&CostUnit, u64) -> u64) -> Self {
        match &self.0 {
            CostList::One(cost) => of(&CostUnit::REQUESTS, *cost).into(),
            CostList::ByUnit(list) => {
                let list = list.iter();
                let list = list.map(|(unit, cost)| (unit.clone(), of(unit, *cost)));
                Self(CostList::ByUnit(list.collect()))
            }
        }
    }

    /// Whether nothing is asked for: the cost is 0, or all that are named are.
    pub fn is_zero(&self) -> bool {
        match &self.0 {
            CostList::One(cost) => *cost == 0,
            CostList::ByUnit(list) => list.iter().all(|(_, cost)| *cost == 0),
        }
    }
}

fn find(list: &[(CostUnit, u64)], unit: &CostUnit) -> Option<u64> {
    let named = list.iter().find(|(known, _)| known == unit);
    named.map(|(_, cost)| *cost)
}

/// One cost, which every rule is charged.
impl From<u64> for Costs {
    #[inline]
    fn from(cost: u64) -> Self {
        Self(CostList::One(cost))
    }
}

/// As one text: `60`, or `input_tokens=20 tokens=60`.
impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = match &self.0 {
            CostList::One(cost) => return cost.fmt(f),
            CostList::ByUnit(list) => list,
        };
        for (index, (unit, cost)) in list.iter().enumerate() {
            let space = if index > 0 { " " } else { "" };
            write!(f, "{space}{unit}={cost}")?;
        }
        Ok(())
    }
}

impl FromStr for Costs {
    type Err = CostsError;

    fn from_str(text: &str) -> Result<Self, CostsError> {
        if let Ok(cost) = text.parse::<u64>() {
            return Ok(cost.into());
        }
        let read = |item| {
            let (unit, cost) = str::split_once(item, '=')?;
            Some((unit, cost.parse().ok()?))
        };
        let costs: Option<Vec<(&str, u64)>> = text.split_whitespace().map(read).collect();
        Self::by_unit(costs.ok_or(CostsError::Unreadable)?)
    }
}

impl fmt::Debug for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            CostList::One(cost) => fmt::Debug::fmt(cost, f),
            CostList::ByUnit(list) => {
                let list = list.iter().map(|(unit, cost)| (unit, cost));
                f.debug_map().entries(list).finish()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_by_hand() {
        let long = "a".repeat(32);
        for name in ["requests", "a", "a_1", "input_tokens", long.as_str()] {
            assert_eq!(CostUnit::new(name).unwrap().as_str(), name);
        }
        let longer = "a".repeat(33);
        for name in ["", "_a", "1a", "A", "a-b", "a b", "ä", longer.as_str()] {
            assert!(CostUnit::new(name).is_err(), "{name}");
        }
        assert!(CostUnit::default().is_requests());
    }

    #[test]
    fn costs_by_hand() {
        let unit = |name| CostUnit::new(name).unwrap();
        #[rustfmt::skip]
        let table = [
            // costs                                              requests tokens  money   zero
            (Costs::from(3),                                       3,       3,      3,      false),
            (Costs::from(0),                                       0,       0,      0,      true),
            (Costs::by_unit([("tokens", 60)]).unwrap(),            1,       60,     0,      false),
            (Costs::by_unit([("tokens", 0)]).unwrap(),             1,       0,      0,      true),
            (Costs::by_unit([("requests", 2)]).unwrap(),           2,       0,      0,      false),
            (Costs::by_unit([("money", 5), ("requests", 0)]).unwrap(), 0,   0,      5,      false),
            (Costs::by_unit([]).unwrap(),                          1,       0,      0,      true),
        ];
        for (costs, requests, tokens, money, is_zero) in table {
            assert_eq!(costs.of(&CostUnit::REQUESTS), requests, "{costs:?}");
            assert_eq!(costs.of(&unit("tokens")), tokens, "{costs:?}");
            assert_eq!(costs.of(&unit("money")), money, "{costs:?}");
            assert_eq!(costs.is_zero(), is_zero, "{costs:?}");
        }
    }

    #[test]
    fn costs_that_are_refused() {
        let error = |costs: &[(&str, u64)]| {
            let costs = Costs::by_unit(costs.iter().copied());
            costs.unwrap_err().to_string()
        };
        assert!(error(&[("Tokens", 1)]).contains("`Tokens` cannot be a unit"));
        assert!(error(&[("a", 1), ("a", 1)]).contains("`a` is given twice"));
        assert!(error(&[("a", MAX_COST + 1)]).contains("give at most 9007199254740991"));
        let names: Vec<String> = (0..=MAX_UNITS).map(|n| format!("u{n}")).collect();
        let many: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        assert!(error(&many).contains("more than 32 units"));
    }

    #[test]
    fn costs_are_read_as_they_are_written() {
        let by_unit = |costs: &[(&str, u64)]| Costs::by_unit(costs.iter().copied()).unwrap();
        for (costs, text) in [
            (Costs::from(60), "60"),
            (by_unit(&[]), ""),
            (by_unit(&[("tokens", 60)]), "tokens=60"),
            (by_unit(&[("tokens", 6), ("a", 2)]), "a=2 tokens=6"),
        ] {
            assert_eq!(costs.to_string(), text);
            assert_eq!(text.parse(), Ok(costs));
        }
        for bad in ["a", "a=", "a=b", "1 2", "-1", "A=1", "a=1 a=2"] {
            assert!(bad.parse::<Costs>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_unit_that_is_not_named_keeps_its_estimate() {
        let costs = |text: &str| text.parse::<Costs>().unwrap();
        let replaced = |estimate, actual: Option<&str>| {
            let actual = actual.map(costs);
            let replaced = costs(estimate).replaced_by(actual.as_ref());
            replaced.map(|costs| costs.to_string())
        };
        #[rustfmt::skip]
        let table = [
            // estimate              actual                      settled
            ("input=20 tokens=60",   Some("money=3 tokens=25"),  Some("input=20 money=3 tokens=25")),
            ("input=20 tokens=60",   None,                       Some("input=0 tokens=0")),
            ("input=20 tokens=60",   Some("25"),                 None),
            ("60",                   Some("25"),                 Some("25")),
            ("60",                   None,                       Some("0")),
            ("60",                   Some("tokens=25"),          None),
        ];
        for (estimate, actual, settled) in table {
            let name = format!("{estimate} by {actual:?}");
            assert_eq!(replaced(estimate, actual).as_deref(), settled, "{name}");
        }
    }

    #[test]
    fn costs_take_two_words() {
        assert_eq!(size_of::<Costs>(), 2 * size_of::<u64>());
    }
}
