//! Counts calls of Envoy: what each descriptor did to its limit, and how long the call took.

use tidegate::gate::{Decisions, LimitOutcome, Part};
use tidegate::rules::{Mode, RuleSet};
use tidegate_ratelimit::stats::{CountedMethod, LimitHits};

use super::ServerStats;

/// Measures a call until it is dropped.
pub(crate) struct CallTimer<'s> {
    stats: &'s ServerStats,
    method: CountedMethod,
    began: u64,
}

impl Drop for CallTimer<'_> {
    fn drop(&mut self) {
        let took = self.stats.clock.since(self.began);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let stats = self.stats;
        stats
            .stats
            .add_call(self.method, micros, || stats.seconds());
    }
}

impl ServerStats {
    /// Counts a call of this method, and times it until what is returned is dropped.
    pub(crate) fn call(&self, method: CountedMethod) -> CallTimer<'_> {
        CallTimer {
            stats: self,
            method,
            began: self.clock.read(),
        }
    }

    /// Counts a call that failed before it was decided.
    pub(crate) fn failed(&self) {
        self.stats.add_service_error();
    }

    /// Counts what was decided of each part of a call. `is_let_pass`: in the shadow mode of the whole server.
    pub(crate) fn decided(
        &self,
        rules: &RuleSet,
        parts: &[Part<'_>],
        decisions: &Decisions,
        is_let_pass: bool,
    ) {
        let mut is_degraded = false;
        for (part, decision) in parts.iter().zip(decisions.iter()) {
            is_degraded |= decision.is_degraded();
            match decision.headline().or_else(|| decision.limits().next()) {
                Some(limit) => self.limit(rules, part, &limit),
                None => self.unlimited(rules, part),
            }
        }
        if is_degraded {
            self.stats.add_redis_error();
        }
        if is_let_pass && !decisions.is_allowed() {
            self.stats.add_global_shadow();
        }
    }

    /// The limit of a part: of several, which an override may have, the one that decided.
    #[inline]
    fn limit(&self, rules: &RuleSet, part: &Part<'_>, limit: &LimitOutcome<'_>) {
        let Some(path) = rules.stat_path(limit.rule, &part.attributes) else {
            return;
        };
        let hits = LimitHits {
            limit: limit.outcome.limit,
            used: limit.used_before(),
            hits: limit.hits(),
            is_over: !limit.outcome.allowed,
            is_remembered: limit.outcome.is_remembered,
            is_shadow: limit.rule.mode() == Mode::Shadow,
        };
        if self.stats.add(&path, &hits) {
            warn_full();
        }
    }

    fn unlimited(&self, rules: &RuleSet, part: &Part<'_>) {
        if let Some(domain) = rules.unknown_domain(&part.attributes)
            && self.stats.add_unknown_domain(&domain)
        {
            warn_full();
        }
    }
}

/// Said once.
#[cold]
fn warn_full() {
    tracing::warn!(
        "values of requests have made as many names of stats as `stat_names` permits; others are counted without their values, see `tidegate_stat_names_full`"
    );
}
