//! The second reading: what the gate denies with the limits that are printed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;
use smol_str::SmolStr;
use tidegate::gate::{Asked, Observed};
use tidegate::rules::Verdict;
use tidegate::{Limit, LimitError};

use super::collect::{CollectedLog, GrantedGroup};
use super::{SuggestSettings, SuggestedGrant};
use crate::input::{InputProgress, LogInput, MergedRequests};
use crate::run::{SimulateError, VirtualGate, by_logs, describer, opened};

/// Counts what each suggested grant denies. Every rule is in shadow, so that each is charged alone.
pub(super) fn verify(
    inputs: &[LogInput],
    settings: &SuggestSettings,
    collected: &CollectedLog,
    grants: &mut [SuggestedGrant],
) -> Result<(), SimulateError> {
    let mut index = 0;
    let rules = settings.rules.map_rules(|rule| {
        let limited = with_suggested(rule, index, grants);
        index += 1;
        limited.map(|rule| Arc::new(rule.in_shadow()))
    })?;
    let sets = [&settings.rules];
    let describer = describer(&settings.input, &sets, &settings.names, false);
    let progress = Arc::new(InputProgress::default());
    let (logs, traits) = opened(inputs, &settings.input, &describer, &progress)?;
    let mut gate = VirtualGate::new(by_logs(&rules, &traits)?, settings.invalid_credentials);
    let input = Arc::new(settings.input.clone());
    let mut requests = MergedRequests::start(logs, &input, &describer, &progress)?;
    let mut denied: HashMap<GrantedGroup, u64, RandomState> = HashMap::default();
    let mut clients: HashMap<GrantedGroup, HashSet<SmolStr, RandomState>, RandomState> =
        HashMap::default();
    let mut count = |observed: &Observed<'_, '_>| {
        for part in observed.parts() {
            for rule in part
                .rules()
                .filter(|rule| rule.verdict() == Verdict::ShadowDenied)
            {
                let group = (rule.index(), rule.grant_index());
                *denied.entry(group).or_default() += 1;
                if let Some(key) = rule.key() {
                    clients
                        .entry(group)
                        .or_default()
                        .insert(SmolStr::new(&*key));
                }
            }
        }
    };
    while let Some(next) = requests.next() {
        gate.advance(next.time);
        if let Some(attributes) = next.batch.attributes(next.kept(), next.time) {
            let matched = gate.matched(&attributes);
            if let Some(decisions) = gate.decide(&matched, next.time) {
                count(&Observed::new(&decisions, &attributes));
            }
            continue;
        }
        // Each part by itself, as it was when the limits were fitted.
        for part in next.batch.parts(next.kept(), next.time) {
            let asked = Asked::from(&part.attributes);
            if let Some(decisions) = gate.decide_parts(asked, next.time) {
                count(&Observed::new(&decisions, asked));
            }
        }
    }
    debug_assert_eq!(
        collected.rules.len(),
        settings.rules.len(),
        "the same rules"
    );
    for grant in grants {
        let group = (grant.rule, grant.grant);
        grant.requests_denied = denied.get(&group).copied().unwrap_or(0);
        grant.clients_denied = clients
            .get(&group)
            .map_or(0, |clients| clients.len() as u64);
    }
    Ok(())
}

/// A rule with its suggested limits.
fn with_suggested(
    rule: &tidegate::rules::Rule,
    index: usize,
    grants: &[SuggestedGrant],
) -> Result<tidegate::rules::Rule, LimitError> {
    // Limits are visited in the order of the grants.
    let mut order: Vec<Limit> = Vec::new();
    for (number, grant) in rule.grants().iter().enumerate() {
        let suggested = grants
            .iter()
            .find(|grant| (grant.rule, grant.grant) == (index, number));
        order.extend_from_slice(suggested.map_or(grant.limits(), |suggested| &suggested.limits));
    }
    let mut order = order.into_iter();
    rule.with_limits(|limit| Ok(order.next().unwrap_or_else(|| limit.clone())))
}
