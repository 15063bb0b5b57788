//! What a request costs: one number for every rule, or numbers by unit.

use std::fmt;
use std::sync::Arc;

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
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CostUnit(SmolStr);

/// What a request costs: one cost that every rule is charged, or costs by unit.
///
/// By unit, a rule whose unit is named is charged that number; of the others, rules that count requests are charged 1
/// and the rest nothing. A rule's own `cost` multiplies it. A single cost needs no allocation.
///
/// ```
/// use tidegate::Costs;
///
/// let all = Costs::from(3);
/// let by_unit = Costs::by_unit([("tokens", 60), ("input_tokens", 20)])?;
/// # assert!(all.plain() == Some(3) && by_unit.plain().is_none());
/// # Ok::<(), tidegate::CostsError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Costs {
    /// Unless they are by unit.
    one: u64,
    by_unit: Option<Arc<[(CostUnit, u64)]>>,
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
}

impl CostUnit {
    /// The unit of a rule that names none.
    pub const REQUESTS: Self = Self(SmolStr::new_static(REQUESTS));

    /// The unit with this name.
    pub fn new(name: &str) -> Result<Self, CostsError> {
        let begins = name
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_lowercase());
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if !begins || name.len() > LONGEST || !name.bytes().all(fits) {
            return Err(CostsError::BadUnit {
                name: crate::path::shortened(name),
            });
        }
        Ok(Self(SmolStr::new(name)))
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is `requests`.
    pub fn is_requests(&self) -> bool {
        self.0 == REQUESTS
    }
}

impl Default for CostUnit {
    fn default() -> Self {
        Self::REQUESTS
    }
}

impl fmt::Display for CostUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for CostUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Costs {
    /// Costs by unit, each unit once.
    pub fn by_unit<'n>(
        costs: impl IntoIterator<Item = (&'n str, u64)>,
    ) -> Result<Self, CostsError> {
        let mut list: Vec<(CostUnit, u64)> = Vec::new();
        for (name, cost) in costs {
            let unit = CostUnit::new(name)?;
            if list.iter().any(|(known, _)| *known == unit) {
                return Err(CostsError::Twice { unit });
            }
            if cost > MAX_COST {
                return Err(CostsError::TooLarge { unit, cost });
            }
            if list.len() == MAX_UNITS {
                return Err(CostsError::TooMany);
            }
            list.push((unit, cost));
        }
        Ok(Self::of_list(list))
    }

    fn of_list(list: impl IntoIterator<Item = (CostUnit, u64)>) -> Self {
        Self {
            one: 0,
            by_unit: Some(list.into_iter().collect()),
        }
    }

    /// The cost of every rule, if they do not differ by unit.
    #[inline]
    pub fn plain(&self) -> Option<u64> {
        match self.by_unit {
            None => Some(self.one),
            Some(_) => None,
        }
    }

    /// The units that are named, with their costs; none if one cost is for all.
    pub fn units(&self) -> &[(CostUnit, u64)] {
        self.by_unit.as_deref().unwrap_or_default()
    }

    /// What a rule that counts in `unit` is charged, before its own `cost` multiplies it.
    #[inline]
    pub fn of(&self, unit: &CostUnit) -> u64 {
        match &self.by_unit {
            None => self.one,
            Some(list) => find(list, unit).unwrap_or(u64::from(unit.is_requests())),
        }
    }

    /// The cost in `unit`, if it is said: by one cost for all, or under its name.
    pub(crate) fn named(&self, unit: &CostUnit) -> Option<u64> {
        match &self.by_unit {
            None => Some(self.one),
            Some(list) => find(list, unit),
        }
    }

    /// These costs, replaced by what was spent: a unit that is not named keeps its estimate. None if one of them is by
    /// unit and the other is not.
    pub(crate) fn replaced_by(&self, actual: &Self) -> Option<Self> {
        match (&self.by_unit, &actual.by_unit) {
            (None, None) => Some(actual.clone()),
            (Some(estimate), Some(spent)) => {
                let kept = estimate.iter().map(|(unit, cost)| {
                    let cost = find(spent, unit).unwrap_or(*cost);
                    (unit.clone(), cost)
                });
                let new = spent
                    .iter()
                    .filter(|(unit, _)| find(estimate, unit).is_none());
                Some(Self::of_list(kept.chain(new.cloned()).collect::<Vec<_>>()))
            }
            _ => None,
        }
    }

    /// A cost for each unit of these; of one cost, the cost that it becomes in `requests`.
    pub(crate) fn map(&self, of: impl Fn(&CostUnit, u64) -> u64) -> Self {
        match &self.by_unit {
            None => of(&CostUnit::REQUESTS, self.one).into(),
            Some(list) => {
                let list = list.iter();
                Self::of_list(list.map(|(unit, cost)| (unit.clone(), of(unit, *cost))))
            }
        }
    }

    /// Whether nothing is asked for: the cost is 0, or all that are named are.
    pub fn is_zero(&self) -> bool {
        match &self.by_unit {
            None => self.one == 0,
            Some(list) => list.iter().all(|(_, cost)| *cost == 0),
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
        Self {
            one: cost,
            by_unit: None,
        }
    }
}

impl fmt::Debug for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(list) = &self.by_unit else {
            return fmt::Debug::fmt(&self.one, f);
        };
        let list = list.iter().map(|(unit, cost)| (unit, cost));
        f.debug_map().entries(list).finish()
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
}
