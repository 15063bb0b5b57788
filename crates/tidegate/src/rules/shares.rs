//! The part of each limit that this instance may grant by itself while the shared store is unavailable.

use std::sync::Arc;

use tidegate_core::{Limit, Scope};

use super::grant::Grant;
use super::rule::Rule;

/// A limit, and the part of it that one instance may grant by itself.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) scope: Scope,
    pub(crate) whole: Limit,
    pub(crate) part: Limit,
}

impl Share {
    /// The share of one of `instances` instances in a limit.
    pub(crate) fn of(scope: &Scope, limit: &Limit, instances: u64) -> Arc<Self> {
        Arc::new(Self {
            scope: scope.clone(),
            whole: limit.clone(),
            part: limit.share(instances),
        })
    }
}

/// The shares of one instance in all limits of a rule set.
#[derive(Debug)]
pub(crate) struct Shares {
    pub(crate) instances: u64,
    /// By the index of the rule, of its grant, and of the limit.
    by_rule: Vec<Vec<Vec<Arc<Share>>>>,
}

impl Shares {
    /// The shares in these rules, each with all its grants.
    pub(crate) fn of<'r>(
        rules: impl Iterator<Item = (&'r Rule, Vec<&'r Grant>)>,
        instances: u64,
    ) -> Self {
        let of_grant = |rule: &Rule, grant: &Grant| {
            let limits = grant.limits().iter();
            let share = |limit| Share::of(rule.scope(), limit, instances);
            limits.map(share).collect()
        };
        let of_rule = |(rule, grants): (&Rule, Vec<&Grant>)| {
            let grants = grants.into_iter();
            grants.map(|grant| of_grant(rule, grant)).collect()
        };
        Self {
            instances,
            by_rule: rules.map(of_rule).collect(),
        }
    }

    /// The shares in the limits of a grant, in their order.
    pub(crate) fn limits(&self, rule: usize, grant: usize) -> &[Arc<Share>] {
        let grants = self.by_rule.get(rule);
        grants
            .and_then(|grants| grants.get(grant))
            .map_or(&[], Vec::as_slice)
    }
}
