//! Reads the candidate of a rule: as a rule of its own, in which what the candidate names replaces that of its rule. So
//! it is checked as the rule would be with it. Also reads the rollout.

use std::sync::Arc;

use super::RuleSettings;
use super::grant::GrantIndexes;
use super::key_share::KeyShare;
use super::keys::{CANDIDATE, RATE, RULE};
use super::read_limit::ALGORITHMS;
use super::read_rule::{Taken, rule};
use super::rule::{Mode, Rule};
use crate::internal::document::{
    Entry, Fields, Key, Node, Problem, Problems, Severity, Spot, Value,
};

/// A candidate as it was read.
#[derive(Default)]
pub(super) struct ReadCandidate<'n> {
    pub(super) rule: Option<Arc<Rule>>,
    named: Option<Named<'n>>,
    /// What there is to say about the rule with what it names.
    found: Problems,
}

/// What a candidate names, and where it stands.
struct Named<'n> {
    node: &'n Node,
    /// Its spot in the rule.
    spot: Spot,
    /// The parts that replace those of the rule.
    parts: Vec<Entry>,
    /// Whether it is written as a limit alone.
    is_short: bool,
}

impl<'n> ReadCandidate<'n> {
    /// Reads the candidate of the rule in `node`. Adds its errors to `problems`.
    pub(super) fn read(
        fields: &Fields<'n>,
        (node, index): (&Node, usize),
        settings: &RuleSettings,
        problems: &mut Problems,
    ) -> Self {
        let Some((spot, written)) = fields.take("candidate") else {
            return Self::default();
        };
        if fields.key("adaptive").is_some() {
            let message = "`candidate` does not go with `adaptive`, whose limit moves by itself; write a second rule with `mode: shadow` to try another";
            problems.error(&written.place, &spot, message);
            return Self::default();
        }
        let Some(named) = Named::read(written, spot, problems) else {
            return Self::default();
        };
        let mut found = Problems::new();
        let rule = rule(&named.merged_with(node), index, settings, &mut found);
        // No rule's id begins like this, so no rule has these counters.
        let as_candidate = |rule: Rule| Rule {
            scope: rule.scope.named(&["~", rule.scope.name()].concat()),
            is_candidate: true,
            ..rule
        };
        let read = Self {
            rule: rule.map(as_candidate).map(Arc::new),
            named: Some(named),
            found,
        };
        read.report(Severity::Error, fields.spot(), problems);
        read
    }

    /// Adds its warnings to those of its rule.
    pub(super) fn warn(&self, rule: &Rule, spot: &Spot, problems: &mut Problems) {
        self.report(Severity::Warning, spot, problems);
        if let (Some(candidate), Some(named)) = (&self.rule, &self.named)
            && grants_alike(rule, candidate)
        {
            let message = "the candidate grants the same as the rule, so it is never asked; change it, or remove it";
            problems.warning(&named.node.place, &named.spot, message);
        }
    }

    /// Adds what the rule has to say with the candidate, and not without.
    fn report(&self, severity: Severity, whole: &Spot, problems: &mut Problems) {
        let found = self.found.iter();
        for problem in found.filter(|problem| problem.severity == severity) {
            let is_said = |known: &Problem| {
                (known.severity, &known.message, &known.place)
                    == (problem.severity, &problem.message, &problem.place)
            };
            if let Some(named) = &self.named
                && !problems.iter().any(is_said)
            {
                named.report(problem, whole, problems);
            }
        }
    }
}

impl<'n> Named<'n> {
    fn read(node: &'n Node, spot: Spot, problems: &mut Problems) -> Option<Self> {
        let entries = node.entries();
        let has_any = |table: &[Key]| {
            let mut keys = table.iter().map(|row| row.name);
            keys.any(|name| node.get(name).is_some())
        };
        let is_rate = has_any(&RATE) && !has_any(&CANDIDATE);
        let is_short = is_rate || !matches!(node.value, Value::Map(_));
        let parts = if is_short {
            vec![Entry {
                key: "limit".to_owned(),
                key_place: node.place.clone(),
                value: node.clone(),
            }]
        } else {
            let fields = Fields::new(node, spot.clone(), &CANDIDATE, problems)?;
            if !fields.done(problems) {
                return None;
            }
            let is_there = |entry: &&Entry| !matches!(entry.value.value, Value::Null);
            let parts: Vec<Entry> = entries.iter().filter(is_there).cloned().collect();
            if parts.is_empty() {
                let message = "a candidate needs a limit, tiers, overrides or an algorithm of its own, for example `candidate: 50/minute`";
                return spot.refused(node, message, problems);
            }
            parts
        };
        Some(Self {
            node,
            spot,
            parts,
            is_short,
        })
    }

