//! What a request was charged, kept so that it can be given back or settled when the request is done.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{Charge, Outcomes, Request, Store, StoreError, Timestamp};

use super::decision::Slot;
use super::local::{LocalCharge, LocalRequest, is_concurrency};
use super::{Claims, Decision, Demand, Gate};
use crate::attributes::Attributes;
use crate::rules::{OnStoreFailure, RuleSet, Share};

/// A decision, and what it takes to change afterwards what was charged by it: once, because both
/// [`Gate::give_back`] and [`Gate::settle`] use it up.
#[derive(Debug)]
#[must_use = "without the receipt nothing can be given back or settled"]
pub struct Receipt {
    decision: Decision,
    bills: SmallVec<[Bill; 1]>,
    at: Option<Timestamp>,
}

/// What one rule charged.
#[derive(Debug)]
struct Bill {
    rule: usize,
    key: Box<str>,
    cost: u64,
    /// What the rule takes for each unit of the request's own cost.
    unit: u64,
}

/// What one limit charged.
#[derive(Clone, Copy)]
struct Line<'r> {
    bill: &'r Bill,
    slot: &'r Slot,
    charge: Charge<'r>,
}

/// Lines that were charged together.
type Lines<'r> = SmallVec<[Line<'r>; 4]>;

/// What is to be done about a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    More(u64),
    Less(u64),
}

impl Receipt {
    pub(super) fn new(
        decision: Decision,
        claims: &Claims<'_>,
        attributes: &Attributes<'_>,
    ) -> Self {
        let rules = decision.rules();
        let bill = |claim: &super::Claim<'_>| match &claim.demand {
            Demand::Charge { key, cost } => Some(Bill {
                rule: claim.rule,
                key: key.as_ref().into(),
                cost: *cost,
                unit: rules.at(claim.rule).unit_cost(attributes),
            }),
            Demand::Nothing => None,
        };
        let bills = claims.iter().filter_map(bill).collect();
        Self {
            decision,
            bills,
            at: attributes.time(),
        }
    }

    /// What was decided.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// What was charged: that of all enforced rules together, that of each shadow rule by itself.
    fn groups(&self) -> Vec<Lines<'_>> {
        let rules = self.decision.rules();
        let slots = self.decision.slots();
        let mut groups = Vec::with_capacity(1);
        let enforced = slots.iter().filter(|slot| !slot.is_shadow);
        if enforced.clone().all(|slot| slot.outcome.allowed) {
            groups.push(enforced.filter_map(|slot| self.line(rules, slot)).collect());
        }
        for bill in &self.bills {
            let own = slots
                .iter()
                .filter(|slot| slot.is_shadow && slot.rule == bill.rule);
            if own.clone().all(|slot| slot.outcome.allowed) {
                groups.push(own.filter_map(|slot| self.line(rules, slot)).collect());
            }
        }
        groups.retain(|lines: &Lines<'_>| !lines.is_empty());
        groups
    }

    fn line<'r>(&'r self, rules: &'r RuleSet, slot: &'r Slot) -> Option<Line<'r>> {
        let rule = rules.at(slot.rule);
        let bill = self.bills.iter().find(|bill| bill.rule == slot.rule)?;
        let charge = Charge {
            scope: rule.scope(),
            limit: slot.limit(rules)?,
            key: &bill.key,
            cost: bill.cost,
        };
        Some(Line { bill, slot, charge })
    }
}

impl Line<'_> {
    /// What makes `cost` of what was charged for the request.
    fn change_to(&self, cost: u64) -> Change {
        let wanted = self.bill.unit.saturating_mul(cost);
        match wanted.checked_sub(self.bill.cost) {
            Some(more) => Change::More(more),
            None => Change::Less(self.bill.cost - wanted),
        }
    }

    fn costing(&self, cost: u64) -> Self {
        let charge = Charge {
            cost,
            ..self.charge
        };
        Self { charge, ..*self }
    }
}

