//! Recordings of servers: samples of clients, secret addresses, marks, and paths in normal form.

use serde_json::{Value, json};
use tidegate::rules::RuleSettings;
use tidegate_rehearse::{FieldMap, InputSettings, to_json};

use crate::support::{SharedText, line, log, report, run, settings, shown};

const IPS: &str = "rules: [{id: ips, per: [ip], limit: 1/hour}, {id: users, per: [user_id, ip], limit: 9/hour}, {id: all, per: [], limit: 9/hour}]";

fn header(sample: &str, by: &str) -> String {
    format!(
        "{{\"tidegate_record\": 1, \"version\": \"0.1.0\", \"rules_version\": 5, \"attributes\": [\"*\"], \"secret\": [\"ip\"], \"sample\": {sample}, \"sample_by\": {by}}}\n"
    )
}

fn decision(second: u64, attributes: &Value) -> String {
    let time = 1_794_770_000 + second;
    format!("{{\"t\": {time}.000000, \"attributes\": {attributes}, \"cost\": 1}}\n")
}

#[test]
fn addresses_that_are_digests_are_clients_like_others() {
    let one = json!({"ip": "hmac:d0940123456789abcdef0123456789ab"});
    let other = json!({"ip": "hmac:ffff0123456789abcdef0123456789ab"});
    let parts = json!({"t": 1_794_770_005, "parts": [{"attributes": one}, {"attributes": other}]});
    let text = header("1", "null")
        + &decision(0, &one)
        + &decision(1, &one)
        + &decision(2, &other)
        + &format!("{parts}\n");
    let report = report(&[log("log", text.as_str())], IPS, InputSettings::default());
    assert_eq!(report["input"]["refused"], 0, "{}", report["input"]);
    let rule = &report["rules"][0];
    assert_eq!(
        (&rule["clients"], &rule["allowed"], &rule["denied"]),
        (&json!(2), &json!(2), &json!(3))
    );
    let requests = shown(&[log("log", text)], InputSettings::default());
    assert_eq!(requests[0]["attributes"], one);
}

#[test]
fn a_simulation_writes_what_a_server_records_and_reads_it_again() {
    let mut text = String::new();
    for (second, host) in (0..).zip([1, 2, 1]) {
        let ip = format!("2001:db8::{host}");
        text.push_str(&line(&ip, second, "/"));
    }
    for anonymous in [false, true] {
        let record = SharedText::default();
        let mut first = settings(IPS, InputSettings::default());
        first.record = Some(Box::new(record.clone()));
        first.names.anonymous = anonymous;
        if !anonymous {
            let mut secret = RuleSettings::default();
            secret.secret_attributes.push("ip".to_owned());
            first.names.settings = secret;
        }
        let first = to_json(&run(&[log("log", text.as_str())], first).unwrap(), None);
        let lines = record.lines();
        assert_eq!(lines[0]["attributes"], json!(["ip", "user_id"]));
        assert!(
            lines[0]["secret"]
                .as_array()
                .unwrap()
                .contains(&json!("ip"))
        );
        assert_eq!(
            lines[1]["attributes"], lines[2]["attributes"],
            "addresses of one network are one client"
        );
        let again: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let again = report(&[log("record", again)], IPS, InputSettings::default());
        assert_eq!(again["total"], first["total"]);
        assert_eq!(again["rules"][0]["denied"], first["rules"][0]["denied"]);
        assert_eq!(again["rules"][0]["clients"], 1);
    }
}

#[test]
fn a_sample_is_warned_about_where_rules_count_by_something_else() {
    let attributes = json!({"ip": "203.0.113.7", "user_id": "u"});
    let about_sample = |header: &str| {
        let text = header.to_owned() + &decision(0, &attributes);
        let report = report(&[log("log", text)], IPS, InputSettings::default());
        let warnings = report["warnings"].as_array().unwrap().clone();
        let texts = warnings
            .iter()
            .map(|text| text.as_str().unwrap().to_owned());
        texts
            .filter(|text| text.contains("share of the clients"))
            .collect::<Vec<_>>()
    };
    let sampled = about_sample(&header("0.1", "[\"ip\"]"));
    assert_eq!(sampled.len(), 1);
    assert!(sampled[0].starts_with("rule `all`: "), "{sampled:?}");
    let sampled = about_sample(&header("0.1", "[\"user_id\"]"));
    assert!(
        sampled[0].starts_with("rules `ips`, `all`: "),
        "{sampled:?}"
    );
    assert!(about_sample(&header("1", "null")).is_empty());
}

#[test]
fn marks_are_no_requests_and_paths_stay_in_their_normal_form() {
    let text = header("1", "null")
        + "{\"rules_version\": 6}\n{\"lost\":12}\n{\"lost\": 3}\n"
        + &decision(0, &json!({"path": "/100%/a b"}));
    let report = report(&[log("log", text.as_str())], IPS, InputSettings::default());
    let counts = &report["input"];
    assert_eq!(
        (&counts["requests"], &counts["ignored"]),
        (&json!(1), &json!(4)),
        "{counts}"
    );
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("15 lines were lost"), "{warnings}");
    let requests = shown(&[log("log", text)], InputSettings::default());
    assert_eq!(requests[0]["attributes"]["path"], "/100%/a b");
}

#[test]
fn queries_of_referers_are_in_no_output() {
    let rules = "rules: [{id: from, per: [header.referer], limit: 1/hour}]";
    let text = line("10.0.0.1", 0, "/a?q=hidden")
        .replace(
            "\"-\" \"agent\"",
            "\"https://h.example/b?token=hidden\" \"agent\"",
        )
        .repeat(2);
    let record = SharedText::default();
    let mut settings = settings(rules, InputSettings::default());
    settings.record = Some(Box::new(record.clone()));
    let report = to_json(&run(&[log("log", text.as_str())], settings).unwrap(), None);
    let requests = shown(&[log("log", text)], InputSettings::default());
    for output in [
        report.to_string(),
        json!(record.lines()).to_string(),
        json!(requests).to_string(),
    ] {
        assert!(!output.contains("hidden"), "{output}");
        assert!(output.contains("https://h.example/b"), "{output}");
    }
}

#[test]
fn a_secret_value_is_hidden_wherever_it_occurs() {
    let input = || InputSettings {
        map: FieldMap::read_all(["api_key=token", "user_id=@ip"]).unwrap(),
        ..InputSettings::default()
    };
    let text = "{\"time\": 1794770000, \"ip\": \"10.0.0.1\", \"token\": \"hidden\", \"copy\": \"hidden\"}\n";
    let shown = shown(&[log("log", text)], input());
    assert!(!json!(shown).to_string().contains("hidden"), "{shown:?}");
    assert_eq!(shown[0]["attributes"]["user_id"], "10.0.0.1");
    let rules = "rules: [{id: tokens, per: [token], limit: 1/hour}]";
    let report = report(&[log("log", text)], rules, input());
    assert!(!report.to_string().contains("hidden"), "{report}");
}
