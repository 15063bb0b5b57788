//! Observes every decision of the server, from whatever front end: times it, counts it, and logs denials.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::gate::{Charged, Observed, ObservedRule, Observer, RuleWatch, WarnedLimit};
use tidegate::rules::{Rule, RuleSet};
use tidegate::store::Charge;
use tidegate::{Attributes, CostUnit, Costs, Timestamp};
use tidegate_listen::clock::TickClock;
use tidegate_ratelimit::stats::RateLimitStats;

use super::Metrics;
use super::exchanges;
use super::logs::{DenialLog, LoggedKeys, WarningLog};
use crate::activity::{RequestOutcome, ServerActivity, WatchedRule};
use crate::record::Recorder;

/// The observer of the server's gate.
pub(crate) struct DecisionObserver {
    clock: TickClock,
    metrics: Arc<Metrics>,
    denials: DenialLog,
    warnings: WarningLog,
    /// None if it is off.
    activity: Option<Arc<ServerActivity>>,
    /// None if decisions are not recorded.
    record: Option<Arc<Recorder>>,
    /// None if nothing shows them.
    stats: Option<Arc<RateLimitStats>>,
    /// The latest timestamp of a request, in microseconds; zero if none had one.
    latest_time: AtomicU64,
    /// Whether requests are observed to their end, so that decisions are noted with them.
    has_exchanges: bool,
}

impl DecisionObserver {
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        keys: LoggedKeys,
        activity: Option<Arc<ServerActivity>>,
    ) -> Self {
        Self {
            clock: TickClock::new(),
            metrics,
            warnings: WarningLog::new(keys.clone()),
            denials: DenialLog::new(keys),
            activity,
            record: None,
            stats: None,
            latest_time: AtomicU64::new(0),
            has_exchanges: false,
        }
    }

    /// The same observer, for a server that observes requests to their end.
    pub(crate) fn with_exchanges(self, has_exchanges: bool) -> Self {
        Self {
            has_exchanges,
            ..self
        }
    }

    /// The same observer, which records decisions.
    pub(crate) fn with_record(self, record: Option<Arc<Recorder>>) -> Self {
        Self { record, ..self }
    }

    /// The same observer, which names stats by the rules in force.
    pub(crate) fn with_stats(self, stats: Option<Arc<RateLimitStats>>) -> Self {
        Self { stats, ..self }
    }

    /// The latest timestamp of a request: the current time of a replay.
    pub(crate) fn latest_time(&self) -> Option<Timestamp> {
        let micros = self.latest_time.load(Ordering::Relaxed);
        (micros > 0).then(|| Timestamp::from_micros(micros))
    }

    /// The key of a request by a rule, for the log.
    pub(crate) fn logged_key(&self, rule: &Rule, attributes: &Attributes<'_>) -> Option<String> {
        self.denials.key(rule, attributes)
    }

    fn note_time(&self, began: u64) -> Duration {
        let took = self.clock.since(began);
        self.metrics.decided(took);
        took
    }

    /// Counts and logs a decision, and shows each rule of it to `watch`. The cost, if it is known.
    #[inline]
    fn note(
        &self,
        observed: &Observed<'_, '_>,
        has_cost: bool,
        watch: impl Fn(&ObservedRule<'_, '_>, bool),
    ) {
        let took = self.note_time(observed.began);
        if self.has_exchanges {
            exchanges::note(observed, took);
        }
        let activity = self.activity.as_deref();
        let mut request = RequestOutcome::default();
        for part in observed.parts() {
            let (decision, attributes) = (part.decision, part.attributes);
            if has_cost {
                request.note_cost(part.costs.of(&CostUnit::REQUESTS));
            }
            for rule in part.rules() {
                if activity.is_some() {
                    request.note_rule(&rule);
                }
                watch(&rule, activity.is_some());
            }
            for candidate in part.candidates() {
                candidate.count();
                if activity.is_some() {
                    candidate.watch();
                }
            }
            if let Some(at) = attributes.time() {
                let at = at.as_micros();
                self.latest_time.fetch_max(at, Ordering::Relaxed);
            }
            if decision.is_unmatched() {
                self.metrics.unmatched();
            }
            if decision.is_denied() {
                self.denials.denied(decision, attributes);
            }
        }
        if let Some(activity) = activity {
            activity.note_request(&request, observed.decisions.is_allowed());
        }
        if let Some(record) = &self.record {
            record.decided(observed);
        }
    }
}

impl Observer for DecisionObserver {
    fn begin(&self) -> u64 {
        self.clock.read()
    }

    fn rules_changed(&self, rules: &RuleSet) {
        if let Some(record) = &self.record {
            record.rules_changed(rules);
        }
        if let Some(stats) = &self.stats {
            stats.rules_changed(rules);
        }
    }

    fn decided(&self, observed: &Observed<'_, '_>) {
        self.note(observed, true, |rule, is_watched| {
            rule.count();
            if is_watched {
                rule.watch();
            }
        });
    }

    fn reserved(&self, observed: &Observed<'_, '_>) {
        self.note(observed, false, |rule, _| rule.count_reserved());
    }

    fn settled(&self, costs: &Costs) {
        if let Some(activity) = &self.activity {
            activity.note_cost(costs.of(&CostUnit::REQUESTS));
        }
    }

    fn charged(&self, began: u64, charge: &Charge<'_>, charged: &Charged) {
        self.note_time(began);
        self.metrics.throttled(charged);
        if let Some(activity) = &self.activity {
            let request = RequestOutcome::of_limit(charge.cost, charged);
            activity.note_request(&request, charged.outcome.allowed);
        }
    }

    fn warned(&self, warned: &WarnedLimit<'_>) {
        self.warnings.warned(warned);
    }

    fn watch(&self, rule: &Rule) -> Option<Arc<dyn RuleWatch>> {
        let activity = self.activity.as_ref()?;
        Some(Arc::new(WatchedRule::new(activity, rule)))
    }
}
