//! What a request was charged, kept so that it can be given back or settled when the request is done.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{Charge, Outcomes, PermitId, Request, Store, StoreError, Timestamp};

use super::decision::DecidedLimit;
use super::group::Verb;
use super::local::{LocalCharge, LocalRequest};
use super::matching::{MatchedRule, MatchedRules};
use super::pipeline::Pipeline;
use super::{Decision, Decisions, Gate};
use crate::rules::{RuleSet, Share};

/// A decision, and what it takes to change afterwards what was charged by it: once, because both
/// [`Gate::give_back`] and [`Gate::settle`] use it up.
#[derive(Debug)]
#[must_use = "without the receipt nothing can be given back or settled"]
pub struct Receipt<'a> {
    decisions: Decisions,
    matched: MatchedRules<'a>,
    at: Option<Timestamp>,
}

/// What one limit charged.
#[derive(Clone, Copy)]
struct Line<'r> {
    matched: &'r MatchedRule<'r>,
    decided: &'r DecidedLimit,
    charge: Charge<'r>,
    rules: &'r RuleSet,
}

/// Lines that were charged together.
type Lines<'r> = SmallVec<[Line<'r>; 4]>;

/// How a line changes when it is settled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    More(u64),
    Less(u64),
}

impl<'a> Receipt<'a> {
    pub(super) fn new(
        decision: Decision,
        matched: MatchedRules<'a>,
        at: Option<Timestamp>,
    ) -> Self {
        Self {
            decisions: Decisions::one(decision),
            matched,
            at,
        }
    }

    /// The receipt of a request of several parts.
    pub(super) fn of_parts(pipelines: Vec<Pipeline<'a>>) -> Self {
        let (mut decisions, mut matched) = (SmallVec::new(), MatchedRules::new());
        let at = pipelines.first().and_then(|pipeline| pipeline.at);
        for pipeline in pipelines {
            pipeline.finish_parts(&mut decisions, &mut matched);
        }
        Self {
            decisions: Decisions::many(decisions),
            matched,
            at,
        }
    }

    /// The decision; of a request of several parts, that about the first of them.
    pub fn decision(&self) -> &Decision {
        self.decisions.first()
    }

    /// The decision about each part.
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    pub(super) fn matched(&self) -> &[MatchedRule<'a>] {
        &self.matched
    }

    /// The decision alone. What was charged stays charged.
    pub fn into_decision(self) -> Decision {
        self.decisions.into_first()
    }

    /// The decision about each part alone. What was charged stays charged.
    pub fn into_decisions(self) -> Decisions {
        self.decisions
    }

    /// The same receipt, borrowing nothing from the attributes.
    pub fn into_owned(self) -> Receipt<'static> {
        Receipt {
            decisions: self.decisions,
            matched: self
                .matched
                .into_iter()
                .map(MatchedRule::into_owned)
                .collect(),
            at: self.at,
        }
    }

    /// What was charged: that of all enforced rules together, that of each shadow rule on its own.
    fn groups(&self) -> Vec<Lines<'_>> {
        let mut groups = Vec::with_capacity(1);
        // By descriptors a part may be charged although another is denied; it then stays charged.
        let is_charged = self.decisions.iter().all(Decision::is_allowed);
        for (part, decision) in self.decisions.iter().enumerate() {
            let rules = || {
                self.matched
                    .iter()
                    .filter(move |rule| rule.part == part && !rule.is_peek)
            };
            if is_charged {
                let enforced = rules().filter(|rule| !rule.is_shadow);
                groups.push(enforced.flat_map(|rule| lines(decision, rule)).collect());
            }
            for rule in rules().filter(|rule| rule.is_shadow) {
                let lines: Lines<'_> = lines(decision, rule).collect();
                if lines.iter().all(|line| line.decided.outcome.allowed) {
                    groups.push(lines);
                }
            }
        }
        groups.retain(|lines: &Lines<'_>| !lines.is_empty());
        groups
    }

    fn permit(&self) -> Option<PermitId> {
        self.decisions.iter().find_map(Decision::permit)
    }
}

/// What each limit of a rule charged.
fn lines<'r>(
    decision: &'r Decision,
    matched: &'r MatchedRule<'r>,
) -> impl Iterator<Item = Line<'r>> {
    let rules = decision.rules();
    let limits = decision.decided_limits().iter();
    let own = limits.filter(|decided| decided.rule == matched.rule);
    own.filter_map(|decided| {
        let charge = Charge {
            scope: rules.at(matched.rule).scope(),
            limit: decided.limit(rules)?,
            key: matched.key.as_deref()?,
            cost: matched.cost,
        };
        Some(Line {
            matched,
            decided,
            charge,
            rules,
        })
    })
}

impl Line<'_> {
    /// What makes `cost` of what was charged for the request.
    fn change_to(&self, cost: u64) -> Change {
        let wanted = self.matched.unit_cost.saturating_mul(cost);
        match wanted.checked_sub(self.matched.cost) {
            Some(more) => Change::More(more),
            None => Change::Less(self.matched.cost - wanted),
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
    pub async fn give_back(&self, receipt: Receipt<'_>) -> Result<(), StoreError> {
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
    /// If the store cannot be reached, rules with `on_store_failure: local` count it locally, and it is
    /// reconciled with the store later.
    pub async fn settle(&self, receipt: Receipt<'_>, cost: u64) -> Result<(), StoreError> {
        let mut ended = Ok(());
        for lines in receipt.groups() {
            let (mut more, mut less) = (Lines::new(), Lines::new());
            for line in lines
                .iter()
                .filter(|line| !line.charge.limit.is_concurrency())
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
        receipt: &Receipt<'_>,
        lines: &Lines<'_>,
        with_permit: bool,
    ) -> Result<(), StoreError> {
        let permit = receipt.permit().filter(|_| with_permit);
        for line in lines {
            if let Some(share) = &line.decided.share {
                let request = LocalRequest {
                    charges: &[of_share(line, share)],
                    at: receipt.at,
                    permit,
                    verb: Verb::Charge,
                };
                self.local.give_back(&request, &[line.decided.outcome]);
            }
        }
        let stored = lines.iter().filter(|line| !line.decided.is_degraded);
        let (charges, outcomes): (SmallVec<[Charge<'_>; 4]>, Outcomes) = stored
            .map(|line| (line.charge, line.decided.outcome))
            .unzip();
        if charges.is_empty() {
            return Ok(());
        }
        let request = Request {
            charges: &charges,
            at: receipt.at,
            permit,
        };
        self.store.give_back(&request, &outcomes).await
    }

    async fn settle_lines(
        &self,
        receipt: &Receipt<'_>,
        lines: &Lines<'_>,
    ) -> Result<(), StoreError> {
        for line in lines {
            if let Some(share) = &line.decided.share {
                self.local.settle(&of_share(line, share), receipt.at);
            }
        }
        let stored = || lines.iter().filter(|line| !line.decided.is_degraded);
        let charges: SmallVec<[Charge<'_>; 4]> = stored().map(|line| line.charge).collect();
        if charges.is_empty() {
            return Ok(());
        }
        let request = Request {
            charges: &charges,
            at: receipt.at,
            permit: None,
        };
        let answer = self.store.settle(&request).await;
        if answer.as_ref().is_err_and(StoreError::left_nothing) {
            for line in stored() {
                let shares = self.shares_of(line.rules, line.matched);
                if let Some(share) = shares.get(line.decided.limit) {
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
