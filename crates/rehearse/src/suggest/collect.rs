//! The first reading: the times of each client's requests, by rule and by what is granted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;
use serde_json::Value;
use smol_str::SmolStr;
use tidegate::Attributes;
use tidegate::rules::{GrantSource, Rule};

use super::SuggestSettings;
use crate::input::{InputProgress, LogInput, MergedRequests, ReadFile};
use crate::report::input_of;
use crate::run::{
    SimulateError, VirtualGate, by_logs, check_files, check_readable, describer, opened,
};

/// Times take the lower bits of a word, costs the upper ones.
const TIME_BITS: u32 = 53;
/// A cost that does not fit is looked up.
const LARGE_COST: u64 = (1 << (64 - TIME_BITS)) - 1;

/// The requests of one client in their order: a word for each.
#[derive(Debug, Default)]
pub(super) struct ClientRequests {
    words: Vec<u64>,
    /// The costs that do not fit into a word, by the index of the request.
    large: Vec<(usize, u64)>,
}

impl ClientRequests {
    fn push(&mut self, time: u64, cost: u64) {
        if cost >= LARGE_COST {
            self.large.push((self.words.len(), cost));
        }
        let time = time & ((1 << TIME_BITS) - 1);
        self.words.push(time | cost.min(LARGE_COST) << TIME_BITS);
    }

    /// The time and the cost of each request.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut large = self.large.iter();
        self.words.iter().map(move |word| {
            let cost = match word >> TIME_BITS {
                LARGE_COST => large.next().map_or(LARGE_COST, |(_, cost)| *cost),
                cost => cost,
            };
            (word & ((1 << TIME_BITS) - 1), cost)
        })
    }

    pub(super) fn len(&self) -> usize {
        self.words.len()
    }
}

/// The requests that a rule grants the same.
#[derive(Debug, Default)]
pub(super) struct GrantedRequests {
    pub(super) clients: HashMap<SmolStr, ClientRequests, RandomState>,
    pub(super) count: u64,
}

impl GrantedRequests {
    /// The client with the most requests, of equals the first by its key.
    pub(super) fn busiest(&self) -> Option<(String, u64)> {
        let clients = self
            .clients
            .iter()
            .map(|(key, requests)| (requests.len(), std::cmp::Reverse(key)));
        let (count, std::cmp::Reverse(key)) = clients.max()?;
        Some((key.to_string(), count as u64))
    }
}

/// A rule and what it grants, by their indexes.
pub(super) type GrantedGroup = (usize, usize);

/// What the first reading found.
pub(super) struct CollectedLog {
    pub(super) rules: Vec<Arc<Rule>>,
    groups: BTreeMap<GrantedGroup, GrantedRequests>,
    files: Vec<ReadFile>,
    span: Option<(u64, u64)>,
    resolution: u64,
}

impl CollectedLog {
    pub(super) fn read(
        inputs: &[LogInput],
        settings: &SuggestSettings,
        progress: &Arc<InputProgress>,
    ) -> Result<Self, SimulateError> {
        let sets = [&settings.rules];
        let describer = describer(&settings.input, &sets, &settings.names, false);
        let (logs, traits) = opened(inputs, &settings.input, &describer, progress)?;
        let rules = by_logs(&settings.rules, traits)?;
        let gate = VirtualGate::new(rules, settings.invalid_credentials);
        let input = Arc::new(settings.input.clone());
        let mut requests = MergedRequests::start(logs, &input, &describer, progress)?;
        let mut collected = Self {
            rules: settings.rules.iter().cloned().collect(),
            groups: BTreeMap::new(),
            files: Vec::new(),
            span: None,
            resolution: 1_000_000,
        };
        while let Some(next) = requests.next() {
            let (first, last) = collected.span.unwrap_or((next.time, next.time));
            collected.span = Some((first.min(next.time), last.max(next.time)));
            while !next.written.is_multiple_of(collected.resolution) {
                collected.resolution /= 1_000;
            }
            match next.batch.attributes(next.kept(), next.time) {
                Some(attributes) => collected.add(&gate, &attributes, next.time),
                None => {
                    for part in next.batch.parts(next.kept(), next.time) {
                        collected.add(&gate, &part.attributes, next.time);
                    }
                }
            }
        }
        collected.files = requests.into_files();
        check_files(&collected.files, input.strict)?;
        check_readable(&collected.files)?;
        if progress.stop.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(SimulateError::Interrupted);
        }
        Ok(collected)
    }

    fn add(&mut self, gate: &VirtualGate, attributes: &Attributes<'_>, time: u64) {
        for charge in gate.matched(attributes).charges() {
            // Clients with limits of their own are left out.
            if matches!(
                charge.source,
                GrantSource::Override | GrantSource::Temporary
            ) {
                continue;
            }
            let group = self.groups.entry((charge.rule, charge.grant)).or_default();
            group.count += 1;
            if let Some(client) = group.clients.get_mut(charge.key) {
                client.push(time, charge.cost);
            } else {
                let mut client = ClientRequests::default();
                client.push(time, charge.cost);
                group.clients.insert(SmolStr::new(charge.key), client);
            }
        }
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = (GrantedGroup, &GrantedRequests)> {
        self.groups
            .iter()
            .map(|(group, requests)| (*group, requests))
    }

    pub(super) fn input_json(&self) -> Value {
        input_of(&self.files, self.span, self.resolution)
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.span.is_none() {
            warnings.push("the log has no requests".to_owned());
        }
        for (index, rule) in self.rules.iter().enumerate() {
            if !self.groups.keys().any(|(of_rule, _)| *of_rule == index) {
                warnings.push(format!(
                    "rule `{}`: it had no request to fit a limit to, and stays as it is",
                    rule.id()
                ));
            }
        }
        warnings
    }
}
