//! What a request was charged, kept so that it can be given back or settled when the request is done.

use std::sync::Arc;

use smallvec::SmallVec;
use smol_str::SmolStr;
use tidegate_core::{
    Charge, Limit, Outcome, Outcomes, PermitId, Request, Scope, StoreError, Timestamp,
};

use super::local::{LocalCharge, LocalRequest};
use super::pipeline::{Pipeline, Verb};
use super::rule_decision::{ChargeStage, RuleDecision};
use super::{Decision, Decisions, Gate};
use crate::rules::{OnStoreFailure, Share};

/// A decision, and what it takes to change afterwards what was charged by it: once, because both
/// [`Gate::give_back`] and [`Gate::settle`] use it up.
#[derive(Debug)]
#[must_use = "without the receipt nothing can be given back or settled"]
pub struct Receipt {
    decisions: Decisions,
    at: Option<Timestamp>,
}

/// What a request was charged, by itself: keys, limits, times and costs, and neither the decision nor the rules. To be
/// kept for longer than the request. Used once, like the [receipt](Receipt) that it is made of.
#[derive(Debug)]
#[must_use = "without it nothing can be given back or settled"]
pub struct KeptReceipt {
    /// Those of all enforced rules together, those of each shadow rule on their own.
    groups: SmallVec<[Lines; 1]>,
    permit: Option<PermitId>,
    at: Option<Timestamp>,
}

/// What one limit charged.
#[derive(Debug, Clone)]
struct Line {
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

/// Lines that were charged together.
type Lines = SmallVec<[Line; 1]>;

/// How a line changes when it is settled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    More(u64),
    Less(u64),
}

impl Receipt {
    pub(super) fn new(decisions: Decisions, at: Option<Timestamp>) -> Self {
        Self { decisions, at }
    }

    /// The receipt of a request that these pipelines decided.
    pub(super) fn from_pipelines(pipelines: Vec<Pipeline>) -> Self {
        let mut decisions = SmallVec::new();
        let at = pipelines.first().and_then(|pipeline| pipeline.at);
        for pipeline in pipelines {
            pipeline.finish_parts(&mut decisions);
        }
        Self::new(Decisions::many(decisions), at)
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
    pub fn into_decision(self) -> Decision {
        self.decisions.into_first()
    }

    /// The decision about each part alone. What was charged stays charged.
    pub fn into_decisions(self) -> Decisions {
        self.decisions
    }

    /// What was charged, without the decision and the rules that it was made by.
    pub fn into_kept(self) -> KeptReceipt {
        let mut groups = SmallVec::new();
        // By descriptors a part may be charged although another is denied; it then stays charged.
        let is_charged = self.decisions.iter().all(Decision::is_allowed);
        for decision in self.decisions.iter() {
            let rules = || {
                let rules = decision.rules().iter();
                rules.filter(|rule| rule.stage != ChargeStage::Peek)
            };
            if is_charged {
                let enforced = rules().filter(|rule| !rule.is_shadow);
                groups.push(enforced.flat_map(|rule| lines(decision, rule)).collect());
            }
            for rule in rules().filter(|rule| rule.is_shadow && rule.is_allowed()) {
                groups.push(lines(decision, rule).collect());
            }
        }
        groups.retain(|lines: &mut Lines| !lines.is_empty());
        KeptReceipt {
            groups,
            permit: self.decisions.iter().find_map(Decision::permit),
            at: self.at,
        }
    }
}

impl From<Receipt> for KeptReceipt {
    fn from(receipt: Receipt) -> Self {
        receipt.into_kept()
    }
}

/// What each limit of a rule charged.
fn lines<'r>(decision: &'r Decision, decided: &'r RuleDecision) -> impl Iterator<Item = Line> {
    let in_force = decision.in_force();
    let is_local = in_force.at(decided.rule).on_store_failure() == OnStoreFailure::Local;
    let charged = decided.charges(in_force).zip(&decided.answers);
    charged.map(move |(charge, answer)| Line {
        scope: charge.scope.clone(),
        limit: charge.limit.clone(),
        key: SmolStr::new(charge.key),
        cost: charge.cost,
        unit_cost: decided.unit_cost,
        outcome: answer.outcome,
        is_degraded: answer.is_degraded,
        share: answer.share.clone(),
        is_local,
    })
}