impl<S: Store> Gate<S> {
    /// Takes back what a request was charged that did not go on after all, and releases what it held.
    ///
    /// Of a bucket what has not flowed back since, of a window what is still counted there. What the
    /// store charged without being able to say so stays charged.
    pub async fn give_back(&self, receipt: Receipt) -> Result<(), StoreError> {
        let mut ended = Ok(());
        for lines in receipt.groups() {
            let given = self.give_back_lines(&receipt, &lines, true).await;
            ended = ended.and(given);
        }
        ended
    }

    /// Charges a request what it turned out to cost, in place of the cost that it came with: what is
    /// more is taken without asking, up to a full quota; what is less is given back.
    ///
    /// If the store cannot be reached, rules with `on_store_failure: local` count it by themselves, and
    /// the store hears of it later.
    pub async fn settle(&self, receipt: Receipt, cost: u64) -> Result<(), StoreError> {
        let mut ended = Ok(());
        for lines in receipt.groups() {
            let (mut more, mut less) = (Lines::new(), Lines::new());
            for line in lines
                .iter()
                .filter(|line| !is_concurrency(line.charge.limit))
            {
                match line.change_to(cost) {
                    Change::More(0) => {}
                    Change::More(cost) => more.push(line.costing(cost)),
                    Change::Less(cost) => less.push(line.costing(cost)),
                }
            }
            let given = self.give_back_lines(&receipt, &less, false).await;
            let settled = self.settle_lines(&receipt, &more).await;
            ended = ended.and(given).and(settled);
        }
        ended
    }

    async fn give_back_lines(
        &self,
        receipt: &Receipt,
        lines: &Lines<'_>,
        with_lease: bool,
    ) -> Result<(), StoreError> {
        let lease = receipt.decision.lease().filter(|_| with_lease);
        for line in lines {
            if let Some(share) = &line.slot.share {
                let request = LocalRequest {
                    charges: &[of_share(line, share)],
                    at: receipt.at,
                    lease,
                    is_denied: false,
                };
                self.local.give_back(&request, &[line.slot.outcome]);
            }
        }
        let stored = lines.iter().filter(|line| !line.slot.is_degraded);
        let (charges, outcomes): (SmallVec<[Charge<'_>; 4]>, Outcomes) =
            stored.map(|line| (line.charge, line.slot.outcome)).unzip();
        if charges.is_empty() {
            return Ok(());
        }
        let request = Request {
            charges: &charges,
            at: receipt.at,
            lease,
        };
        self.store.give_back(&request, &outcomes).await
    }

    async fn settle_lines(&self, receipt: &Receipt, lines: &Lines<'_>) -> Result<(), StoreError> {
        for line in lines {
            if let Some(share) = &line.slot.share {
                self.local.settle(&of_share(line, share), receipt.at);
            }
        }
        let stored = || lines.iter().filter(|line| !line.slot.is_degraded);
        let charges: SmallVec<[Charge<'_>; 4]> = stored().map(|line| line.charge).collect();
        if charges.is_empty() {
            return Ok(());
        }
        let request = Request {
            charges: &charges,
            at: receipt.at,
            lease: None,
        };
        let answer = self.store.settle(&request).await;
        if answer.as_ref().is_err_and(StoreError::left_nothing) {
            let rules = receipt.decision.rules();
            let shares = rules.shares(self.instances());
            let is_local = |line: &&Line<'_>| {
                rules.at(line.slot.rule).on_store_failure() == OnStoreFailure::Local
            };
            for line in stored().filter(is_local) {
                let of_grant = shares.limits(line.slot.rule, line.slot.grant);
                if let Some(share) = of_grant.get(line.slot.limit) {
                    self.local.settle(&of_share(line, share), receipt.at);
                }
            }
        }
        answer.map(drop)
    }
}

fn of_share<'l>(line: &Line<'l>, share: &'l Arc<Share>) -> LocalCharge<'l> {
    LocalCharge {
        share,
        key: line.charge.key,
        cost: line.charge.cost,
    }
}
