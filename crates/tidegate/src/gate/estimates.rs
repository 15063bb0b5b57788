//! What reservations of this process cost after all, for the observer. It is known when they are settled: until then a
//! request is counted as allowed, and nothing as used.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{CostUnit, Costs};

use super::{Asked, Gate, Observed, ObservedRule, Observer, Receipt};
use crate::rules::{FrontEnd, RuleCounts, Unsettled};

/// What a request that was reserved cost after all, for one rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettledUse {
    /// What the request cost, in the rule's unit.
    pub cost: u64,
    /// What the rule was charged for it.
    pub charged: u64,
}

/// Counts what a rule was charged for one request. Called once, when that is known.
pub type UseCounter = Box<dyn FnOnce(SettledUse) + Send + Sync>;

/// A request that was reserved in this process, and whose cost is not counted yet. Dropped unsettled, its estimate is.
pub(super) struct WatchedEstimate {
    observer: Arc<dyn Observer>,
    /// Until it is counted.
    estimate: Option<Costs>,
    rules: SmallVec<[EstimatedRule; 2]>,
}

/// An estimate that a rule was charged.
struct EstimatedRule {
    counts: Arc<RuleCounts>,
    unit: CostUnit,
    /// What it is charged for each of its unit. Of a rule that settling does not change, none.
    unit_cost: Option<u64>,
    estimate: SettledUse,
    gives_back: bool,
    counter: Option<UseCounter>,
}

impl EstimatedRule {
    /// What it was charged after all, if anything is said about its unit.
    fn settled(&self, actual: &Costs) -> SettledUse {
        match (actual.named(&self.unit), self.unit_cost) {
            (Some(cost), Some(unit_cost)) => SettledUse {
                cost,
                charged: cost.saturating_mul(unit_cost),
            },
            _ => self.estimate,
        }
    }
}

/// Nothing was used.
const UNUSED: SettledUse = SettledUse {
    cost: 0,
    charged: 0,
};

impl WatchedEstimate {
    /// Counts what was spent; without a cost, nothing was.
    pub(super) fn settle(mut self, actual: Option<&Costs>) {
        match actual {
            Some(actual) => {
                let estimate = self.estimate.as_ref();
                let spent = estimate.and_then(|estimate| estimate.replaced_by(Some(actual)));
                self.count(spent.as_ref(), |rule| rule.settled(actual));
            }
            None => self.count(Some(&Costs::from(0)), |_| UNUSED),
        }
    }

    /// Counts the estimate, except by rules that give it back.
    pub(super) fn expire(mut self) {
        self.count(None, |rule| {
            if rule.gives_back {
                UNUSED
            } else {
                rule.estimate
            }
        });
    }

    /// Counts, once, what was spent, and what it was for each rule. If it is not known, the estimate.
    fn count(&mut self, spent: Option<&Costs>, used: impl Fn(&EstimatedRule) -> SettledUse) {
        let Some(estimate) = self.estimate.take() else {
            return;
        };
        self.observer.settled(spent.unwrap_or(&estimate));
        for rule in self.rules.drain(..) {
            let used = used(&rule);
            if used.charged > 0 {
                rule.counts.count_admitted(used.charged);
            }
            if let Some(counter) = rule.counter {
                counter(used);
            }
        }
    }
}

impl Drop for WatchedEstimate {
    fn drop(&mut self) {
        self.count(None, |rule| rule.estimate);
    }
}

impl fmt::Debug for WatchedEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedEstimate")
            .field("estimate", &self.estimate)
            .finish_non_exhaustive()
    }
}

impl ObservedRule<'_, '_> {
    /// What is counted of it later; nothing, if it charged nothing.
    fn estimated(&self) -> Option<EstimatedRule> {
        let charged = Some(self.admitted()).filter(|charged| *charged > 0)?;
        let unit = self.rule().unit();
        Some(EstimatedRule {
            counts: Arc::clone(self.state().shared_counts()),
            unit_cost: self.unit_cost(),
            estimate: SettledUse {
                cost: self.part().costs.of(unit),
                charged,
            },
            unit: unit.clone(),
            gives_back: self.rule().unsettled() == Unsettled::GiveBack,
            counter: self.state().watch().and_then(|watch| watch.reserved(self)),
        })
    }
}

impl Gate {
    /// Shows the observer a request whose cost is an estimate. What it returns counts the cost when it is known.
    pub(super) fn observe_estimate(
        &self,
        began: u64,
        front_end: FrontEnd,
        asked: Asked<'_, '_>,
        receipt: &Receipt,
    ) -> Option<WatchedEstimate> {
        if !receipt.decisions().is_allowed() {
            self.observe(began, front_end, asked, receipt);
            return None;
        }
        let observer = self.observer.as_ref()?;
        let request = Observed {
            began,
            front_end,
            decisions: receipt.decisions(),
            asked,
        };
        observer.reserved(&request);
        self.warn_of_charges(receipt);
        let rules = request.parts().flat_map(|part| {
            let rules = part.rules().filter_map(|rule| rule.estimated());
            rules.collect::<SmallVec<[EstimatedRule; 2]>>()
        });
        Some(WatchedEstimate {
            observer: Arc::clone(observer),
            estimate: Some(receipt.estimate().clone()),
            rules: rules.collect(),
        })
    }
}
