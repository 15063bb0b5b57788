//! Lines of decisions by a real gate.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tidegate::gate::{Observed, Observer, Part};
use tidegate::printable::hexadecimal;
use tidegate::rules::{FrontEnd, RuleSet, RuleSettings, Source, ValueDigest};
use tidegate::{Attributes, Costs, Gate, ManualClock, MemoryStore, Timestamp};

use super::*;

const AT: Timestamp = Timestamp::from_micros(1_794_770_000_250_000);

/// Writes the line of each decision.
struct Lines {
    recorded: RecordedAttributes,
    written: Mutex<Vec<u8>>,
}

impl Observer for Lines {
    fn decided(&self, observed: &Observed<'_, '_>) {
        if is_recorded(observed) {
            let at = decided_at(observed).unwrap_or(AT);
            write_decision(
                &mut self.written.lock().unwrap(),
                observed,
                at,
                &self.recorded,
            );
        }
    }
}

struct Recorded {
    gate: Gate,
    lines: Arc<Lines>,
}

impl Recorded {
    fn by(rules: &str, secret: &[&str]) -> Self {
        let mut settings = RuleSettings::default();
        settings.secret_attributes = secret.iter().map(|name| (*name).to_owned()).collect();
        let rules = RuleSet::read(&Source::new("rules", rules), &settings).unwrap();
        let digest = Arc::new(ValueDigest::new(b"key"));
        let lines = Arc::new(Lines {
            recorded: RecordedAttributes::new(&rules, &settings, &digest),
            written: Mutex::default(),
        });
        let clock = ManualClock::new(AT);
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let gate = Gate::with_clock(store, rules, clock);
        Self {
            gate: gate.with_observer(Arc::clone(&lines) as Arc<dyn Observer>),
            lines,
        }
    }

    fn decide(&self, attributes: &[(&'static str, &'static str)], costs: impl Into<Costs>) {
        let attributes = request(attributes).with_cost(costs);
        let rules = self.gate.rules();
        let decided = self.gate.try_decide_by(&rules, FrontEnd::Http, &attributes);
        decided.unwrap().into_decision();
    }

    fn text(&self) -> String {
        String::from_utf8(self.lines.written.lock().unwrap().clone()).unwrap()
    }

