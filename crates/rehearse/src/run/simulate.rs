//! Decides all requests of logs, and counts.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate::gate::{Asked, Decisions, MatchedRequest, Observed};
use tidegate::rules::RuleSet;
use tidegate::{Attributes, InvalidCredentials, LimitError};

use super::against::AgainstTally;
use super::checked::{check_files, check_readable};
use super::gates::VirtualGate;
use super::prepare::{PreparedRules, describer, opened};
use super::record::DecisionWriter;
use super::scale::{ScaleFactor, ScaleSettings, ScaleTally};
use super::scaled::{RequestClients, ScaledAsk, ScaledRequest, ScaledRun, is_denied};
use super::shown::ClientNames;
use super::tally::{MOST_PAIRS, Tallies};
use super::timeline::Timeline;
use crate::input::{
    InputProgress, InputSettings, LogInput, MergedRequests, NextRequest, OpenLogError, ReadFile,
};

/// What is simulated.
pub struct SimulationSettings {
    /// How logs are read.
    pub input: InputSettings,
    /// The rules.
    pub rules: RuleSet,
    /// Other rules to compare them with, and where they are from.
    pub against: Option<(String, RuleSet)>,
    /// The other limits to try.
    pub scale: ScaleSettings,
    /// How values are shown.
    pub names: ClientNames,
    /// What is done with invalid credentials.
    pub invalid_credentials: InvalidCredentials,
    /// Where each decision is written.
    pub record: Option<Box<dyn io::Write>>,
}

/// Why nothing was simulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// A log cannot be read.
    #[error(transparent)]
    Open(#[from] OpenLogError),
    /// A thread could not be started, or decisions could not be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// No line of a log could be read.
    #[error(
        "`{file}`: none of its {lines} lines could be read as `{format}`; line {line}: {reason}"
    )]
    Unreadable {
        /// The file.
        file: String,
        /// The format.
        format: &'static str,
        /// How many lines it has.
        lines: u64,
        /// The first line with a problem.
        line: u64,
        /// The problem.
        reason: String,
    },
    /// A line is malformed or late, and reading was strict.
    #[error("`{file}`, line {line}: {reason} (`--strict`)")]
    Strict {
        /// The file.
        file: String,
        /// The line.
        line: u64,
        /// The problem.
        reason: String,
    },
    /// Reading was stopped before the end.
    #[error("interrupted")]
    Interrupted,
    /// Limits that cannot be counted.
    #[error("a limit cannot be multiplied")]
    Limit(#[from] LimitError),
    /// Rules that cannot be used.
    #[error("{0}")]
    Rules(String),
    /// A rule that is not there.
    #[error("`--scale-rule {id}`: there is no such rule; expected one of {known}")]
    NoSuchRule {
        /// The given id.
        id: String,
        /// The ids that there are.
        known: String,
    },
}

/// The decisions about all requests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SimulatedTotal {
    pub(crate) requests: u64,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) delayed: u64,
    pub(crate) unmatched: u64,
}

/// What was read.
#[derive(Default)]
pub(crate) struct InputSummary {
    pub(crate) files: Vec<ReadFile>,
    /// The times of the first and the last request, in microseconds.
    pub(crate) span: Option<(u64, u64)>,
    /// All times are multiples of this many microseconds: a second, a millisecond or one.
    pub(crate) resolution: u64,
    /// A file that does not say how long requests took.
    pub(crate) without_durations: Option<String>,
}

/// The result of a simulation.
pub struct Simulated {
    pub(crate) rules: RuleSet,
    /// The rules that were decided, by their indexes among all.
    pub(crate) indexes: Vec<usize>,
    pub(crate) names: ClientNames,
    pub(crate) input: InputSummary,
    pub(crate) total: SimulatedTotal,
    pub(crate) tallies: Tallies,
    pub(crate) timeline: Timeline,
    /// In the order of the factors.
    pub(crate) scale: Vec<(ScaleFactor, ScaleTally)>,
    pub(crate) against: Option<(String, RuleSet, AgainstTally, Vec<usize>)>,
    pub(crate) warnings: Vec<String>,
    pub(crate) is_complete: bool,
    /// How long it took; set by the caller, which has a clock.
    pub took: Duration,
}

impl Simulated {
    /// How many requests were denied, and of how many.
    pub fn denied(&self) -> (u64, u64) {
        (self.total.denied, self.total.requests)
    }

    /// How many requests were denied that the other rules allow, and of how many.
    pub fn newly_denied(&self) -> Option<(u64, u64)> {
        let (.., against, _) = self.against.as_ref()?;
        Some((against.newly_denied.requests, self.total.requests))
    }

