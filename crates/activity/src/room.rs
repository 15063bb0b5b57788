//! Decides which rules have room of their own: those with the most traffic, as far as memory allows.

use std::sync::Arc;

use crate::budget::MemoryBudget;
use crate::rule::RuleActivity;

/// A rule that gains room must have this many times the traffic of the rule that loses it.
const MARGIN: u64 = 2;

/// A rule and its traffic, older traffic weighted less.
#[derive(Debug)]
pub(crate) struct KnownRule {
    pub(crate) rule: Arc<RuleActivity>,
    pub(crate) traffic: u64,
    /// Whether it was there when rules were last sampled.
    pub(crate) is_current: bool,
}

impl KnownRule {
    /// Adds the traffic of the finished period and decays older traffic: to about a third after ten minutes.
    pub(crate) fn age(&mut self) {
        self.traffic -= self.traffic / 64;
    }
}

/// Whether there is enough memory to give room to another rule.
pub(crate) fn is_free(budget: &MemoryBudget) -> bool {
    budget.used() < budget.most / 4 * 3
}

/// Whether memory may run out soon.
pub(crate) fn is_short(budget: &MemoryBudget) -> bool {
    budget.used() > budget.most / 8 * 7
}

/// Takes room from the rules with the least traffic while memory is short, and gives it to those with more.
pub(crate) fn share_out(rules: &mut [&mut KnownRule], budget: &MemoryBudget) {
    rules.sort_by_key(|known| known.traffic);
    let has_room = |known: &&mut KnownRule| known.rule.own_keys().is_some();
    let with_room = |rules: &[&mut KnownRule]| rules.iter().position(has_room);
    while is_short(budget) {
        match with_room(rules) {
            Some(least) => rules[least].rule.take_room(),
            None => break,
        }
    }
    for index in (0..rules.len()).rev() {
        let known = &*rules[index];
        if known.traffic == 0 || known.rule.own_keys().is_some() {
            continue;
        }
        if !is_free(budget) {
            let Some(least) = with_room(rules) else {
                break;
            };
            if rules[least].traffic.saturating_mul(MARGIN) >= rules[index].traffic {
                break;
            }
            rules[least].rule.take_room();
        }
        if !rules[index].rule.give_room() {
            break;
        }
    }
}
