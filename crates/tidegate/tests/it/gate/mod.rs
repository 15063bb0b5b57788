//! The gate over supplied times: who is matched, who pays, what the answer says.

#![expect(clippy::unwrap_used, reason = "a test may")]

mod adaptive;
mod adaptive_rate;
mod alone;
mod bringing;
mod candidates;
mod charging;
mod credentials;
mod estimates;
mod exceptions;
mod explain;
mod failure;
mod local;
mod matching;
mod networks;
mod observing;
mod oracle;
mod parts;
mod ratelimit;
mod readings;
mod reasons;
mod receipts;
mod recorded;
mod replacing;
mod reservations;
mod reserving;
mod units;

use std::ops::Deref;
use std::sync::Arc;

use tidegate::gate::{Decision, Decisions, Part, Receipt};
use tidegate::rules::{FrontEnd, RuleSet};
use tidegate::{Attributes, Clock, Gate, MemoryStore, SystemClock, Timestamp};
use tidegate_testkit::{FailingStore, block_on};

/// A whole minute.
const NOW: Timestamp = Timestamp::from_seconds(1_794_700_800);

/// The rules of a list in YAML.
fn rules(list: &str) -> RuleSet {
    RuleSet::from_yaml(&format!("rules:\n{list}")).unwrap()
}

/// A gate over a store that fails as the test says.
struct FailingGate {
    gate: Gate,
    store: Arc<FailingStore>,
}

impl FailingGate {
    fn new(store: FailingStore, rules: RuleSet) -> Self {
        Self::with_clock(store, rules, SystemClock)
    }

    fn with_clock(store: FailingStore, rules: RuleSet, clock: impl Clock) -> Self {
        let store = Arc::new(store);
        let gate = Gate::with_clock(Arc::clone(&store), rules, clock);
        Self { gate, store }
    }

    fn with_instances(self, instances: u64) -> Self {
        let gate = self.gate.with_instances(instances);
        Self { gate, ..self }
    }

    fn store(&self) -> &FailingStore {
        &self.store
    }
}

impl Deref for FailingGate {
    type Target = Gate;

    fn deref(&self) -> &Gate {
        &self.gate
    }
}

fn gate(list: &str) -> Gate {
    Gate::new(MemoryStore::new(), rules(list))
}

/// The attributes of `name=value name=value`, at [`NOW`].
fn request(text: &str) -> Attributes<'_> {
    let mut attributes = Attributes::new().at(NOW);
    for pair in text.split_whitespace() {
        let (name, value) = pair.split_once('=').unwrap();
        attributes.insert(name, value).unwrap();
    }
    attributes
}

fn decide(gate: &Gate, attributes: &Attributes<'_>) -> Decision {
    block_on(gate.decide(attributes))
}

/// Decides a request of several parts.
fn decide_parts(gate: &Gate, parts: &[Part<'_>]) -> Decisions {
    let rules = gate.rules();
    let deciding = gate.decide_by(&rules, FrontEnd::Grpc, parts);
    block_on(deciding).into_decisions()
}

/// Decides a request, and keeps what it takes to give it back or to settle it.
fn decide_with_receipt(gate: &Gate, attributes: &Attributes<'_>) -> Receipt {
    let rules = gate.rules();
    let deciding = gate.decide_by(&rules, FrontEnd::Library, attributes);
    block_on(deciding)
}

/// What each limit that applies has left, by a request that takes nothing.
fn left(gate: &Gate, text: &str) -> Vec<u64> {
    let decision = decide(gate, &request(text).with_cost(0));
    decision
        .limits()
        .map(|answer| answer.outcome.remaining)
        .collect()
}

/// The rules that answered, in their order.
fn answered(decision: &Decision) -> Vec<String> {
    decision
        .limits()
        .map(|answer| answer.rule.id().to_owned())
        .collect()
}