    fn has(&self, key: &str) -> bool {
        self.parts.iter().any(|part| part.key == key)
    }

    /// The rule with what it names in place of its own. Options of an algorithm that it replaces are left out.
    fn merged_with(&self, rule: &Node) -> Node {
        let algorithm = self.parts.iter().find(|part| part.key == "algorithm");
        let algorithm = algorithm.and_then(|part| part.value.text());
        let algorithm = algorithm.filter(|said| ALGORITHMS.iter().any(|(name, _)| name == said));
        let fits = |key: &str| {
            let row = RULE.iter().find(|row| row.name == key);
            let needs = row.map_or(&[][..], |row| row.needs);
            needs.is_empty() || algorithm.is_none_or(|name| needs.contains(&name))
        };
        let mut entries: Vec<Entry> = Vec::new();
        for entry in rule.entries() {
            let key = entry.key.as_str();
            match self.parts.iter().find(|part| part.key == key) {
                Some(part) => entries.push(part.clone()),
                None if matches!(key, "candidate" | "rollout") || !fits(key) => {}
                None => entries.push(entry.clone()),
            }
        }
        let is_new = |part: &&Entry| rule.entries().iter().all(|entry| entry.key != part.key);
        entries.extend(self.parts.iter().filter(is_new).cloned());
        Node {
            value: Value::Map(entries),
            place: rule.place.clone(),
        }
    }

    /// Adds a problem of the merged rule, where the candidate has it.
    fn report(&self, problem: &Problem, whole: &Spot, problems: &mut Problems) {
        let field = problem.field.strip_prefix(whole.path());
        let field = field.unwrap_or(&problem.field).trim_start_matches('.');
        let end = field.find(['.', '[']).unwrap_or(field.len());
        let (key, rest) = field.split_at(end);
        let add = match problem.severity {
            Severity::Error => Problems::error,
            Severity::Warning => Problems::warning,
        };
        if !self.has(key) {
            // Nothing is wrong with it but that it does not go with the candidate.
            let message = format!("with this candidate, `{field}`: {}", problem.message);
            add(problems, &self.node.place, &self.spot, message);
            return;
        }
        let spot = if self.is_short {
            whole.field(&["candidate", rest].concat())
        } else {
            self.spot.field(field)
        };
        add(problems, &problem.place, &spot, problem.message.clone());
    }
}

/// Whether a candidate grants the same as its rule to every request.
fn grants_alike(rule: &Rule, candidate: &Rule) -> bool {
    let alike = |own: &GrantIndexes, other: &GrantIndexes| {
        let grant_of = |name: &String| other.get(name).map(|index| &candidate.grants[*index]);
        own.len() == other.len()
            && own
                .iter()
                .all(|(name, index)| grant_of(name) == Some(&rule.grants[*index]))
    };
    rule.grants.first() == candidate.grants.first()
        && alike(&rule.tiers, &candidate.tiers)
        && alike(&rule.overrides, &candidate.overrides)
}

/// The rollout of a rule that counts by `per`.
pub(super) fn read_rollout(
    taken: Taken<'_>,
    (per, mode): (Option<&[String]>, Mode),
    problems: &mut Problems,
) -> Option<KeyShare> {
    let (spot, node) = taken?;
    let rollout = spot.parsed(node, str::parse::<KeyShare>, problems);
    if per.is_some_and(<[String]>::is_empty) {
        let message = "`rollout` is a share of the keys of `per`, and this rule has one counter for all; remove it, or count by an attribute";
        problems.error(&node.place, &spot, message);
    }
    if mode == Mode::Shadow {
        let message = "`rollout` does not go with `mode: shadow`, which enforces nothing; remove one of the two";
        problems.error(&node.place, &spot, message);
    }
    rollout
}

impl Rule {
    /// What is tried in place of its limits, if it has a candidate: a rule with the same id, whose grants and counters
    /// are its own.
    pub fn candidate(&self) -> Option<&Arc<Self>> {
        self.candidate.as_ref()
    }

    /// Whether it is the [candidate](Self::candidate) of a rule.
    pub fn is_candidate(&self) -> bool {
        self.is_candidate
    }

    /// The share of keys that its candidate decides for or, without one, the rule itself.
    pub fn rollout(&self) -> Option<KeyShare> {
        self.rollout
    }
}
