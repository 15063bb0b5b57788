//! Tidegate's gate with rules, in many shapes: how the cost of a decision grows.

use std::fmt::Write as _;

use tidegate::rules::RuleSet;
use tidegate::{Attributes, Gate, MemoryStore};

use super::Contender;
use crate::block_on;

/// How many rules there are, and how many limits apply to a request.
#[derive(Clone, Copy)]
pub struct GateShape {
    pub rules: u32,
    pub limits: u32,
}

impl GateShape {
    /// From `RULES,LIMITS`.
    pub fn parse(text: &str) -> Option<Self> {
        let (rules, limits) = text.split_once(',')?;
        Some(Self {
            rules: rules.parse().ok()?,
            limits: limits.parse().ok()?,
        })
    }
}

pub(super) struct GateContender {
    gate: Gate,
    limits: usize,
}

impl GateContender {
    /// The first rules match every request, as many as limits apply; each of the others another path.
    pub(super) fn new(shape: GateShape) -> Self {
        let limit = "per: [user_id], missing: deny, limit: 1000/day burst 100000000";
        let mut text = "rules:\n".to_owned();
        for number in 0..shape.rules {
            let matching = if number < shape.limits {
                "/**".to_owned()
            } else {
                format!("/svc{number}/**")
            };
            let _ = writeln!(
                text,
                "- {{id: r{number}, match: {{path: {matching}}}, {limit}}}"
            );
        }
        let rules = RuleSet::from_yaml(&text).unwrap_or_else(|problems| panic!("{problems}"));
        Self {
            gate: Gate::new(MemoryStore::builder().max_keys(20_000_000).build(), rules),
            limits: shape.limits as usize,
        }
    }
}

impl Contender for GateContender {
    fn check(&self, key: &str) -> bool {
        let mut attributes = Attributes::new();
        for (name, value) in [("path", "/v1/users"), ("method", "GET"), ("user_id", key)] {
            attributes.insert(name, value).expect("sound attributes");
        }
        let decision = block_on(self.gate.decide(&attributes));
        assert_eq!(decision.limits().count(), self.limits, "limits that apply");
        decision.is_allowed()
    }
}
