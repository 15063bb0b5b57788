//! How much work the conditions of rules may take for one call that asks several things.

use tidegate::Attributes;
use tidegate::rules::RuleSet;

/// How many steps the conditions of rules may take for one call: about half a second.
pub(crate) const MAX_CONDITION_STEPS: u64 = 5_000_000;

/// How many steps conditions take for several requests at the most.
pub(crate) fn condition_steps<'a, 'b: 'a>(
    rules: &RuleSet,
    requests: impl IntoIterator<Item = &'a Attributes<'b>>,
) -> u64 {
    if !rules.has_conditions() {
        return 0;
    }
    let steps = requests
        .into_iter()
        .map(|attributes| rules.condition_steps(attributes));
    steps.fold(0, u64::saturating_add)
}