    /// Whether all of the input was read.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// What the user should know.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// A run that has begun.
struct SimulationRun {
    main: VirtualGate,
    /// The gates with multiplied limits.
    scaled: ScaledRun,
    /// Whether the rules that apply depend on their limits: candidates are asked where they grant something else.
    has_candidates: bool,
    /// The index of the factor 1.
    one: Option<usize>,
    against: Option<AgainstTally>,
    total: SimulatedTotal,
    tallies: Tallies,
    timeline: Timeline,
    scale: Vec<(ScaleFactor, ScaleTally)>,
    span: Option<(u64, u64)>,
    resolution: u64,
    record: Option<DecisionWriter>,
}

/// Decides all requests of the logs by the rules.
pub fn simulate(
    inputs: &[LogInput],
    settings: SimulationSettings,
    progress: &Arc<InputProgress>,
) -> Result<Simulated, SimulateError> {
    simulate_within(inputs, settings, progress, MOST_PAIRS)
}

/// The same, with exact counts for so many pairs of rule and client.
fn simulate_within(
    inputs: &[LogInput],
    settings: SimulationSettings,
    progress: &Arc<InputProgress>,
    most_pairs: usize,
) -> Result<Simulated, SimulateError> {
    let settings = SimulationSettings {
        names: settings.names.for_input(&settings.input),
        ..settings
    };
    let mut sets = vec![&settings.rules];
    sets.extend(settings.against.as_ref().map(|(_, rules)| rules));
    let describer = describer(&settings.input, &sets, &settings.names, false);
    let (logs, traits) = opened(inputs, &settings.input, &describer, progress)?;
    let prepared = PreparedRules::new(&settings.rules, &traits)?;
    let before = settings.against.as_ref();
    let before = before
        .map(|(_, rules)| PreparedRules::new(rules, &traits))
        .transpose()?;
    let mut run = SimulationRun::new(&settings, &prepared, before.as_ref())?;
    run.tallies.most_pairs = most_pairs;
    run.record = settings
        .record
        .map(|file| DecisionWriter::new(file, &settings.rules, &settings.names))
        .transpose()?;
    let input = Arc::new(settings.input);
    let mut requests = MergedRequests::start(logs, &input, &describer, progress)?;
    while let Some(next) = requests.next() {
        run.decide(&next)?;
    }
    if let Some(record) = &mut run.record {
        record.finish()?;
    }
    run.collect_scaled()?;
    let files = requests.into_files();
    check_files(&files, input.strict)?;
    check_readable(&files)?;
    let is_complete = !progress.stop.load(Ordering::Relaxed);
    let indexes_before = before.map(|before| before.indexes).unwrap_or_default();
    let against = settings.against.zip(run.against);
    let mut simulated = Simulated {
        rules: settings.rules,
        indexes: prepared.indexes,
        names: settings.names,
        input: InputSummary {
            files,
            span: run.span,
            resolution: run.resolution,
            without_durations: traits.without_durations,
        },
        total: run.total,
        tallies: run.tallies,
        timeline: run.timeline,
        scale: run.scale,
        against: against.map(|((source, rules), tally)| (source, rules, tally, indexes_before)),
        warnings: Vec::new(),
        is_complete,
        took: Duration::ZERO,
    };
    let evicted = run.main.evicted();
    simulated.warnings = super::warnings::warnings(&simulated, &input, evicted);
    Ok(simulated)
}

impl SimulationRun {
    fn new(
        settings: &SimulationSettings,
        prepared: &PreparedRules,
        before: Option<&PreparedRules>,
    ) -> Result<Self, SimulateError> {
        let rules = &prepared.rules;
        let digest = Arc::new(settings.names.digest.clone());
        let gate = |rules: RuleSet| {
            VirtualGate::new(rules, settings.invalid_credentials).with_digest(&digest)
        };
        if let Some(id) = settings
            .scale
            .rules
            .iter()
            .find(|id| settings.rules.get(id).is_none())
        {
            let known: Vec<String> = settings
                .rules
                .iter()
                .map(|rule| format!("`{}`", rule.id()))
                .collect();
            let (id, known) = (id.clone(), known.join(", "));
            return Err(SimulateError::NoSuchRule { id, known });
        }
        let factors = settings.scale.sorted();
        let is_one = |factor: &ScaleFactor| *factor == ScaleFactor::ONE;
        let mut scaled = Vec::new();
        for (index, factor) in factors
            .iter()
            .enumerate()
            .filter(|(_, factor)| !is_one(factor))
        {
            scaled.push((index, gate(settings.scale.scaled(rules, *factor)?)));
        }
        Ok(Self {
            main: gate(rules.clone()),
            scaled: ScaledRun::start(scaled, rules.len())?,
            has_candidates: rules.iter().any(|rule| rule.candidate().is_some()),
            one: factors.iter().position(is_one),
            against: before.map(|before| AgainstTally::new(gate(before.rules.clone()))),
            total: SimulatedTotal::default(),
            tallies: Tallies::new(rules.len(), factors.len()),
            timeline: Timeline::new(rules.len() + 1),
            scale: factors
                .into_iter()
                .map(|factor| (factor, ScaleTally::new(rules.len())))
                .collect(),
            span: None,
            resolution: 1_000_000,
            record: None,
        })
    }

