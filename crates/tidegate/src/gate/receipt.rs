//! What a request was charged, kept so that it can be given back or settled when the request is done.
//! `settlement.rs` does that.

use std::sync::Arc;

use smallvec::SmallVec;
use smol_str::SmolStr;
use tidegate_core::{Charge, CostUnit, Costs, Limit, Outcome, PermitId, Scope, Timestamp};

use super::held_record::HeldRecord;
use super::local::LocalCharge;
use super::pipeline::Pipeline;
use super::reserving::OpenReservation;
use super::rule_decision::{ChargeStage, RuleDecision};
use super::{Decision, Decisions};
use crate::rules::{OnStoreFailure, RuleCounts, Share};

/// A decision, and what it takes to change afterwards what was charged by it: once, because both
/// [`Gate::give_back`](super::Gate::give_back) and [`Gate::settle`](super::Gate::settle) use it up.
#[derive(Debug)]
#[must_use = "without the receipt nothing can be given back or settled"]
pub struct Receipt {
    decisions: Decisions,
    at: Option<Timestamp>,
    /// What the request came with; of several parts, the first.
    estimate: Costs,
    /// If the cost is an estimate, and charged.
    pub(super) reservation: Option<OpenReservation>,
    /// The record of that, if it has one.
    pub(super) record: Option<Box<HeldRecord>>,
}

/// What a request was charged, by itself: keys, limits, times and costs, and neither the decision nor the rules. To be
/// kept for longer than the request. Used once, like the [receipt](Receipt) that it is made of.
#[derive(Debug)]
#[must_use = "without it nothing can be given back or settled"]
pub struct KeptReceipt {
    lines: SmallVec<[Line; 1]>,
    permit: Option<PermitId>,
    at: Option<Timestamp>,
    estimate: Costs,
    pub(super) reservation: Option<OpenReservation>,
    pub(super) record: Option<Box<HeldRecord>>,
}

/// What one limit charged.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says something of its own about the charge"
)]
struct Line {
    rule: SmolStr,
    counts: Arc<RuleCounts>,
    unit: CostUnit,
    warn_at: Option<u8>,
    is_shadow: bool,
    is_candidate: bool,
    scope: Scope,
    limit: Limit,
    key: SmolStr,
    cost: u64,
    /// What the rule charges for each unit of the request's own cost.
    unit_cost: u64,
    outcome: Outcome,
    /// Whether the store was unavailable.
    is_degraded: bool,
    /// This instance's share of the limit, if it decided locally.
    share: Option<Arc<Share>>,
    /// Whether the rule goes on by itself without the store.
    is_local: bool,
}

/// What one limit charged, borrowed from a receipt.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says something of its own about the charge"
)]
pub(super) struct ChargedLimit<'l> {
    pub(super) rule: &'l str,
    pub(super) counts: &'l Arc<RuleCounts>,
    pub(super) unit: &'l CostUnit,
    /// The percentage of the limit from which its use is reported.
    pub(super) warn_at: Option<u8>,
    pub(super) is_shadow: bool,
    pub(super) is_candidate: bool,
    /// With the cost that was charged.
    pub(super) charge: Charge<'l>,
    /// What the rule charges for each unit of the request's own cost.
    pub(super) unit_cost: u64,
    pub(super) outcome: &'l Outcome,
    pub(super) is_degraded: bool,
    pub(super) share: Option<&'l Arc<Share>>,
    pub(super) is_local: bool,
}

/// What a receipt charged.
pub(super) type ChargedLimits<'l> = SmallVec<[ChargedLimit<'l>; 2]>;

impl Receipt {
    #[inline]
    pub(super) fn new(decisions: Decisions, at: Option<Timestamp>, estimate: Costs) -> Self {
        Self {
            decisions,
            at,
            estimate,
            reservation: None,
            record: None,
        }
    }

    /// The receipt of a request that these pipelines decided.
    pub(super) fn from_pipelines(pipelines: Vec<Pipeline>, estimate: Costs) -> Self {
        let mut decisions = SmallVec::new();
        let at = pipelines.first().and_then(|pipeline| pipeline.at);
        for pipeline in pipelines {
            pipeline.finish_parts(&mut decisions);
        }
        Self::new(Decisions::many(decisions), at, estimate)
    }

    /// The decision; of a request of several parts, that about the first of them.
    pub fn decision(&self) -> &Decision {
        self.decisions.first()
    }

    /// The decision about each part.
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// The decision alone. What was charged stays charged.
    #[inline]
    pub fn into_decision(self) -> Decision {
        self.decisions.into_first()
    }

    /// The decision about each part alone. What was charged stays charged.
    pub fn into_decisions(self) -> Decisions {
        self.decisions
    }

    /// What was charged, without the decision and the rules that it was made by.
    pub fn into_kept(self) -> KeptReceipt {
        let kept = self.to_kept();
        KeptReceipt {
            reservation: self.reservation,
            record: self.record,
            ..kept
        }
    }

    /// A copy of what was charged. One of the two is used.
    pub(super) fn to_kept(&self) -> KeptReceipt {
        KeptReceipt {
            lines: self.charged().iter().map(Line::of).collect(),
            permit: self.permit(),
            at: self.at,
            estimate: self.estimate.clone(),
            reservation: None,
            record: None,
        }
    }