    fn lines(&self) -> Vec<Value> {
        let text = self.text();
        assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')));
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn request(attributes: &[(&'static str, &'static str)]) -> Attributes<'static> {
    let mut request = Attributes::new();
    for (name, value) in attributes {
        request.insert(*name, *value).unwrap();
    }
    request
}

#[test]
fn a_line_has_what_the_rules_read_in_normal_form_and_each_limit() {
    let recorded = Recorded::by(
        "rules:
- {id: per-user, match: {path: /v1/**}, per: [user_id], limit: 1/minute; 9/hour}
- {id: seen, per: [user_id], limit: 1/minute, mode: shadow}",
        &[],
    );
    let asked = [
        ("path", "/v1//a%20b?token=hidden"),
        ("user_id", "ü\u{202e}\"\\"),
        ("plan", "unread"),
        ("ip", "192.0.2.1"),
    ];
    recorded.decide(&asked, 1);
    recorded.decide(&asked, 1);
    let text = recorded.text();
    assert!(!text.contains("hidden") && !text.contains("unread") && !text.contains("192"));
    assert_eq!(
        text.lines().next().unwrap(),
        r#"{"t":1794770000.250000,"front_end":"http","attributes":{"path":"/v1/a b","user_id":"\u00fc\u202e\"\\"},"cost":1,"allowed":true,"rule":"per-user","reason":null,"limits":[{"rule":"per-user","allowed":true},{"rule":"per-user","allowed":true},{"rule":"seen","allowed":true,"shadow":true}]}"#
    );
    let attributes = json!({"path": "/v1/a b", "user_id": "ü\u{202e}\"\\"});
    let limits = json!([
        {"rule": "per-user", "allowed": false}, {"rule": "per-user", "allowed": true},
        {"rule": "seen", "allowed": false, "shadow": true},
    ]);
    assert_eq!(
        recorded.lines()[1],
        json!({
            "t": 1_794_770_000.25, "front_end": "http", "attributes": attributes, "cost": 1, "allowed": false,
            "rule": "per-user", "reason": "over_limit", "limits": limits,
        })
    );
}

#[test]
fn what_only_asks_is_not_recorded_and_costs_by_unit_are() {
    let rules = "rules: [{id: tokens, unit: tokens, per: [], limit: 100/minute}]";
    let recorded = Recorded::by(rules, &[]);
    let by_unit = |costs: &[(&'static str, u64)]| Costs::by_unit(costs.iter().copied()).unwrap();
    recorded.decide(&[], 0);
    recorded.decide(&[], by_unit(&[("requests", 0), ("tokens", 0)]));
    assert_eq!(recorded.text(), "");
    recorded.decide(&[], 3);
    recorded.decide(&[], by_unit(&[("tokens", 60), ("input_tokens", 20)]));
    // It charges rules that count requests.
    recorded.decide(&[], by_unit(&[("tokens", 0)]));
    let costs = |line: &Value| (line.get("cost").cloned(), line.get("costs").cloned());
    let lines = recorded.lines();
    assert_eq!(costs(&lines[0]), (Some(json!(3)), None));
    let two = json!({"tokens": 60, "input_tokens": 20});
    assert_eq!(costs(&lines[1]), (None, Some(two)));
    assert_eq!(costs(&lines[2]), (None, Some(json!({"tokens": 0}))));
    assert_eq!(lines[2]["rule"], Value::Null);
}

#[test]
fn secret_values_are_digests_and_those_that_rules_name_are_hashes() {
    let by_hash = format!("sha256:{}", hexadecimal(&Sha256::digest("by-hash")));
    let rules = format!(
        "rules:
- {{id: keys, per: [api_key], limit: 9/minute, overrides: {{in-clear: 5/minute, \"{by_hash}\": blocked}}}}
- {{id: teams, per: [team], limit: 9/minute, match: {{attributes: {{team: [red]}}}}}}"
    );
    let recorded = Recorded::by(&rules, &["team"]);
    let values = ["in-clear", "by-hash", "other-key"];
    for value in values {
        recorded.decide(&[("api_key", value), ("team", "red")], 1);
    }
    recorded.decide(&[("api_key", "other-key"), ("team", "blue")], 1);
    let text = recorded.text();
    for value in values.into_iter().chain(["\"red\"", "blue"]) {
        assert!(!text.contains(value), "{value} in {text}");
    }
    let lines = recorded.lines();
    let hash = |value: &str| format!("sha256:{}", hexadecimal(&Sha256::digest(value)));
    let digest = |value: &str| ValueDigest::new(b"key").recorded(value);
    let expected = [
        (hash("in-clear"), hash("red")),
        (hash("by-hash"), hash("red")),
        (digest("other-key"), hash("red")),
        (digest("other-key"), digest("blue")),
    ];
    for (line, (key, team)) in lines.iter().zip(expected) {
        assert_eq!(line["attributes"], json!({"api_key": key, "team": team}));
    }
    assert_eq!(lines[1]["reason"], "blocked");
    let names: Vec<&str> = recorded.lines.recorded.secret().collect();
    assert_eq!(names, ["api_key", "team"]);
}

#[test]
fn a_secret_address_is_recorded_as_the_network_that_is_counted() {
    let recorded = Recorded::by("rules: [{id: a, per: [ip], limit: 9/s}]", &["ip"]);
    for ip in ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"] {
        recorded.decide(&[("ip", ip)], 1);
    }
    let lines = recorded.lines();
    assert_eq!(lines[0]["attributes"], lines[1]["attributes"]);
    assert_ne!(lines[0]["attributes"], lines[2]["attributes"]);
}

#[test]
fn several_descriptors_are_parts_of_one_line() {
    let recorded = Recorded::by(
        "rules:
- {id: a, per: [a], limit: 1/minute}
- {id: b, per: [b], limit: 9/minute}",
        &[],
    );
    let parts = [
        Part::new(request(&[("a", "1"), ("domain", "d")])),
        Part::new(request(&[("b", "2")]).with_cost(3)),
    ];
    let rules = recorded.gate.rules();
    for _ in 0..2 {
        let decided = recorded
            .gate
            .try_decide_by(&rules, FrontEnd::Grpc, &parts[..]);
        drop(decided.unwrap());
    }
    let asked = [Part::new(request(&[("a", "1")]).with_cost(0))];
    let decided = recorded
        .gate
        .try_decide_by(&rules, FrontEnd::Grpc, &asked[..]);
    drop(decided.unwrap());
    let lines = recorded.lines();
    assert_eq!(lines.len(), 2, "what only asks is not recorded");
    let parts =
        json!([{"attributes": {"a": "1"}, "cost": 1}, {"attributes": {"b": "2"}, "cost": 3}]);
    assert_eq!(
        lines[1],
        json!({
            "t": 1_794_770_000.25, "front_end": "grpc", "parts": parts, "allowed": false, "rule": "a",
            "reason": "over_limit", "limits": [{"rule": "a", "allowed": false}, {"rule": "b", "allowed": true}],
        })
    );
    assert_eq!(
        (&lines[0]["allowed"], &lines[0]["rule"]),
        (&json!(true), &json!("a"))
    );
}

#[test]
fn entries_of_descriptors_are_all_recorded_and_paths_without_their_query() {
    let file = "domain: d
descriptors:
- {key: path, rate_limit: {unit: minute, requests_per_unit: 5}}";
    let recorded = Recorded::by(file, &[]);
    let mut raw = Attributes::new();
    for (name, value) in [
        ("domain", "d"),
        ("path", "/a?token=hidden"),
        ("authorization", "Bearer hidden"),
    ] {
        raw.push(name, value);
    }
    let rules = recorded.gate.rules();
    let decided = recorded.gate.try_decide_by(&rules, FrontEnd::Grpc, &raw);
    drop(decided.unwrap());
    assert!(!recorded.text().contains("hidden"), "{}", recorded.text());
    let line = &recorded.lines()[0];
    assert_eq!(
        (&line["attributes"]["path"], &line["attributes"]["domain"]),
        (&json!("/a"), &json!("d"))
    );
    let names: Vec<&str> = recorded.lines.recorded.names().collect();
    assert_eq!(names, ["*"]);
}

#[test]
fn times_by_hand() {
    for (micros, text) in [
        (0, "0.000000"),
        (1_000_001, "1.000001"),
        (AT.as_micros(), "1794770000.250000"),
    ] {
        let mut out = Vec::new();
        line::write_time(&mut out, Timestamp::from_micros(micros));
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }
    let mut out = Vec::new();
    write_rules_version(&mut out, 6);
    write_lost(&mut out, 12);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "{\"rules_version\":6}\n{\"lost\":12}\n"
    );
}
