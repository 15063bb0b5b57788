//! Explains a decision without making it: why each rule applies or does not, and what a check would answer now.
//!
//! Rules are matched, and their charges answered, by the code that decides; only nothing is taken or counted.

use std::sync::Arc;

use super::in_force::InForce;
use super::matching::{NoPart, RuleMatcher};
use super::pipeline::Pipeline;
use super::rule_decision::{RuleDecision, RuleDecisions};
use super::{Decision, Gate, LimitOutcome, RulesInForce};
use crate::attributes::Attributes;
use crate::rules::{
    Explaining, Facts, FailedCondition, GrantSource, KeyShare, Rule, ShowValue, limits_text,
};

/// Why a request would be allowed or denied.
#[derive(Debug)]
pub struct Explanation {
    rules: Vec<ExplainedRule>,
    omitted: usize,
    decision: Decision,
}

/// How many rules that do not apply are explained.
const MOST_FAILED: usize = 500;

/// Why a rule applies to a request, or does not.
#[derive(Debug)]
#[non_exhaustive]
pub struct ExplainedRule {
    /// The rule.
    pub rule: Arc<Rule>,
    /// The first condition that the request does not meet; none if the rule applies.
    pub failed: Option<FailedCondition>,
    /// What it grants, if it applies.
    pub grant: Option<ExplainedGrant>,
    /// The attributes and values that name the counter: empty if all clients share it, none if the rule does
    /// not apply or an attribute is missing.
    pub key: Option<Vec<(String, String)>>,
    /// The part that tiers have in it; none if it does not apply, has no tiers, or goes by something else.
    pub tier: Option<ExplainedTier>,
    /// Its candidate, if it is asked.
    pub candidate: Option<ExplainedCandidate>,
    /// Its rollout, and whether that has the key of the request. None without a rollout, or if the rule does not apply.
    pub rollout: Option<(KeyShare, bool)>,
}

/// The candidate of a rule that is asked about a request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ExplainedCandidate {
    /// The candidate, which has the id of its rule.
    pub rule: Arc<Rule>,
    /// What it grants.
    pub grant: ExplainedGrant,
    /// Whether it decides; otherwise the rule's own limit does.
    pub decides: bool,
}

/// The part that the tiers of a rule have in what it grants to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExplainedTier {
    /// It grants what it grants to this tier.
    Known(String),
    /// The request has no `tier`, so the rule's own limit was taken. With another tier it grants something else:
    /// each tier with its limit as rules write it, in the order of the file.
    Unknown(Vec<(String, String)>),
}

/// What a rule grants to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExplainedGrant {
    /// Where it came from.
    pub source: GrantSource,
    /// It as rules write it, such as `100/minute`.
    pub text: String,
}

impl Explanation {
    /// Every rule that applies and the first 500 that do not, in their order.
    pub fn rules(&self) -> &[ExplainedRule] {
        &self.rules
    }

    /// How many rules that do not apply are left out.
    pub fn omitted(&self) -> usize {
        self.omitted
    }

    /// What a check would have answered. It holds no permit.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// What the limits of a rule, or of a candidate, would have answered.
    pub fn limits_of(&self, rule: &Rule) -> impl Iterator<Item = LimitOutcome<'_>> {
        let in_force = self.decision.in_force();
        let mut rules = self.decision.rules().iter();
        let is_meant = |decided: &&RuleDecision| {
            let one = in_force.at(decided.rule);
            one.id() == rule.id() && one.is_candidate() == rule.is_candidate()
        };
        let limits = rules
            .find(is_meant)
            .map(|decided| self.decision.limits_of(decided));
        limits.into_iter().flatten()
    }
}

impl Gate {
    /// Explains what a check of this request would answer now, by all rules in force. Nothing is charged,
    /// counted or observed. Values of attributes appear as `show` shows them.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use tidegate::rules::RuleSet;
    /// use tidegate::{Attributes, Gate, MemoryStore};
    ///
    /// let rules = "rules: [{id: writes, match: {method: POST}, per: [], limit: 1/minute}]";
    /// let gate = Gate::new(MemoryStore::new(), RuleSet::from_yaml(rules)?);
    /// let mut attributes = Attributes::new();
    /// attributes.insert("method", "GET")?;
    /// let explanation = gate.explain(&attributes, &|_, value| value.to_owned()).await;
    /// let failed = explanation.rules()[0].failed.as_ref().expect("it does not apply");
    /// assert_eq!((failed.condition.as_str(), failed.expected.as_str()), ("method", "POST"));
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub async fn explain(
        &self,
        attributes: &Attributes<'_>,
        show: &(dyn Fn(&str, &str) -> String + Sync),
    ) -> Explanation {
        let rules = self.rules();
        let (explained, omitted, mut pipeline) = self.explain_rules(&rules, attributes, show);
        self.run(std::slice::from_mut(&mut pipeline)).await;
        Explanation {
            rules: explained,
            omitted,
            decision: pipeline.into_preview(),
        }
    }

