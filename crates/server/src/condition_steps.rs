//! Bounds the work of rule conditions in one call with several requests.

use tidegate::Attributes;
use tidegate::rules::RuleSet;

/// The most steps that conditions may take in one call: about half a second.
pub(crate) const MAX_CONDITION_STEPS: u64 = 5_000_000;

/// The most steps that conditions can take for several requests.
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