    fn decide(&mut self, next: &NextRequest) -> Result<(), SimulateError> {
        let kept = next.kept();
        let ends = next.time.saturating_add(kept.duration.unwrap_or(0));
        let (first, last) = self.span.unwrap_or((next.time, next.time));
        self.span = Some((first.min(next.time), last.max(next.time)));
        while !next.written.is_multiple_of(self.resolution) {
            self.resolution /= 1_000;
        }
        let attributes = next.batch.attributes(kept, next.time);
        let (clients, matched) = if let Some(attributes) = attributes {
            self.decide_one(&attributes, next.time, ends)?
        } else {
            let parts = next.batch.parts(kept, next.time);
            let clients = self.decide_parts(Asked::from(&parts[..]), next.time, ends)?;
            (clients, None)
        };
        if !self.scaled.is_empty() {
            let unmatched = || ScaledAsk::Unmatched(Arc::clone(&next.batch), next.index);
            let matched = matched.filter(|_| !self.has_candidates);
            self.scaled.push(ScaledRequest {
                time: next.time,
                ends,
                clients,
                asked: matched.map_or_else(unmatched, ScaledAsk::Matched),
            })?;
        }
        if self.tallies.is_full() {
            self.collect_scaled()?;
            self.tallies.make_room();
        }
        Ok(())
    }

    /// Takes what the gates with multiplied limits have counted.
    fn collect_scaled(&mut self) -> Result<(), SimulateError> {
        let collected = self.scaled.collect()?;
        for counts in collected {
            self.tallies.all_denied_by(&counts.denied_by);
            for (factor, tally) in counts.tallies {
                self.scale[factor].1 = tally;
            }
        }
        Ok(())
    }

    fn decide_one(
        &mut self,
        attributes: &Attributes<'_>,
        time: u64,
        ends: u64,
    ) -> Result<(RequestClients, Option<MatchedRequest>), SimulateError> {
        self.main.advance(time);
        let matched = self.main.matched(attributes);
        self.count_escaped(&matched, attributes);
        let Some(decisions) = self.main.decide(&matched, ends) else {
            return Ok((RequestClients::new(), Some(matched)));
        };
        let observed = Observed::new(&decisions, attributes);
        let clients = self.count(&observed, time)?;
        if let Some(against) = &mut self.against {
            against.gate.advance(time);
            let matched = against.gate.matched(attributes);
            if let Some(before) = against.gate.decide(&matched, ends) {
                against.compare(&Observed::new(&before, attributes), &observed);
            }
        }
        Ok((clients, Some(matched)))
    }

    fn decide_parts<'a, 'b: 'a>(
        &mut self,
        asked: Asked<'a, 'b>,
        time: u64,
        ends: u64,
    ) -> Result<RequestClients, SimulateError> {
        self.main.advance(time);
        let Some(decisions) = self.main.decide_parts(asked, ends) else {
            return Ok(RequestClients::new());
        };
        let observed = Observed::new(&decisions, asked);
        let clients = self.count(&observed, time)?;
        if let Some(against) = &mut self.against {
            against.gate.advance(time);
            if let Some(before) = against.gate.decide_parts(asked, ends) {
                against.compare(&Observed::new(&before, asked), &observed);
            }
        }
        Ok(clients)
    }

    /// Counts rules that a request escaped because it lacks what they count by.
    fn count_escaped(&mut self, matched: &MatchedRequest, attributes: &Attributes<'_>) {
        for index in matched.escaped() {
            let index = *index as usize;
            let tally = &mut self.tallies.rules[index];
            tally.escaped += 1;
            for name in self.main.rule(index).lacking(attributes) {
                *tally.missing.entry(name.to_owned()).or_default() += 1;
            }
        }
    }

