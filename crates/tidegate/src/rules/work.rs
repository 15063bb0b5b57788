//! Bounds the work of evaluating conditions for a request before any is evaluated, so that a front end can refuse a
//! request that would take too long, with nothing charged.

use super::RuleSet;
use crate::attributes::Attributes;

/// How many bytes of values are as much work as one operation.
const BYTES_PER_STEP: u64 = 16;

/// How much work one condition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConditionWork {
    pub(super) operations: u64,
    /// Whether it is done for every attribute.
    pub(super) has_loop: bool,
}

impl ConditionWork {
    /// The most operations for a request with this many attributes and bytes.
    fn steps(self, attributes: u64, bytes: u64) -> u64 {
        let rounds = if self.has_loop { attributes + 1 } else { 1 };
        self.operations * rounds + bytes / BYTES_PER_STEP
    }
}

impl RuleSet {
    /// Whether any rule has a condition.
    #[doc(hidden)]
    pub fn has_conditions(&self) -> bool {
        self.has_conditions
    }

    /// How many steps the conditions of the rules that may apply to a request take at the most. A step is about
    /// a tenth of a microsecond.
    #[doc(hidden)]
    pub fn condition_steps(&self, attributes: &Attributes<'_>) -> u64 {
        let (mut count, mut bytes) = (0, 0);
        for (_, value) in attributes.iter() {
            count += 1;
            bytes += value.len() as u64;
        }
        let candidates = self.candidates(attributes).into_iter();
        let conditions = candidates.flat_map(|index| self.at(index as usize).conditions());
        let steps = conditions.map(|condition| condition.work().steps(count, bytes));
        steps.fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use crate::Attributes;
    use crate::rules::RuleSet;

    fn steps(conditions: &[&str], attributes: usize) -> u64 {
        let rule = |(index, condition)| {
            format!(
                "- {{id: r{index}, per: [], limit: 1/s, match: {{path: /a/**, when: '{condition}'}}}}\n"
            )
        };
        let text: String = conditions.iter().enumerate().map(rule).collect();
        let rules = RuleSet::from_yaml(&format!("rules:\n{text}")).unwrap();
        assert!(rules.has_conditions());
        let mut asked = Attributes::new();
        asked.insert("path", "/a/b").unwrap();
        for index in 1..attributes {
            asked.insert(format!("a{index}"), "value").unwrap();
        }
        let mut elsewhere = Attributes::new();
        elsewhere.insert("path", "/b").unwrap();
        assert_eq!(rules.condition_steps(&elsewhere), 0, "no rule is about it");
        rules.condition_steps(&asked)
    }

    #[test]
    fn a_loop_is_as_much_work_as_there_are_attributes() {
        let simple = steps(&["cost > 1"], 1);
        assert!((1..10).contains(&simple), "{simple}");
        assert_eq!(steps(&["cost > 1", "cost > 2"], 1), 2 * simple);
        let looping = "attributes.all(name, name != \"x\")";
        let (one, hundred) = (steps(&[looping], 1), steps(&[looping], 100));
        assert!(hundred > 40 * one, "{one} {hundred}");
    }
}