impl Line {
    /// What makes `cost` of what was charged for the request.
    fn change_to(&self, cost: u64) -> Change {
        let wanted = self.unit_cost.saturating_mul(cost);
        match wanted.checked_sub(self.cost) {
            Some(more) => Change::More(more),
            None => Change::Less(self.cost - wanted),
        }
    }

    fn costing(&self, cost: u64) -> Self {
        Self {
            cost,
            ..self.clone()
        }
    }

    fn charge(&self) -> Charge<'_> {
        Charge {
            scope: &self.scope,
            limit: &self.limit,
            key: &self.key,
            cost: self.cost,
        }
    }

    fn of_share<'l>(&'l self, share: &'l Arc<Share>) -> LocalCharge<'l> {
        LocalCharge {
            share,
            key: &self.key,
            cost: self.cost,
        }
    }
}

impl Gate {
    /// Takes back what a request was charged that did not go on after all, and releases what it held.
    ///
    /// Of a bucket what has not flowed back since, of a window what is still counted there. What the
    /// store charged without being able to say so stays charged.
    pub async fn give_back(&self, receipt: impl Into<KeptReceipt>) -> Result<(), StoreError> {
        let receipt = receipt.into();
        let mut ended = Ok(());
        for lines in &receipt.groups {
            let given = self
                .give_back_lines(lines, receipt.permit, receipt.at)
                .await;
            ended = ended.and(given);
        }
        ended
    }

    /// Charges a request what it turned out to cost, in place of the cost that it came with: what is
    /// more is taken without asking, up to a full quota; what is less is given back.
    ///
    /// If the store cannot be reached, rules with `on_store_failure: local` count it locally, and it is
    /// reconciled with the store later.
    pub async fn settle(
        &self,
        receipt: impl Into<KeptReceipt>,
        cost: u64,
    ) -> Result<(), StoreError> {
        let receipt = receipt.into();
        let mut ended = Ok(());
        for lines in &receipt.groups {
            let (mut more, mut less) = (Lines::new(), Lines::new());
            for line in lines.iter().filter(|line| !line.limit.is_concurrency()) {
                match line.change_to(cost) {
                    Change::More(0) => {}
                    Change::More(cost) => more.push(line.costing(cost)),
                    Change::Less(cost) => less.push(line.costing(cost)),
                }
            }
            let given = self.give_back_lines(&less, None, receipt.at).await;
            let settled = self.settle_lines(&more, receipt.at).await;
            ended = ended.and(given).and(settled);
        }
        ended
    }

    async fn give_back_lines(
        &self,
        lines: &Lines,
        permit: Option<PermitId>,
        at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        for line in lines {
            if let Some(share) = &line.share {
                let request = LocalRequest {
                    charges: &[line.of_share(share)],
                    at,
                    permit,
                    verb: Verb::Charge,
                };
                self.local.give_back(&request, &[line.outcome]);
            }
        }
        let stored = lines.iter().filter(|line| !line.is_degraded);
        let (charges, outcomes): (SmallVec<[Charge<'_>; 4]>, Outcomes) =
            stored.map(|line| (line.charge(), line.outcome)).unzip();
        if charges.is_empty() {
            return Ok(());
        }
        let request = Request {
            charges: &charges,
            at,
            permit,
        };
        self.store.give_back(&request, &outcomes).await
    }

    async fn settle_lines(&self, lines: &Lines, at: Option<Timestamp>) -> Result<(), StoreError> {
        for line in lines {
            if let Some(share) = &line.share {
                self.local.settle(&line.of_share(share), at);
            }
        }
        let stored = || lines.iter().filter(|line| !line.is_degraded);
        let charges: SmallVec<[Charge<'_>; 4]> = stored().map(Line::charge).collect();
        if charges.is_empty() {
            return Ok(());
        }
        let request = Request {
            charges: &charges,
            at,
            permit: None,
        };
        let answer = self.store.settle(&request).await;
        if answer.as_ref().is_err_and(StoreError::left_nothing) {
            for line in stored().filter(|line| line.is_local) {
                let share = Share::of(&line.scope, &line.limit, self.instances());
                self.local.settle(&line.of_share(&share), at);
            }
        }
        answer.map(drop)
    }
}