    /// Counts a decision. Returns the rules that took part in it, and their clients.
    fn count(
        &mut self,
        observed: &Observed<'_, '_>,
        time: u64,
    ) -> Result<RequestClients, SimulateError> {
        let is_allowed = observed.decisions.is_allowed();
        let total = &mut self.total;
        total.requests += 1;
        if is_allowed {
            total.allowed += 1;
        } else {
            total.denied += 1;
        }
        total.delayed += u64::from(is_allowed && has_delay(observed.decisions));
        let at = self.timeline.at(time);
        self.timeline.count(0, at, !is_allowed);
        let one = self.one;
        if let Some(one) = one {
            self.scale[one].1.count(is_allowed);
        }
        let mut clients = RequestClients::new();
        let mut is_matched = false;
        for part in observed.parts() {
            is_matched |= part.rules().next().is_some();
            for candidate in part.candidates() {
                self.tallies.count_candidate(&candidate);
            }
            for rule in part.own_limits() {
                let index = rule.index();
                let is_denied = is_denied(rule.verdict());
                self.timeline.count(index + 1, at, is_denied);
                let client = self.tallies.count(&rule, time);
                if let Some(client) = client {
                    clients.push((index, client));
                }
                // Missing attributes that the rule denies or shares a counter for.
                if !rule.rule().per().is_empty() && rule.key().is_none_or(|key| key.is_empty()) {
                    for name in rule.rule().lacking(part.attributes) {
                        *self.tallies.rules[index]
                            .missing
                            .entry(name.to_owned())
                            .or_default() += 1;
                    }
                }
                if let Some(one) = one {
                    self.scale[one].1.count_rule(index, is_denied);
                    if let Some(client) = client.filter(|_| is_denied) {
                        self.tallies.denied_by(index, client, one);
                    }
                }
            }
        }
        self.total.unmatched += u64::from(!is_matched);
        if let Some(record) = &mut self.record {
            record.write(observed, time)?;
        }
        Ok(clients)
    }
}

fn has_delay(decisions: &Decisions) -> bool {
    decisions.iter().any(|decision| !decision.delay().is_zero())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use serde_json::json;
    use tidegate::rules::{RuleSettings, ValueDigest};

    use super::*;
    use crate::to_json;

    /// Ten clients that take turns, and one with every second request.
    fn log() -> LogInput {
        let line = |number: u64| {
            let client = if number.is_multiple_of(2) {
                0
            } else {
                1 + number / 2 % 10
            };
            let time = 1_794_770_000 + number;
            format!("{{\"time\": {time}, \"ip\": \"10.0.0.{client}\"}}\n")
        };
        let text = (0..400).map(line).collect::<Vec<_>>().concat();
        LogInput {
            name: "log".to_owned(),
            size: None,
            open: Arc::new(move || Ok(Box::new(Cursor::new(text.clone().into_bytes())))),
        }
    }

    #[test]
    fn beyond_the_most_pairs_the_largest_clients_are_still_exact() {
        let within = |most_pairs: usize| {
            let rules = "rules: [{id: ips, per: [ip], limit: 15/hour, algorithm: fixed_window}]";
            let settings = SimulationSettings {
                input: InputSettings::default(),
                rules: RuleSet::from_yaml(rules).unwrap(),
                against: None,
                scale: ScaleSettings::default(),
                names: ClientNames {
                    digest: ValueDigest::new(b"secret"),
                    settings: RuleSettings::default(),
                    secret_sources: Vec::new(),
                    anonymous: false,
                    is_secret_given: true,
                },
                invalid_credentials: InvalidCredentials::default(),
                record: None,
            };
            let progress = Arc::default();
            to_json(
                &simulate_within(&[log()], settings, &progress, most_pairs).unwrap(),
                None,
            )
        };
        let (exact, estimated) = (within(MOST_PAIRS), within(4));
        assert_eq!(exact["rules"][0]["exact"], true);
        assert_eq!(exact["rules"][0]["clients"], 11);
        let rule = &estimated["rules"][0];
        assert_eq!(rule["exact"], false);
        assert!(estimated["warnings"].to_string().contains("estimates"));
        // What was decided does not depend on it, nor what the largest client had.
        assert_eq!(estimated["total"], exact["total"]);
        for name in ["requests", "allowed", "denied", "cost", "reasons"] {
            assert_eq!(rule[name], exact["rules"][0][name], "{name}");
        }
        for (row, exact) in estimated["scale"]
            .as_array()
            .unwrap()
            .iter()
            .zip(exact["scale"].as_array().unwrap())
        {
            assert_eq!(row["total"], exact["total"]);
        }
        assert_eq!(rule["top"][0], exact["rules"][0]["top"][0]);
        assert_eq!(rule["top"][0]["key"], json!({"ip": "10.0.0.0"}));
        assert!(rule["top"].as_array().unwrap().len() <= 5);
    }
}