    /// The cost that the request came with.
    pub fn estimate(&self) -> &Costs {
        &self.estimate
    }

    pub(super) fn at(&self) -> Option<Timestamp> {
        self.at
    }

    pub(super) fn permit(&self) -> Option<PermitId> {
        self.decisions.iter().find_map(Decision::permit)
    }

    /// What was charged: by all enforced rules if they allow the request, and by each shadow rule that does.
    pub(super) fn charged(&self) -> ChargedLimits<'_> {
        let mut charged = ChargedLimits::new();
        // By descriptors a part may be charged although another is denied; it then stays charged.
        let is_admitted = self.decisions.iter().all(Decision::is_allowed);
        for decision in self.decisions.iter() {
            let taking = decision.rules().iter();
            let taking =
                taking.filter(|rule| rule.stage != ChargeStage::Peek && !rule.is_uncharged);
            for rule in taking {
                let is_charged = if rule.is_shadow {
                    rule.is_allowed()
                } else {
                    is_admitted
                };
                if is_charged {
                    charged.extend(charged_by(decision, rule));
                }
            }
        }
        charged
    }
}

impl From<Receipt> for KeptReceipt {
    fn from(receipt: Receipt) -> Self {
        receipt.into_kept()
    }
}

impl From<Box<Receipt>> for KeptReceipt {
    fn from(receipt: Box<Receipt>) -> Self {
        receipt.into_kept()
    }
}

impl KeptReceipt {
    pub(super) fn estimate(&self) -> &Costs {
        &self.estimate
    }

    pub(super) fn at(&self) -> Option<Timestamp> {
        self.at
    }

    pub(super) fn permit(&self) -> Option<PermitId> {
        self.permit
    }

    pub(super) fn charged(&self) -> ChargedLimits<'_> {
        self.lines.iter().map(Line::charged).collect()
    }

    /// Leaves permits to what else holds them.
    pub(super) fn leave_permits(&mut self) {
        self.permit = None;
        self.lines.retain(|line| !line.limit.is_concurrency());
    }
}

/// What each limit of a rule charged.
fn charged_by<'r>(
    decision: &'r Decision,
    decided: &'r RuleDecision,
) -> impl Iterator<Item = ChargedLimit<'r>> {
    let in_force = decision.in_force();
    let rule = in_force.at(decided.rule);
    let counts = in_force.state(decided.rule).shared_counts();
    let is_local = rule.on_store_failure() == OnStoreFailure::Local;
    let is_compared = decided.is_compared(in_force);
    let charged = decided.charges(in_force).zip(&decided.answers);
    charged.map(move |(charge, answer)| ChargedLimit {
        rule: rule.id(),
        counts,
        unit: rule.unit(),
        warn_at: rule.warn_at().filter(|_| !is_compared),
        is_shadow: decided.is_shadow,
        is_candidate: rule.is_candidate(),
        charge,
        unit_cost: decided.unit_cost,
        outcome: &answer.outcome,
        is_degraded: answer.is_degraded,
        share: answer.share.as_ref(),
        is_local,
    })
}

impl Line {
    fn of(charged: &ChargedLimit<'_>) -> Self {
        Self {
            rule: SmolStr::new(charged.rule),
            counts: Arc::clone(charged.counts),
            unit: charged.unit.clone(),
            warn_at: charged.warn_at,
            is_shadow: charged.is_shadow,
            is_candidate: charged.is_candidate,
            scope: charged.charge.scope.clone(),
            limit: charged.charge.limit.clone(),
            key: SmolStr::new(charged.charge.key),
            cost: charged.charge.cost,
            unit_cost: charged.unit_cost,
            outcome: *charged.outcome,
            is_degraded: charged.is_degraded,
            share: charged.share.cloned(),
            is_local: charged.is_local,
        }
    }

    fn charged(&self) -> ChargedLimit<'_> {
        ChargedLimit {
            rule: &self.rule,
            counts: &self.counts,
            unit: &self.unit,
            warn_at: self.warn_at,
            is_shadow: self.is_shadow,
            is_candidate: self.is_candidate,
            charge: Charge {
                scope: &self.scope,
                limit: &self.limit,
                key: &self.key,
                cost: self.cost,
            },
            unit_cost: self.unit_cost,
            outcome: &self.outcome,
            is_degraded: self.is_degraded,
            share: self.share.as_ref(),
            is_local: self.is_local,
        }
    }
}

impl<'l> ChargedLimit<'l> {
    /// What it costs after all, if nothing is said about its unit: what was charged.
    pub(super) fn actual(&self, actual: &Costs) -> u64 {
        match actual.named(self.unit) {
            Some(cost) => cost.saturating_mul(self.unit_cost),
            None => self.charge.cost,
        }
    }

    /// A charge of another cost to this instance's share.
    pub(super) fn of_share(&self, share: &'l Arc<Share>, cost: u64) -> LocalCharge<'l> {
        LocalCharge {
            share,
            key: self.charge.key,
            cost,
        }
    }
}
