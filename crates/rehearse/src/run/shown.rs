//! What of requests and clients is shown: secrets as digests, and `--show`.

use serde_json::{Map, Value, json};
use tidegate::rules::{Rule, RuleSettings, ValueDigest, write_time};
use tidegate::{Attributes, Timestamp};

use tidegate_codec::record::without_queries;

use super::prepare::{by_logs, describer, opened};
use super::simulate::{SimulateError, SimulationSettings};
use crate::describe::{FieldMap, is_public_stand_in, secret_sources};
use crate::input::{InputProgress, InputSettings, LogInput, MergedRequests, NextRequest};

/// How values of attributes are shown.
#[derive(Debug, Clone)]
pub struct ClientNames {
    /// Digests of secret values.
    pub digest: ValueDigest,
    /// Which attributes are secret.
    pub settings: RuleSettings,
    /// Others that have the same values, as a run finds them by how its input is read.
    pub secret_sources: Vec<String>,
    /// Whether all values are shown as digests.
    pub anonymous: bool,
    /// Whether the secret of the digests was given, and is not one of this run.
    pub is_secret_given: bool,
}

impl ClientNames {
    /// The same for requests that are read like this.
    pub(crate) fn for_input(self, input: &InputSettings) -> Self {
        let secret_sources = secret_sources(&self.settings, input);
        Self {
            secret_sources,
            ..self
        }
    }

    /// Whether the values of an attribute are shown as digests.
    pub(crate) fn is_hidden(&self, name: &str) -> bool {
        let is_source = |source: &String| source.eq_ignore_ascii_case(name);
        self.anonymous || self.settings.is_secret(name) || self.secret_sources.iter().any(is_source)
    }

    /// A value as it is shown.
    pub(crate) fn value(&self, name: &str, value: &str) -> String {
        if self.is_hidden(name) {
            return self.hidden(value);
        }
        // A path has no query, and may have a question mark.
        if name == "path" {
            return value.to_owned();
        }
        without_queries(value).into_owned()
    }

    /// The digest of a value.
    fn hidden(&self, value: &str) -> String {
        match ValueDigest::of_recorded(value) {
            Some(recorded) => recorded.to_owned(),
            None if self.anonymous => self.digest.of(value),
            None => self.digest.shown(value),
        }
    }

    /// The attributes of a request as they are shown. A secret value is a digest wherever it occurs.
    fn attributes(&self, request: &Attributes<'_>, map: &FieldMap) -> Vec<(String, String)> {
        let hidden = request.iter().filter(|(name, _)| self.is_hidden(name));
        let hidden: Vec<&str> = hidden.map(|(_, value)| value).collect();
        let shown = request.iter().map(|(name, value)| {
            let is_copy = hidden.contains(&value) && !is_public_stand_in(name, map);
            let shown = if is_copy {
                self.hidden(value)
            } else {
                self.value(name, value)
            };
            (name.to_owned(), shown)
        });
        shown.collect()
    }

    /// The attributes and values of a key; none of a counter that all clients share.
    pub(crate) fn key(&self, rule: &Rule, key: &str) -> Value {
        let values = rule.values_of_key(key);
        if values.is_empty() && !key.is_empty() {
            // Of a descriptor: its entries in one text, any of which may be a secret.
            return json!({"key": self.digest.of(key)});
        }
        let shown = values
            .into_iter()
            .map(|(name, value)| (name.to_owned(), json!(self.value(name, value))));
        Value::Object(shown.collect())
    }
}

/// How one request was read.
#[derive(Debug)]
pub struct ShownRequest {
    /// It as JSON: time, attributes and rules.
    pub json: Value,
    /// Its time.
    pub time: String,
    /// Its attributes, as they are shown.
    pub attributes: Vec<(String, String)>,
    /// The ids of the rules that apply to it.
    pub rules: Vec<String>,
}

/// How the first requests were read. Nothing is charged.
pub fn show(
    inputs: &[LogInput],
    settings: &SimulationSettings,
    count: usize,
) -> Result<Vec<ShownRequest>, SimulateError> {
    let describer = describer(&settings.input, &[&settings.rules], &settings.names, true);
    let progress = std::sync::Arc::new(InputProgress::default());
    let (logs, traits) = opened(inputs, &settings.input, &describer, &progress)?;
    let input = std::sync::Arc::new(settings.input.clone());
    let mut requests = MergedRequests::start(logs, &input, &describer, &progress)?;
    let rules = by_logs(&settings.rules, &traits)?;
    let gate = super::VirtualGate::new(rules, settings.invalid_credentials);
    let names = settings.names.clone().for_input(&settings.input);
    let mut shown = Vec::new();
    while shown.len() < count
        && let Some(next) = requests.next()
    {
        shown.push(shown_request(&next, &gate, &names, &settings.input.map));
    }
    progress
        .stop
        .store(true, std::sync::atomic::Ordering::Relaxed);
    if shown.is_empty() {
        let files = requests.into_files();
        super::checked::check_readable(&files)?;
    }
    Ok(shown)
}

fn shown_request(
    next: &NextRequest,
    gate: &super::VirtualGate,
    names: &ClientNames,
    map: &FieldMap,
) -> ShownRequest {
    let mut attributes = Vec::new();
    let mut rules: Vec<String> = Vec::new();
    for part in next.batch.parts(next.kept(), next.time) {
        attributes.extend(names.attributes(&part.attributes, map));
        let matched = gate.matched(&part.attributes);
        rules.extend(
            matched
                .rules()
                .map(|index| gate.rule(index).id().to_owned()),
        );
    }
    let time = Timestamp::from_micros(next.time);
    let map: Map<String, Value> = attributes
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    ShownRequest {
        json: json!({"time": crate::report::seconds(next.time), "attributes": map, "rules": rules}),
        time: write_time(time),
        attributes,
        rules,
    }
}
