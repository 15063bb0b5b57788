//! Limits that keep a stated goal on a log.
//!
//! `collect.rs` reads the log and keeps the times of each client's requests, `fit.rs` searches numbers on them with the
//! real algorithms, `verify.rs` reads the log again and counts what the gate denies with the limits that are printed,
//! `write.rs` prints them.

mod collect;
mod fit;
mod goal;
mod verify;
mod write;

pub use goal::{SuggestGoal, SuggestShare};
pub use write::{suggestions_to_json, suggestions_to_yaml};

use std::sync::Arc;

use serde_json::Value;
use tidegate::rules::{Rule, RuleSet};
use tidegate::{InvalidCredentials, Limit};

use crate::input::{InputProgress, InputSettings, LogInput};
use crate::run::{ClientNames, SimulateError};
use collect::CollectedLog;

/// What limits are suggested for.
pub struct SuggestSettings {
    /// How logs are read.
    pub input: InputSettings,
    /// The rules whose limits are fitted.
    pub rules: RuleSet,
    /// Whether they are only there to be fitted, and have no limit of their own.
    pub are_new: bool,
    /// What the limits must keep.
    pub goal: SuggestGoal,
    /// By how much they are raised afterwards.
    pub headroom: SuggestShare,
    /// How values are shown.
    pub names: ClientNames,
    /// What is done with invalid credentials.
    pub invalid_credentials: InvalidCredentials,
    /// Whether the limits are printed as candidates.
    pub as_candidate: bool,
}

/// Limits for the requests of one rule that are granted the same.
#[derive(Debug, Clone)]
pub(crate) struct SuggestedGrant {
    pub(crate) rule: usize,
    pub(crate) grant: usize,
    pub(crate) tier: Option<String>,
    pub(crate) was: Vec<Limit>,
    pub(crate) limits: Vec<Limit>,
    /// Whether they had to be raised because costs are not equal.
    pub(crate) is_raised: bool,
    pub(crate) clients: u64,
    pub(crate) clients_denied: u64,
    pub(crate) requests: u64,
    pub(crate) requests_denied: u64,
    /// The client with the most requests.
    pub(crate) busiest: Option<(String, u64)>,
}

/// Suggested limits, with their evidence.
pub struct Suggested {
    pub(crate) rules: Vec<Arc<Rule>>,
    pub(crate) are_new: bool,
    pub(crate) as_candidate: bool,
    pub(crate) goal: SuggestGoal,
    pub(crate) names: ClientNames,
    pub(crate) grants: Vec<SuggestedGrant>,
    pub(crate) input: Value,
    pub(crate) warnings: Vec<String>,
}

impl Suggested {
    /// Whether any rule had a request.
    pub fn has_requests(&self) -> bool {
        !self.grants.is_empty()
    }

    /// What the user should know.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Suggests limits for the rules. The logs are read twice.
pub fn suggest(
    inputs: &[LogInput],
    settings: SuggestSettings,
    progress: &Arc<InputProgress>,
) -> Result<Suggested, SimulateError> {
    let settings = SuggestSettings {
        names: settings.names.for_input(&settings.input),
        ..settings
    };
    let collected = CollectedLog::read(inputs, &settings, progress)?;
    let mut warnings = collected.warnings();
    let mut grants = Vec::new();
    for (group, requests) in collected.groups() {
        let rule = &collected.rules[group.0];
        let was = rule.grants()[group.1].limits();
        if rule.adaptive().is_some() || was.is_empty() || was.iter().any(Limit::is_concurrency) {
            continue;
        }
        let fitted = fit::fit(was, requests, &settings.goal, settings.headroom)?;
        let tier = rule.tier_indexes().find(|(_, index)| *index == group.1);
        grants.push(SuggestedGrant {
            rule: group.0,
            grant: group.1,
            tier: tier
                .filter(|_| group.1 > 0)
                .map(|(name, _)| name.to_owned()),
            was: was.to_vec(),
            limits: fitted.limits,
            is_raised: fitted.is_raised,
            clients: requests.clients.len() as u64,
            clients_denied: 0,
            requests: requests.count,
            requests_denied: 0,
            busiest: requests.busiest(),
        });
    }
    let input = collected.input_json();
    if !grants.is_empty() {
        verify::verify(inputs, &settings, &collected, &mut grants)?;
        let is_over = |grant: &&SuggestedGrant| {
            !settings.goal.is_kept_by(
                (grant.clients, grant.clients_denied),
                (grant.requests, grant.requests_denied),
            )
        };
        for grant in grants.iter().filter(is_over) {
            let id = collected.rules[grant.rule].id();
            warnings.push(format!("rule `{id}`: the suggested limits do not keep the goal on the second reading of the log"));
        }
    }
    Ok(Suggested {
        rules: collected.rules,
        are_new: settings.are_new,
        as_candidate: settings.as_candidate,
        goal: settings.goal,
        names: settings.names,
        grants,
        input,
        warnings,
    })
}
