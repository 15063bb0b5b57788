//! Two sets of rules decide the same requests, each with its own counters: what becomes different.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use smol_str::SmolStr;
use tidegate::gate::{Decisions, Observed};

use super::gates::VirtualGate;

/// Requests that the two sets decide differently, by the rule and the client that decided the denial.
#[derive(Debug, Default)]
pub(crate) struct ChangedDecisions {
    pub(crate) requests: u64,
    clients: HashMap<(usize, SmolStr), u64, RandomState>,
}

impl ChangedDecisions {
    fn count(&mut self, denied: Option<(usize, SmolStr)>) {
        self.requests += 1;
        if let Some(client) = denied {
            *self.clients.entry(client).or_default() += 1;
        }
    }

    pub(crate) fn client_count(&self) -> usize {
        self.clients.len()
    }

    /// The clients with the most requests: the index of the rule, the key, the requests.
    pub(crate) fn top(&self, most: Option<usize>) -> Vec<(usize, &str, u64)> {
        let clients = self.clients.iter();
        let mut all: Vec<(usize, &str, u64)> = clients
            .map(|((rule, key), requests)| (*rule, key.as_str(), *requests))
            .collect();
        all.sort_unstable_by(|one, other| {
            other
                .2
                .cmp(&one.2)
                .then_with(|| (one.0, one.1).cmp(&(other.0, other.1)))
        });
        all.truncate(most.unwrap_or(usize::MAX));
        all
    }
}

/// What other rules say to the same requests.
pub(crate) struct AgainstTally {
    pub(crate) gate: VirtualGate,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// What each of its rules denied.
    pub(crate) rules_denied: Vec<u64>,
    pub(crate) newly_denied: ChangedDecisions,
    pub(crate) newly_allowed: ChangedDecisions,
}

impl AgainstTally {
    pub(crate) fn new(gate: VirtualGate) -> Self {
        Self {
            rules_denied: vec![0; gate.rules().len()],
            gate,
            allowed: 0,
            denied: 0,
            newly_denied: ChangedDecisions::default(),
            newly_allowed: ChangedDecisions::default(),
        }
    }

    /// Compares what the other rules decided with what the rules of the run did.
    pub(crate) fn compare(&mut self, before: &Observed<'_, '_>, after: &Observed<'_, '_>) {
        let (was_allowed, is_allowed) =
            (before.decisions.is_allowed(), after.decisions.is_allowed());
        if was_allowed {
            self.allowed += 1;
        } else {
            self.denied += 1;
        }
        for rule in before
            .parts()
            .flat_map(|part| part.own_limits().collect::<Vec<_>>())
        {
            if !is_allowing(&rule) {
                self.rules_denied[rule.index()] += 1;
            }
        }
        match (was_allowed, is_allowed) {
            (true, false) => self.newly_denied.count(decider(after)),
            (false, true) => self.newly_allowed.count(decider(before)),
            _ => {}
        }
    }
}

fn is_allowing(rule: &tidegate::gate::ObservedRule<'_, '_>) -> bool {
    use tidegate::rules::Verdict;
    matches!(rule.verdict(), Verdict::Allowed | Verdict::ShadowAllowed)
}

/// The rule that decided a denial, by its index, and the key that it denied.
fn decider(observed: &Observed<'_, '_>) -> Option<(usize, SmolStr)> {
    let denied =
        |decisions: &Decisions| decisions.iter().position(|decision| !decision.is_allowed());
    let part = observed.parts().nth(denied(observed.decisions)?)?;
    let id = part.decision.rule()?;
    let rule = part
        .rules()
        .find(|rule| rule.rule().id() == id && !rule.is_shadow())?;
    let key = rule
        .key()
        .map(|key| SmolStr::new(&*key))
        .unwrap_or_default();
    Some((rule.index(), key))
}
