//! A gate in virtual time: requests bring their times, idle keys expire by them, permits end with their requests.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use tidegate::gate::{Asked, Decisions, MatchedRequest, Receipt, RulesInForce};
use tidegate::rules::{FrontEnd, Rule, RuleSet, ValueDigest};
use tidegate::{
    Attributes, Gate, InvalidCredentials, ManualClock, MemoryStore, Micros, PermitId, Store,
    Timestamp,
};

/// How long a key is kept after it became idle: a line may come late by this much, and a clock that goes back must give
/// nothing.
const KEPT_IDLE: Micros = Micros::HOUR;

/// A gate in virtual time.
pub(crate) struct VirtualGate {
    gate: Gate,
    rules: RulesInForce,
    listed: Vec<Arc<Rule>>,
    clock: ManualClock,
    newest: u64,
    /// The permits that are held, by the time at which their requests end.
    held: BinaryHeap<Reverse<(u64, u128)>>,
}

impl VirtualGate {
    pub(crate) fn new(rules: RuleSet, invalid_credentials: InvalidCredentials) -> Self {
        let clock = ManualClock::new(Timestamp::EPOCH);
        let store = MemoryStore::builder()
            .clock(clock.clone())
            .expire_by_clock()
            .build();
        let gate = Gate::with_clock(store, rules, clock.clone());
        let gate = gate.with_invalid_credentials(invalid_credentials);
        let rules = gate.rules();
        Self {
            listed: rules.iter().map(|rule| Arc::clone(&rule)).collect(),
            rules,
            gate,
            clock,
            newest: 0,
            held: BinaryHeap::new(),
        }
    }

    /// The same gate, whose rollouts choose keys by this secret.
    pub(crate) fn with_digest(self, digest: &Arc<ValueDigest>) -> Self {
        let gate = self.gate.with_digest(Arc::clone(digest));
        Self {
            rules: gate.rules(),
            gate,
            ..self
        }
    }

    pub(crate) fn rules(&self) -> &RulesInForce {
        &self.rules
    }

    /// The rule at an index.
    pub(crate) fn rule(&self, index: usize) -> &Rule {
        &self.listed[index]
    }

    /// Moves on to the time of a request: permits of requests that have ended until then are free.
    pub(crate) fn advance(&mut self, time: u64) {
        if time > self.newest {
            self.newest = time;
            self.clock
                .set(Timestamp::from_micros(time.saturating_sub(KEPT_IDLE.get())));
        }
        while let Some(Reverse((end, permit))) = self.held.peek()
            && *end <= time
        {
            if let Store::Memory(store) = self.gate.store() {
                store.release(PermitId::from_u128(*permit));
            }
            self.held.pop();
        }
    }

    pub(crate) fn matched(&self, attributes: &Attributes<'_>) -> MatchedRequest {
        self.gate.match_request(&self.rules, attributes)
    }

    /// Decides a request whose rules were matched. None if the store were remote, which it is not.
    pub(crate) fn decide(&mut self, request: &MatchedRequest, ends: u64) -> Option<Decisions> {
        let receipt = self.gate.decide_matched(&self.rules, request).ok()?;
        Some(self.hold(receipt, ends))
    }

    /// Decides a request whose rules were matched by a gate with other limits.
    pub(crate) fn decide_again(&mut self, request: &mut MatchedRequest, ends: u64) {
        if let Ok(Some(permit)) = self.gate.decide_again(&self.rules, request) {
            self.held.push(Reverse((ends, permit.as_u128())));
        }
    }

    /// Decides a request of several parts.
    pub(crate) fn decide_parts<'a, 'b: 'a>(
        &mut self,
        asked: Asked<'a, 'b>,
        ends: u64,
    ) -> Option<Decisions> {
        let receipt = self
            .gate
            .try_decide_by(&self.rules, FrontEnd::Library, asked)
            .ok()?;
        Some(self.hold(receipt, ends))
    }

    fn hold(&mut self, receipt: Receipt, ends: u64) -> Decisions {
        let decisions = receipt.into_decisions();
        if let Some(permit) = decisions.iter().find_map(tidegate::Decision::permit) {
            self.held.push(Reverse((ends, permit.as_u128())));
        }
        decisions
    }

    /// How many keys had to make room for others.
    pub(crate) fn evicted(&self) -> u64 {
        match self.gate.store() {
            Store::Memory(store) => store.stats().evicted,
            Store::Remote(_) => 0,
        }
    }
}
