//! The gate over supplied times: who is matched, who pays, what the answer says.

#![expect(clippy::unwrap_used, reason = "a test may")]

mod adaptive;
mod adaptive_rate;
mod bringing;
mod charging;
mod credentials;
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
mod replacing;

use tidegate::gate::{Decision, Decisions, Part, Receipt};
use tidegate::rules::{FrontEnd, RuleSet};
use tidegate::{Attributes, Gate, MemoryStore, Store, Timestamp};
use tidegate_testkit::block_on;

/// A whole minute.
const NOW: Timestamp = Timestamp::from_seconds(1_794_700_800);

/// The rules of a list in YAML.
fn rules(list: &str) -> RuleSet {
    RuleSet::from_yaml(&format!("rules:\n{list}")).unwrap()
}

fn gate(list: &str) -> Gate<MemoryStore> {
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

fn decide<S: Store>(gate: &Gate<S>, attributes: &Attributes<'_>) -> Decision {
    block_on(gate.decide(attributes))
}

/// Decides a request of several parts.
fn decide_parts<S: Store>(gate: &Gate<S>, parts: &[Part<'_>]) -> Decisions {
    let deciding = gate.decide_by(gate.rules(), FrontEnd::Grpc, parts);
    block_on(deciding.wait()).into_decisions()
}

/// Decides a request, and keeps what it takes to give it back or to settle it.
fn decide_with_receipt<S: Store>(gate: &Gate<S>, attributes: &Attributes<'_>) -> Receipt {
    let deciding = gate.decide_by(gate.rules(), FrontEnd::Library, attributes);
    block_on(deciding.wait())
}

/// What each limit that applies has left, by a request that takes nothing.
fn left<S: Store>(gate: &Gate<S>, text: &str) -> Vec<u64> {
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
