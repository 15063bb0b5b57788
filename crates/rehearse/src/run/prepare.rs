//! What a run needs before its first request: opened logs, and the rules that can be decided on them.

use std::sync::Arc;

use tidegate::rules::{Rule, RuleSet};

use super::limits::{left_out, lengthened};
use super::named::NamedValues;
use super::shown::ClientNames;
use super::simulate::SimulateError;
use crate::describe::{Describer, WantedAttributes};
use crate::input::{InputProgress, InputSettings, LogInput, LogTraits, OpenLogs};

/// Attributes that rules may read without naming them.
const ALWAYS_READ: [&str; 4] = ["ip", "method", "path", "host"];

/// Rules that can be decided, and which of all rules they are.
pub(crate) struct PreparedRules {
    pub(crate) rules: RuleSet,
    /// The index of each among all rules.
    pub(crate) indexes: Vec<usize>,
}

impl PreparedRules {
    /// The rules that can be decided on requests with or without durations.
    pub(crate) fn new(rules: &RuleSet, logs: &LogTraits) -> Result<Self, SimulateError> {
        let have_durations = logs.have_durations();
        let numbered = rules.iter().enumerate();
        let kept = numbered.filter(|(_, rule)| !left_out(rule, have_durations));
        let indexes: Vec<usize> = kept.map(|(index, _)| index).collect();
        let kept = if indexes.len() == rules.len() {
            rules.clone()
        } else {
            let all: Vec<&Arc<Rule>> = rules.iter().collect();
            let kept = indexes.iter().map(|index| Arc::clone(all[*index]));
            RuleSet::from_rules(kept)
                .map_err(|problems| SimulateError::Rules(problems.to_string()))?
        };
        let rules = by_logs(&lengthened(&kept, have_durations)?, logs)?;
        Ok(Self { rules, indexes })
    }
}

/// The same rules, as they know values in these logs.
pub(crate) fn by_logs(rules: &RuleSet, logs: &LogTraits) -> Result<RuleSet, SimulateError> {
    rules.map_rules(|rule| {
        let is_named = logs.have_hashes;
        Ok(if is_named {
            Arc::new(rule.for_recordings())
        } else {
            Arc::clone(rule)
        })
    })
}

/// How lines are described for these rules; with all attributes if they are to be shown.
pub(crate) fn describer(
    input: &InputSettings,
    sets: &[&RuleSet],
    names: &ClientNames,
    shows_all: bool,
) -> Describer {
    let owned: Vec<RuleSet> = sets.iter().map(|rules| (*rules).clone()).collect();
    let map = input.map.clone();
    let reads_headers = shows_all
        || input.identity.is_some()
        || sets
            .iter()
            .any(|rules| !rules.header_attributes().is_empty() || rules.reads("header."))
        || !map.is_empty();
    let wants: WantedAttributes = Arc::new(move |name: &str| {
        shows_all
            || ALWAYS_READ.contains(&name)
            || owned.iter().any(|rules| rules.reads(name))
            || map.reads(name)
    });
    Describer {
        identity: input.identity.clone(),
        map: input.map.clone(),
        constants: input.constants.clone().into(),
        wants,
        reads_headers,
        named: Arc::new(NamedValues::of(sets, &names.settings)),
    }
}

/// Opens the logs of a run. Also says what they have.
pub(crate) fn opened(
    inputs: &[LogInput],
    input: &InputSettings,
    describer: &Describer,
    progress: &InputProgress,
) -> Result<(OpenLogs, LogTraits), SimulateError> {
    let logs = OpenLogs::open(inputs, input, describer, progress)?;
    let traits = logs.traits();
    Ok((logs, traits))
}