    fn explain_rules(
        &self,
        rules: &RulesInForce,
        attributes: &Attributes<'_>,
        show: &ShowValue<'_>,
    ) -> (Vec<ExplainedRule>, usize, Pipeline) {
        let now = self.time_of(attributes);
        let asking = RuleMatcher {
            in_force: &rules.0,
            facts: &Facts::of(attributes, attributes.costs(), self.invalid_credentials),
            attributes,
            costs: attributes.costs(),
            now,
            is_counted: false,
        };
        let asked = Explaining {
            attributes,
            now,
            show,
        };
        // Descriptors are found, not matched one by one.
        let found = rules
            .is_by_descriptors()
            .then(|| rules.candidates(attributes).first().copied());
        let mut matched = RuleDecisions::new();
        let mut explained = Vec::new();
        let mut failed_rules = 0;
        for (index, rule) in rules.iter().enumerate() {
            let is_other = |found: Option<u32>| found.map(|found| found as usize) != Some(index);
            let rule = Arc::clone(&rule);
            let mut fails = |rule: Arc<Rule>, why: &dyn Fn(&Rule) -> FailedCondition| {
                failed_rules += 1;
                (failed_rules <= MOST_FAILED).then(|| {
                    let failed = why(&rule);
                    ExplainedRule::failed(rule, failed)
                })
            };
            explained.extend(
                if let Some(found) = found.filter(|found| is_other(*found)) {
                    let winner = found.map(|found| rules.at(found as usize).id());
                    fails(rule, &|rule| rule.failed_descriptor(winner, &asked))
                } else {
                    let tried = asking.match_tried(index);
                    let candidate = tried.candidate.as_ref();
                    let candidate = candidate.map(|one| ExplainedCandidate::of(one, &rules.0));
                    let rollout = rule.rollout().zip(tried.is_in);
                    let explained = match &tried.own {
                        Err(NoPart::Unmet(unmet)) => {
                            fails(rule, &|rule| rule.failed(*unmet, &asked))
                        }
                        Err(NoPart::Unlimited(source)) => {
                            Some(ExplainedRule::unlimited(rule, *source, &asked))
                        }
                        Ok(charged) => {
                            Some(ExplainedRule::charged(rule, charged, &rules.0, &asked))
                        }
                    };
                    matched.extend(tried.decided());
                    explained.map(|explained| ExplainedRule {
                        candidate,
                        rollout,
                        ..explained
                    })
                },
            );
        }
        let omitted = failed_rules.saturating_sub(MOST_FAILED);
        let times = (attributes.time(), now);
        let mut pipeline = Pipeline::new(Arc::clone(&rules.0), times);
        pipeline.rules = matched;
        pipeline.order();
        pipeline.is_preview = true;
        (explained, omitted, pipeline)
    }
}

impl ExplainedGrant {
    fn of(decided: &RuleDecision, in_force: &InForce) -> Self {
        let text = match &decided.current_limit {
            Some(limit) => limits_text(std::slice::from_ref(limit)),
            None => in_force.grant(decided.rule, decided.grant).text(),
        };
        Self {
            source: decided.source,
            text,
        }
    }
}

impl ExplainedRule {
    /// Whether the rule applies.
    pub fn applies(&self) -> bool {
        self.failed.is_none()
    }

    fn failed(rule: Arc<Rule>, failed: FailedCondition) -> Self {
        Self {
            rule,
            failed: Some(failed),
            grant: None,
            key: None,
            tier: None,
            candidate: None,
            rollout: None,
        }
    }

    fn unlimited(rule: Arc<Rule>, source: GrantSource, asked: &Explaining<'_, '_>) -> Self {
        Self {
            failed: None,
            grant: Some(ExplainedGrant {
                source,
                text: "unlimited".to_owned(),
            }),
            key: Some(rule.shown_key(asked)),
            tier: ExplainedTier::of(&rule, source, asked),
            candidate: None,
            rollout: None,
            rule,
        }
    }

    fn charged(
        rule: Arc<Rule>,
        matched: &RuleDecision,
        in_force: &InForce,
        asked: &Explaining<'_, '_>,
    ) -> Self {
        let is_known = matched.lacking.is_none();
        Self {
            failed: None,
            grant: Some(ExplainedGrant::of(matched, in_force)),
            key: is_known.then(|| rule.shown_key(asked)),
            tier: ExplainedTier::of(&rule, matched.source, asked),
            candidate: None,
            rollout: None,
            rule,
        }
    }
}

impl ExplainedCandidate {
    fn of(decided: &RuleDecision, in_force: &InForce) -> Self {
        Self {
            rule: Arc::clone(in_force.shared(decided.rule)),
            grant: ExplainedGrant::of(decided, in_force),
            decides: !decided.is_shadow,
        }
    }
}

impl ExplainedTier {
    fn of(rule: &Rule, source: GrantSource, asked: &Explaining<'_, '_>) -> Option<Self> {
        match (source, asked.shown("tier")) {
            (GrantSource::Tier, Some(tier)) => Some(Self::Known(tier)),
            (GrantSource::Limit, None) => {
                let tiers = rule.tiers().map(|(name, grant)| (name, grant.text()));
                let tiers: Vec<(String, String)> = tiers.collect();
                (!tiers.is_empty()).then_some(Self::Unknown(tiers))
            }
            _ => None,
        }
    }
}
