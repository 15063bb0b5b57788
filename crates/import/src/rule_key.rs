//! The attributes that a rule counts by, and what becomes of requests that lack one.

use crate::request_test::{LooksFor, RequestFact, RequestTest};

/// The attributes of a key.
#[derive(Default)]
pub(crate) struct RuleKey {
    facts: Vec<RequestFact>,
    /// Whether the key has more text than these, and so is never empty.
    pub(crate) is_prefixed: bool,
}

/// How many attributes of a key may be missing, each with rules of its own.
const MAX_OPTIONAL: usize = 3;

/// One rule of a key.
#[derive(Debug)]
pub(crate) struct KeyVariant {
    pub(crate) facts: Vec<RequestFact>,
    /// The attributes that its requests lack.
    pub(crate) lacks: Vec<RequestTest>,
    /// Whether requests that lack the attribute share a counter.
    pub(crate) is_shared: bool,
    /// Whether requests that lack a part of the key are not limited, although nginx limits them.
    pub(crate) is_partial: bool,
}

impl RuleKey {
    pub(crate) fn add(&mut self, fact: RequestFact) {
        if !self.facts.contains(&fact) {
            self.facts.push(fact);
        }
    }

    /// The rules that it takes: requests that lack a part of the key are counted by the rest of it.
    pub(crate) fn variants(self) -> Vec<KeyVariant> {
        let optional: Vec<&RequestFact> = self
            .facts
            .iter()
            .filter(|fact| fact.is_optional())
            .collect();
        let is_alone = self.facts.len() == 1 && optional.len() == 1;
        let mut variants = vec![KeyVariant {
            facts: self.facts.clone(),
            lacks: Vec::new(),
            is_shared: is_alone && self.is_prefixed,
            is_partial: optional.len() > MAX_OPTIONAL,
        }];
        if is_alone || optional.len() > MAX_OPTIONAL {
            return variants;
        }
        let lacks = |fact: &RequestFact| RequestTest {
            fact: fact.clone(),
            looks_for: LooksFor::Any,
            is_negated: true,
        };
        // Each choice of those that are missing, as bits.
        for missing in 1..1_usize << optional.len() {
            let chosen = optional.iter().enumerate();
            let chosen = chosen.filter(|(index, _)| missing & 1 << index != 0);
            let missing: Vec<&RequestFact> = chosen.map(|(_, fact)| *fact).collect();
            let mut facts = self.facts.clone();
            facts.retain(|fact| !missing.contains(&fact));
            if facts.is_empty() && !self.is_prefixed {
                continue;
            }
            variants.push(KeyVariant {
                facts,
                lacks: missing.into_iter().map(lacks).collect(),
                is_shared: false,
                is_partial: false,
            });
        }
        variants
    }
}
