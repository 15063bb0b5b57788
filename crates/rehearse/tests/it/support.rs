//! A simulation of texts, without files.

use std::io::{self, Cursor, Write};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tidegate::InvalidCredentials;
use tidegate::rules::{RuleSet, RuleSettings, ValueDigest};
use tidegate_rehearse::{
    ClientNames, InputProgress, InputSettings, LogInput, ScaleSettings, SimulateError, Simulated,
    SimulationSettings, show, simulate, to_json,
};

/// A log with this text.
pub(crate) fn log(name: &str, text: impl Into<Vec<u8>>) -> LogInput {
    let text: Arc<Vec<u8>> = Arc::new(text.into());
    LogInput {
        name: name.to_owned(),
        size: Some(text.len() as u64),
        open: Arc::new(move || Ok(Box::new(Cursor::new(text.to_vec())))),
    }
}

pub(crate) fn names() -> ClientNames {
    ClientNames {
        digest: ValueDigest::new(b"secret"),
        settings: RuleSettings::default(),
        anonymous: false,
        secret_sources: Vec::new(),
        is_secret_given: true,
    }
}

pub(crate) fn settings(rules: &str, input: InputSettings) -> SimulationSettings {
    SimulationSettings {
        input,
        rules: RuleSet::from_yaml(rules).unwrap(),
        against: None,
        scale: ScaleSettings::off(),
        names: names(),
        invalid_credentials: InvalidCredentials::default(),
        record: None,
    }
}

pub(crate) fn run(
    logs: &[LogInput],
    settings: SimulationSettings,
) -> Result<Simulated, SimulateError> {
    simulate(logs, settings, &Arc::new(InputProgress::default()))
}

/// The report of logs by rules.
pub(crate) fn report(logs: &[LogInput], rules: &str, input: InputSettings) -> Value {
    to_json(&run(logs, settings(rules, input)).unwrap(), None)
}

/// How the requests of logs are read: their times and attributes.
pub(crate) fn shown(logs: &[LogInput], input: InputSettings) -> Vec<Value> {
    let rules = settings("rules: [{id: all, per: [], limit: 1/s}]", input);
    let shown = show(logs, &rules, 1_000).unwrap();
    shown.into_iter().map(|request| request.json).collect()
}

/// A line of the combined format.
pub(crate) fn line(ip: &str, second: u64, path: &str) -> String {
    let time = jiff(second);
    format!("{ip} - - [{time}] \"GET {path} HTTP/1.1\" 200 5 \"-\" \"agent\"\n")
}

/// Seconds within the minute after 2026-11-15T19:13:00Z, as that format writes them.
fn jiff(second: u64) -> String {
    format!(
        "15/Nov/2026:19:{:02}:{:02} +0000",
        13 + second / 60,
        second % 60
    )
}

/// A place that what is written to can be read from.
#[derive(Clone, Default)]
pub(crate) struct SharedText(Arc<Mutex<Vec<u8>>>);

impl SharedText {
    pub(crate) fn lines(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

impl Write for SharedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
