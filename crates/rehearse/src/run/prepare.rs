//! What a run needs before its first request: opened logs, and the rules that can be decided on them.

use std::sync::Arc;

use tidegate::rules::{Rule, RuleSet};

use super::limits::{left_out, lengthened};
use super::simulate::SimulateError;
use crate::describe::{Describer, WantedAttributes};
use crate::input::{InputProgress, InputSettings, LogInput, OpenLogs};

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
    pub(crate) fn new(rules: &RuleSet, have_durations: bool) -> Result<Self, SimulateError> {
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
        let rules = lengthened(&kept, have_durations)?;
        Ok(Self { rules, indexes })
    }
}

/// How lines are described for these rules; with all attributes if they are to be shown.
pub(crate) fn describer(input: &InputSettings, sets: &[&RuleSet], shows_all: bool) -> Describer {
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
    }
}

/// Opens the logs of a run. Also says whether they have durations.
pub(crate) fn opened(
    inputs: &[LogInput],
    input: &InputSettings,
    describer: &Describer,
    progress: &InputProgress,
) -> Result<(OpenLogs, bool), SimulateError> {
    let logs = OpenLogs::open(inputs, input, describer, &progress.bytes)?;
    let have_durations = logs.have_durations(input);
    Ok((logs, have_durations))
}
