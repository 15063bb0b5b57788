//! Rules with other limits: those that a log cannot show, and permits that last as long as their requests.

use std::sync::Arc;

use tidegate::limit::MAX_WINDOW;
use tidegate::rules::{Grant, Rule, RuleSet};
use tidegate::{Algorithm, Limit, LimitError};

/// Whether a rule has a limit of concurrent requests.
fn is_concurrent(rule: &Rule) -> bool {
    rule.grants()
        .iter()
        .flat_map(Grant::limits)
        .any(Limit::is_concurrency)
}

/// Whether a rule cannot be decided for requests of unknown durations.
pub(crate) fn left_out(rule: &Rule, have_durations: bool) -> bool {
    !have_durations && is_concurrent(rule)
}

/// The same rules, whose permits last until their requests end.
pub(crate) fn lengthened(rules: &RuleSet) -> Result<RuleSet, LimitError> {
    rules.map_rules(|rule| {
        if !is_concurrent(rule) {
            return Ok(Arc::clone(rule));
        }
        let longer = |limit: &Limit| match limit.algorithm() {
            Algorithm::Concurrency { .. } => {
                let lease_ttl = MAX_WINDOW;
                Limit::new(limit.rate(), Algorithm::Concurrency { lease_ttl })
            }
            _ => Ok(limit.clone()),
        };
        rule.with_limits(longer).map(Arc::new)
    })
}
