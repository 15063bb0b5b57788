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

/// Of how many bytes more there is room when more are needed, as a part of what is there.
const GROWTH: usize = 8;

/// The requests of one client in their order: for each the time since the one before it, and its cost unless that is 1,
/// in as few bytes as they need.
#[derive(Debug, Default)]
pub(super) struct ClientRequests {
    bytes: Vec<u8>,
    count: usize,
    last: u64,
}

impl ClientRequests {
    fn push(&mut self, time: u64, cost: u64) {
        if self.bytes.capacity() - self.bytes.len() < MOST_BYTES {
            self.bytes
                .reserve_exact(MOST_BYTES + self.bytes.len() / GROWTH);
        }
        // A late one is earlier than the one before it: the lowest bits say so, and whether a cost follows.
        let flags = u64::from(cost != 1) | u64::from(time < self.last) << 1;
        push_number(&mut self.bytes, time.abs_diff(self.last) << 2 | flags);
        if cost != 1 {
            push_number(&mut self.bytes, cost);
        }
        self.last = time;
        self.count += 1;
    }

    /// The time and the cost of each request.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let (mut rest, mut time) = (&self.bytes[..], 0_u64);
        std::iter::from_fn(move || {
            let step = take_number(&mut rest)?;
            time = if step & 2 == 0 {
                time.saturating_add(step >> 2)
            } else {
                time.saturating_sub(step >> 2)
            };
            let cost = if step & 1 == 0 {
                1
            } else {
                take_number(&mut rest)?
            };
            Some((time, cost))
        })
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }
}

/// How many bytes a request takes at most: a time and a cost.
const MOST_BYTES: usize = 20;

/// Adds a number, seven bits a byte, the lowest first; the highest bit says that more follow.
fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    while let Some(rest) = Some(number >> 7).filter(|rest| *rest > 0) {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number = rest;
    }
    bytes.push(number.to_le_bytes()[0]);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some(number)
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
        let rules = by_logs(&settings.rules, &traits)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_kept_in_few_bytes() {
        let mut kept = ClientRequests::default();
        let second = 1_000_000;
        let start = 1_794_770_000 * second;
        let requests = [
            (start, 1),
            (start, 0),
            (start + second, 1),
            (start - 20 * second, 7),
            (0, u64::MAX),
            ((1 << 53) - 1, 1),
        ];
        for (time, cost) in requests {
            kept.push(time, cost);
        }
        assert_eq!(kept.iter().collect::<Vec<_>>(), requests);
        assert_eq!(kept.len(), requests.len());
        // A client with a request a minute for a day, as one with ten a second.
        for step in [60 * second, second / 10] {
            let mut kept = ClientRequests::default();
            let times = (0..100_000).map(|number| start + number * step);
            for time in times.clone() {
                kept.push(time, 1);
            }
            assert!(kept.bytes.capacity() <= 8 * kept.len(), "{step}");
            assert!(kept.iter().map(|(time, _)| time).eq(times));
        }
    }
}
