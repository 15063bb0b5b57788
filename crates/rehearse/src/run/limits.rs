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

/// The same rules, whose permits last until their requests end, without candidates that cannot be decided.
pub(crate) fn lengthened(rules: &RuleSet, have_durations: bool) -> Result<RuleSet, LimitError> {
    rules.map_rules(|rule| {
        let rule = with_longer_permits(rule)?;
        let Some(candidate) = rule.candidate().filter(|tried| is_concurrent(tried)) else {
            return Ok(rule);
        };
        let candidate = have_durations.then(|| with_longer_permits(candidate));
        Ok(Arc::new(rule.with_candidate(candidate.transpose()?)))
    })
}

fn with_longer_permits(rule: &Arc<Rule>) -> Result<Arc<Rule>, LimitError> {
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
}
