//! What of requests and clients is shown: secrets as digests, and `--show`.

use serde_json::{Map, Value, json};
use tidegate::Timestamp;
use tidegate::rules::{Rule, RuleSettings, ValueDigest, write_time};

use super::prepare::{describer, opened};
use super::simulate::{SimulateError, SimulationSettings};
use crate::input::{InputProgress, LogInput, MergedRequests, NextRequest};

/// How values of attributes are shown.
#[derive(Debug, Clone)]
pub struct ClientNames {
    /// Digests of secret values.
    pub digest: ValueDigest,
    /// Which attributes are secret.
    pub settings: RuleSettings,
    /// Whether all values are shown as digests.
    pub anonymous: bool,
    /// Whether the secret of the digests was given, and is not one of this run.
    pub is_secret_given: bool,
}

impl ClientNames {
    /// A value as it is shown.
    pub(crate) fn value(&self, name: &str, value: &str) -> String {
        if self.anonymous {
            self.digest.of(value)
        } else if self.settings.is_secret(name) {
            let recorded = ValueDigest::of_recorded(value);
            recorded.map_or_else(|| self.digest.shown(value), str::to_owned)
        } else {
            value.to_owned()
        }
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
    let (logs, _) = opened(inputs, &settings.input, &describer, &progress)?;
    let input = std::sync::Arc::new(settings.input.clone());
    let mut requests = MergedRequests::start(logs, &input, &describer, &progress)?;
    let gate = super::VirtualGate::new(settings.rules.clone(), settings.invalid_credentials);
    let mut shown = Vec::new();
    while shown.len() < count
        && let Some(next) = requests.next()
    {
        shown.push(shown_request(&next, &gate, &settings.names));
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
) -> ShownRequest {
    let mut attributes = Vec::new();
    let mut rules: Vec<String> = Vec::new();
    for part in next.batch.parts(next.kept(), next.time) {
        for (name, value) in part.attributes.iter() {
            attributes.push((name.to_owned(), names.value(name, value)));
        }
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
