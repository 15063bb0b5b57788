//! Writes decisions down in the form of a recording.

use std::io::{self, BufWriter, Write};

use serde_json::{Map, Value, json};
use tidegate::gate::{Observed, ObservedPart};
use tidegate::rules::RuleSet;

use super::named::NamedValues;
use super::shown::ClientNames;

/// Writes each decision as a line.
pub(crate) struct DecisionWriter {
    file: BufWriter<Box<dyn Write>>,
    names: ClientNames,
    rules: RuleSet,
    named: NamedValues,
}

impl DecisionWriter {
    pub(crate) fn new(
        file: Box<dyn Write>,
        rules: &RuleSet,
        names: &ClientNames,
    ) -> io::Result<Self> {
        let mut recorder = Self {
            file: BufWriter::new(file),
            names: names.clone(),
            rules: rules.clone(),
            named: NamedValues::of(&[rules], &names.settings),
        };
        let header = json!({
            "tidegate_record": 1,
            "version": env!("CARGO_PKG_VERSION"),
            "rules_version": null,
            "attributes": null,
            "secret": names.settings.secret_attributes,
            "sample": 1,
            "sample_by": null,
        });
        recorder.line(&header)?;
        Ok(recorder)
    }

    fn line(&mut self, value: &Value) -> io::Result<()> {
        let mut text = String::new();
        for c in value.to_string().chars() {
            if c.is_ascii() && c != '\u{7f}' {
                text.push(c);
                continue;
            }
            for unit in c.encode_utf16(&mut [0; 2]) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        }
        text.push('\n');
        self.file.write_all(text.as_bytes())
    }

    /// The attributes that the rules read.
    fn attributes(&self, part: &ObservedPart<'_, '_>) -> Value {
        let read = part.attributes.iter().filter(|(name, _)| {
            matches!(*name, "ip" | "path" | "method" | "host") || self.rules.reads(name)
        });
        let shown = read.map(|(name, value)| (name.to_owned(), json!(self.value(name, value))));
        Value::Object(shown.collect::<Map<String, Value>>())
    }

    fn value(&self, name: &str, value: &str) -> String {
        let is_secret = self.names.anonymous || self.names.settings.is_secret(name);
        if !is_secret || value.starts_with("hmac:") || value.starts_with("sha256:") {
            return value.to_owned();
        }
        match self.named.hash(value) {
            Some(hash) => hash.to_owned(),
            None => self.names.digest.recorded(value),
        }
    }

    /// Adds the attributes and the cost of a part.
    fn take_part(&self, taken: &mut Value, part: &ObservedPart<'_, '_>) {
        taken["attributes"] = self.attributes(part);
        if let Some(cost) = part.costs.plain() {
            taken["cost"] = json!(cost);
            return;
        }
        let units = part.costs.units().iter();
        let costs = units.map(|(unit, cost)| (unit.to_string(), json!(cost)));
        taken["costs"] = Value::Object(costs.collect());
    }

    pub(crate) fn write(&mut self, observed: &Observed<'_, '_>, time: u64) -> io::Result<()> {
        let parts: Vec<ObservedPart<'_, '_>> = observed.parts().collect();
        let denied = parts.iter().find(|part| !part.decision.is_allowed());
        let decisive = denied.or(parts.first());
        let limits: Vec<Value> = parts
            .iter()
            .flat_map(|part| part.decision.limits())
            .map(|limit| {
                let mut entry = json!({"rule": limit.rule.id(), "allowed": limit.outcome.allowed});
                if limit.is_candidate() {
                    entry["candidate"] = json!(true);
                }
                if limit.is_shadow {
                    entry["shadow"] = json!(true);
                }
                entry
            })
            .collect();
        let time = format!("{}.{:06}", time / 1_000_000, time % 1_000_000);
        let number: serde_json::Number = time.parse().map_err(io::Error::other)?;
        let mut line = json!({"t": number, "front_end": "simulate"});
        match &parts[..] {
            [part] => self.take_part(&mut line, part),
            parts => {
                let part = |part: &ObservedPart<'_, '_>| {
                    let mut taken = json!({});
                    self.take_part(&mut taken, part);
                    taken
                };
                line["parts"] = parts.iter().map(part).collect();
            }
        }
        line["allowed"] = json!(observed.decisions.is_allowed());
        line["rule"] = json!(decisive.and_then(|part| part.decision.rule()));
        line["reason"] = json!(
            decisive
                .and_then(|part| part.decision.reason())
                .map(tidegate::Reason::name)
        );
        line["limits"] = Value::Array(limits);
        self.line(&line)
    }

    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
