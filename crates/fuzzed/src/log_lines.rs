//! Logs of recorded traffic: the first line names the format and what `--map` says, the rest is the log. Every line is
//! counted once, every request is decided, and what is written down of the decisions says the same when it is read again.

use std::io::{self, Cursor, Write};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tidegate::InvalidCredentials;
use tidegate::rules::{RuleSet, RuleSettings, ValueDigest};
use tidegate_rehearse::{
    ClientNames, FieldMap, FormatName, HtmlTerms, InputProgress, InputSettings, LineTemplate,
    LogInput, ScaleSettings, SimulateError, Simulated, SimulationSettings, show, simulate, to_html,
    to_json,
};

const RULES: &str = "rules:
- {id: per-ip, per: [ip], limit: 3/minute, algorithm: sliding_window_log}
- {id: per-key, per: [api_key, path], limit: 2/10s, candidate: 1/10s, rollout: 50%}
- {id: agents, match: {path: '/a/**', method: GET}, per: [header.user-agent], missing: share, limit: 5/hour}
- {id: costs, per: [host], limit: 20/hour, cost: {attribute: weight}, mode: shadow}
- {id: busy, per: [user_id], limit: 2, algorithm: concurrency}
";

/// What is written, to be read afterwards.
#[derive(Clone, Default)]
struct SharedBytes(Arc<Mutex<Vec<u8>>>);

impl SharedBytes {
    fn bytes(&self) -> Vec<u8> {
        let bytes = self.0.lock();
        bytes.map(|bytes| bytes.clone()).unwrap_or_default()
    }
}

impl Write for SharedBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Ok(mut written) = self.0.lock() {
            written.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Simulates a log.
pub fn check(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let (head, log) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
    let Some(input) = input(String::from_utf8_lossy(head).trim()) else {
        return;
    };
    let record = SharedBytes::default();
    let settings = settings(input.clone(), Some(&record));
    let shown = show(&logs(log), &settings, 3);
    let Ok(simulated) = run(log, settings) else {
        return;
    };
    let report = check_report(&simulated);
    let shown = shown.map_or(0, |shown| shown.len());
    assert_eq!(
        shown as u64,
        number(&report["total"]["requests"]).min(3),
        "the first requests are shown"
    );
    let settings = self::settings(
        InputSettings {
            format: Some(FormatName::Recording),
            ..InputSettings::default()
        },
        None,
    );
    // Its lines are in the order in which requests were decided, and have no durations.
    let is_same =
        number(&report["input"]["late"]) == 0 && number(&report["rules"][4]["requests"]) == 0;
    let again = run(&record.bytes(), settings);
    let again = again.unwrap_or_else(|error| unreachable!("{error}: of a recording"));
    let again = check_report(&again);
    assert_eq!(again["input"]["malformed"], 0, "a recording is read");
    assert_eq!(again["total"]["requests"], report["total"]["requests"]);
    if is_same {
        assert_eq!(again["total"], report["total"], "decided again");
    }
}

/// What the first line says; none if it is no setting.
fn input(head: &str) -> Option<InputSettings> {
    let (name, rest) = head.split_once(' ').unwrap_or((head, ""));
    let mut input = InputSettings::default();
    if name == "log-format" {
        input.template = Some(LineTemplate::read_text(rest).ok()?);
        return Some(input);
    }
    input.format = match name {
        "auto" => None,
        name => Some(FormatName::from_name(name)?),
    };
    input.map = FieldMap::read_all(rest.split_whitespace()).ok()?;
    Some(input)
}

fn settings(input: InputSettings, record: Option<&SharedBytes>) -> SimulationSettings {
    SimulationSettings {
        input,
        rules: RuleSet::from_yaml(RULES)
            .unwrap_or_else(|problems| unreachable!("{problems}: in rules that are sound")),
        against: None,
        scale: ScaleSettings::default(),
        names: ClientNames {
            digest: ValueDigest::new(b"secret"),
            settings: RuleSettings::default(),
            anonymous: false,
            secret_sources: Vec::new(),
            is_secret_given: true,
        },
        invalid_credentials: InvalidCredentials::default(),
        record: record.map(|record| Box::new(record.clone()) as Box<dyn Write>),
    }
}

fn logs(text: &[u8]) -> [LogInput; 1] {
    let text: Arc<[u8]> = Arc::from(text);
    [LogInput {
        name: "log".to_owned(),
        size: Some(text.len() as u64),
        open: Arc::new(move || Ok(Box::new(Cursor::new(text.to_vec())))),
    }]
}

fn run(text: &[u8], settings: SimulationSettings) -> Result<Simulated, SimulateError> {
    let simulated = simulate(&logs(text), settings, &Arc::new(InputProgress::default()));
    if let Err(error) = &simulated {
        assert!(!error.to_string().is_empty(), "refused without a reason");
    }
    simulated
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Every line and every request is counted once.
fn check_report(simulated: &Simulated) -> Value {
    let report = to_json(simulated, None);
    let (input, total) = (&report["input"], &report["total"]);
    let sum = |of: &Value, names: &[&str]| names.iter().map(|name| number(&of[*name])).sum::<u64>();
    let kinds = ["requests", "malformed", "ignored", "refused", "outside"];
    assert_eq!(number(&input["lines"]), sum(input, &kinds), "{input}");
    assert_eq!(number(&input["requests"]), number(&total["requests"]));
    assert_eq!(
        number(&total["requests"]),
        sum(total, &["allowed", "denied"])
    );
    for row in report["scale"].as_array().into_iter().flatten() {
        let decided = sum(&row["total"], &["allowed", "denied"]);
        assert_eq!(decided, number(&total["requests"]), "{row}");
    }
    for rule in report["rules"].as_array().into_iter().flatten() {
        assert_eq!(number(&rule["requests"]), sum(rule, &["allowed", "denied"]));
    }
    let terms = HtmlTerms {
        rule_file: "rules.yaml",
        rule_text: RULES,
        command: "tidegate simulate",
        version: "0",
    };
    let html = to_html(simulated, &report, &terms);
    let is_control = |c: char| c.is_control() && c != '\n';
    assert!(
        !html.contains(is_control),
        "control characters are written out"
    );
    assert_eq!(html.matches("<script").count(), 1, "names are text");
    report
}
