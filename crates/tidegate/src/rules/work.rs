//! How much work the conditions of rules can be for a request: known before any of them is evaluated, so
//! that a front end can refuse what would take too long, with nothing charged.

use cel::common::ast::{EntryExpr, Expr, IdedExpr};

use super::RuleSet;
use crate::attributes::Attributes;

/// How many bytes of values are as much work as one operation.
const BYTES_PER_STEP: u64 = 16;

/// How much work one condition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Work {
    operations: u64,
    /// Whether it is done for every attribute.
    has_loop: bool,
}

impl Work {
    /// Walks the expression without recursion.
    pub(super) fn of(root: &IdedExpr) -> Self {
        let (mut operations, mut has_loop) = (0, false);
        let mut open = vec![root];
        while let Some(node) = open.pop() {
            operations += 1;
            match &node.expr {
                Expr::Call(call) => {
                    open.extend(&call.args);
                    open.extend(call.target.as_deref());
                }
                Expr::Comprehension(inner) => {
                    has_loop = true;
                    open.extend([
                        &inner.iter_range,
                        &inner.accu_init,
                        &inner.loop_cond,
                        &inner.loop_step,
                        &inner.result,
                    ]);
                }
                Expr::List(list) => open.extend(&list.elements),
                Expr::Select(select) => open.push(&select.operand),
                Expr::Map(map) => {
                    for entry in &map.entries {
                        if let EntryExpr::MapEntry(entry) = &entry.expr {
                            open.extend([&entry.key, &entry.value]);
                        }
                    }
                }
                Expr::Struct(_) | Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
            }
        }
        Self {
            operations,
            has_loop,
        }
    }

    /// The most operations that it takes for so many attributes with so many bytes.
    fn steps(self, attributes: u64, bytes: u64) -> u64 {
        let rounds = if self.has_loop { attributes + 1 } else { 1 };
        self.operations * rounds + bytes / BYTES_PER_STEP
    }
}

impl RuleSet {
    /// Whether any rule has a condition.
    pub fn has_conditions(&self) -> bool {
        self.iter().any(|rule| rule.conditions().next().is_some())
    }

    /// How many steps the conditions of the rules that may apply to a request take at the most. A step is about
    /// a tenth of a microsecond.
    pub fn condition_steps(&self, attributes: &Attributes<'_>) -> u64 {
        let (mut count, mut bytes) = (0, 0);
        for (_, value) in attributes.iter() {
            count += 1;
            bytes += value.len() as u64;
        }
        let candidates = self.candidates(attributes).into_iter();
        let conditions = candidates.flat_map(|place| self.at(place as usize).conditions());
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
