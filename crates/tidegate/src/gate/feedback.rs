//! How requests ended, for the limits that follow it: as the code says that let them through, or as
//! callers report it afterwards.

use std::collections::HashMap;

use super::in_force::InForce;
use super::rule_decision::RuleDecision;
use super::{Decision, Gate};
use crate::adaptive::Ended;

/// How a request ended, as its caller reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feedback<'a> {
    /// The id of the rule that let it through.
    pub rule: &'a str,
    /// How it ended.
    pub ended: Ended,
}

/// Why a report was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FeedbackError {
    /// There is no such rule.
    #[error("there is no rule `{rule}`")]
    NoSuchRule {
        /// The id that was given.
        rule: String,
        /// Which report names it.
        index: usize,
    },
    /// The limit of the rule does not move.
    #[error(
        "the rule `{rule}` does not follow the load; report for rules with `adaptive`, or add it to this one"
    )]
    NotAdaptive {
        /// The id that was given.
        rule: String,
        /// Which report names it.
        index: usize,
    },
}

impl FeedbackError {
    /// Which of the reports is wrong.
    pub fn index(&self) -> usize {
        match self {
            Self::NoSuchRule { index, .. } | Self::NotAdaptive { index, .. } => *index,
        }
    }
}

impl Decision {
    /// Reports to the rules whose limits follow the upstream how the request ended. To be called once, for
    /// a request that was let through and whose end is known: one whose client went away shows nothing.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use tidegate::rules::RuleSet;
    /// use tidegate::{Attributes, Ended, Gate, MemoryStore, Micros};
    ///
    /// let rules = RuleSet::from_yaml("
    /// rules:
    ///   - {id: upstream, per: [], adaptive: {min: 20/s, max: 500/s burst 50, target: 200ms}}
    ///   - {id: at-once, per: [], algorithm: concurrency, adaptive: {min: 10, max: 500, target: 200ms}}
    /// ")?;
    /// let gate = Gate::new(MemoryStore::new(), rules);
    ///
    /// let decision = gate.decide(&Attributes::new()).await;
    /// // … the upstream is asked, and answers after 35 milliseconds …
    /// decision.observe(Ended::Answered(Micros::from_millis(35)));
    /// if let Some(permit) = decision.permit() {
    ///     gate.release(permit).await?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub fn observe(&self, ended: Ended) {
        if self.is_denied() {
            return;
        }
        for rule in self.rules() {
            if let Some(adaptive) = self.in_force().state(rule.rule).adaptive()
                && let (Some(limit), Some(answer)) = (&rule.current_limit, rule.answers.first())
            {
                adaptive.observe(ended, limit, &answer.outcome);
            }
        }
    }

    /// Whether the limit of any rule follows how this request ends.
    pub fn is_observed(&self) -> bool {
        let mut rules = self.rules().iter();
        rules.any(|rule| rule.current_limit.is_some())
    }
}

impl Gate {
    /// Takes in how requests ended that were decided here, for the rules that follow it; all of them, or
    /// none if one names a rule that does not.
    pub fn feedback(&self, reports: &[Feedback<'_>]) -> Result<(), FeedbackError> {
        let rules = self.rules();
        let mut by_rule: HashMap<&str, Vec<Ended>> = HashMap::new();
        for (index, report) in reports.iter().enumerate() {
            let rule = report.rule.to_owned();
            match rules.get(report.rule).map(|rule| rule.adaptive()) {
                None => return Err(FeedbackError::NoSuchRule { rule, index }),
                Some(None) => return Err(FeedbackError::NotAdaptive { rule, index }),
                Some(Some(_)) => by_rule.entry(report.rule).or_default().push(report.ended),
            }
        }
        // Together, because what is reported at once says nothing about when each of them ended.
        for (rule, ended) in by_rule {
            if let Some(adaptive) = rules.get(rule).and_then(|rule| rule.adaptive()) {
                adaptive.report(&ended);
            }
        }
        Ok(())
    }
}

/// Reports to adaptive rules how far their limits are used.
#[inline]
pub(super) fn note_use(in_force: &InForce, rules: &[RuleDecision]) {
    for rule in rules {
        if let (Some(limit), Some(answer)) = (&rule.current_limit, rule.answers.first())
            && let Some(adaptive) = in_force.state(rule.rule).adaptive()
            && (!answer.is_degraded || answer.share.is_some())
        {
            adaptive.decided(limit, &answer.outcome);
        }
    }
}
