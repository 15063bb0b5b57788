//! What reports say: counts by rule and client, other limits, other rules, concurrency, secrets.

use serde_json::{Value, json};
use tidegate::rules::RuleSet;
use tidegate_rehearse::{
    FieldMap, HtmlTerms, InputSettings, ScaleFactor, ScaleSettings, to_html, to_json,
};

use crate::support::{SharedText, line, log, report, run, settings};

/// Three clients: one with 6 requests in a minute, one with 3, one with 1.
fn traffic() -> String {
    let mut text = String::new();
    for second in 0..6 {
        text.push_str(&line("10.0.0.1", second, "/a"));
        if second % 2 == 0 {
            text.push_str(&line("10.0.0.2", second, "/b"));
        }
    }
    text + &line("10.0.0.3", 7, "/c")
}

const RULES: &str = "rules:
- {id: per-ip, per: [ip], limit: 2/hour, algorithm: fixed_window}
- {id: quiet, per: [], limit: 5/hour, algorithm: fixed_window, mode: shadow}
- {id: free, match: {path: /c}, per: [ip], limit: unlimited}
- {id: keys, per: [api_key], limit: 1/hour}
";

#[test]
fn rules_and_clients_are_counted() {
    let report = report(&[log("log", traffic())], RULES, InputSettings::default());
    assert_eq!(
        report["total"],
        json!({"requests": 10, "allowed": 5, "denied": 5, "delayed": 0, "unmatched": 0})
    );
    let rule = &report["rules"][0];
    let part = |name: &str| rule[name].clone();
    assert_eq!(
        [
            "requests",
            "allowed",
            "denied",
            "cost",
            "clients",
            "clients_denied"
        ]
        .map(part),
        [10, 5, 5, 5, 3, 2].map(|n| json!(n))
    );
    assert_eq!(part("reasons"), json!({"over_limit": 5}));
    assert_eq!(part("enforced"), json!({"allowed": 5, "denied": 5}));
    assert_eq!(
        part("top")[0],
        json!({"key": {"ip": "10.0.0.1"}, "requests": 6, "allowed": 2, "denied": 4, "delayed": 0, "longest_streak": 4})
    );
    let streak =
        json!({"key": {"ip": "10.0.0.1"}, "denied": 4, "from": 1_794_769_982, "to": 1_794_769_985});
    assert_eq!(part("longest_streak"), streak);
    let quiet = &report["rules"][1];
    assert_eq!(
        (&quiet["mode"], &quiet["denied"]),
        (&json!("shadow"), &json!(5))
    );
    assert_eq!(quiet["enforced"], json!({"allowed": 0, "denied": 0}));
    assert_eq!(
        report["rules"][2]["requests"], 0,
        "what is granted everything is not counted"
    );
    assert_eq!(report["rules"][3]["missing"], json!({"api_key": 10}));
    assert_eq!(report["series"]["from"], 1_794_769_980);
    assert_eq!(report["series"]["step"], 1);
    assert_eq!(
        report["series"]["total"]["allowed"],
        json!([2, 1, 1, 0, 0, 0, 0, 1])
    );
    assert_eq!(
        report["series"]["total"]["denied"],
        json!([0, 0, 1, 1, 2, 1, 0, 0])
    );
}

/// Each row of the scale is what a run with these limits gives.
#[test]
fn multiplied_limits_are_runs_of_their_own() {
    let with = |factors: &[&str], rules: &str| {
        let mut settings = settings(rules, InputSettings::default());
        settings.scale = ScaleSettings {
            factors: factors
                .iter()
                .map(|text| ScaleFactor::read(text).unwrap())
                .collect(),
            rules: Vec::new(),
        };
        to_json(&run(&[log("log", traffic())], settings).unwrap(), None)
    };
    let scaled = with(&["2", "0.5", "1", "1.5"], RULES);
    for (row, (factor, limit, shadow)) in [(0.5, 1, 2), (1.0, 2, 5), (1.5, 3, 7), (2.0, 4, 10)]
        .into_iter()
        .enumerate()
    {
        let row = &scaled["scale"][row];
        assert_eq!(row["factor"].as_f64(), Some(factor));
        let alone = with(
            &[],
            &RULES
                .replace("2/hour", &format!("{limit}/hour"))
                .replace("5/hour", &format!("{shadow}/hour")),
        );
        assert_eq!(row["total"]["denied"], alone["total"]["denied"], "{factor}");
        for (index, rule) in alone["rules"].as_array().unwrap().iter().enumerate() {
            for name in ["allowed", "denied", "clients_denied"] {
                assert_eq!(row["rules"][index][name], rule[name], "{factor} {name}");
            }
        }
    }
}

#[test]
fn other_rules_are_compared_request_by_request() {
    let mut settings = settings(RULES, InputSettings::default());
    let before = "rules: [{id: per-ip, per: [ip], limit: 3/hour, algorithm: fixed_window}, {id: old, match: {path: /c}, per: [ip], limit: blocked}]";
    settings.against = Some((
        "before.yaml".to_owned(),
        RuleSet::from_yaml(before).unwrap(),
    ));
    let report = to_json(&run(&[log("log", traffic())], settings).unwrap(), None);
    let against = &report["against"];
    assert_eq!(against["total"], json!({"allowed": 6, "denied": 4}));
    assert_eq!(
        against["newly_denied"],
        json!({"requests": 2, "clients": 2, "top": [
        {"rule": "per-ip", "key": {"ip": "10.0.0.1"}, "requests": 1}, {"rule": "per-ip", "key": {"ip": "10.0.0.2"}, "requests": 1}]})
    );
    assert_eq!(
        against["newly_allowed"],
        json!({"requests": 1, "clients": 1, "top": [{"rule": "old", "key": {"ip": "10.0.0.3"}, "requests": 1}]})
    );
    let changes: Vec<&str> = against["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| rule["change"].as_str().unwrap())
        .collect();
    assert_eq!(changes, ["changed", "added", "added", "added", "removed"]);
}

#[test]
fn concurrent_requests_are_counted_if_the_log_has_durations() {
    let rules = "rules: [{id: busy, per: [], limit: 1, algorithm: concurrency}]";
    let without = report(&[log("log", traffic())], rules, InputSettings::default());
    assert!(
        without["rules"][0]["note"]
            .as_str()
            .unwrap()
            .contains("duration")
    );
    assert_eq!(without["rules"][0]["requests"], 0);
    let lines = [(0, 2), (1, 1), (2, 90), (91, 1), (92, 5)];
    let text: String = lines
        .iter()
        .map(|(time, took)| format!("{{\"time\": {}, \"took\": {took}}}\n", 1_794_770_000 + time))
        .collect();
    let input = InputSettings {
        map: FieldMap::read_all(["duration=took"]).unwrap(),
        ..InputSettings::default()
    };
    let with = report(&[log("log", text)], rules, input);
    // Held until 2, refused at 1, held until 92 although that is longer than a permit lasts, refused at 91, free at 92.
    assert_eq!(
        (&with["rules"][0]["allowed"], &with["rules"][0]["denied"]),
        (&json!(3), &json!(2))
    );
}

#[test]
fn secrets_are_in_no_report() {
    let rules = "rules: [{id: keys, per: [api_key], limit: 1/hour, overrides: {very-secret-override: 2/hour}}]";
    let text = format!(
        "{}{}",
        line("10.0.0.1", 0, "/a?token=hidden-token"),
        line("10.0.0.1", 1, "/a?token=hidden-token")
    );
    let text = text.replace("\"agent\"", "\"hidden-key-of-the-client\"");
    let input = InputSettings {
        map: FieldMap::read_all(["api_key=$http_user_agent"]).unwrap(),
        ..InputSettings::default()
    };
    let record = SharedText::default();
    let mut settings = settings(rules, input);
    settings.record = Some(Box::new(record.clone()));
    let simulated = run(&[log("log", text)], settings).unwrap();
    let json = to_json(&simulated, None);
    let terms = HtmlTerms {
        rule_file: "rules.yaml",
        rule_text: rules,
        command: "tidegate simulate",
        version: "0",
    };
    let html = to_html(&simulated, &json, &terms);
    let record = Value::Array(record.lines()).to_string();
    for (name, text) in [
        ("json", json.to_string()),
        ("html", html),
        ("record", record),
    ] {
        assert!(!text.contains("hidden"), "{name}: {text}");
        assert!(!text.contains("very-secret"), "{name}: {text}");
    }
    assert_eq!(json["rules"][0]["denied"], 1);
}

#[test]
fn a_page_has_names_as_text_and_nothing_from_elsewhere() {
    let text = "{\"time\": 1794770000, \"user_id\": \"<img src=x onerror=alert(1)>\"}\n".repeat(3);
    let rules = "rules: [{id: users, per: [user_id], limit: 1/hour}]";
    let simulated = run(
        &[log("<b>log</b>", text)],
        settings(rules, InputSettings::default()),
    )
    .unwrap();
    let json = to_json(&simulated, None);
    let terms = HtmlTerms {
        rule_file: "rules.yaml",
        rule_text: rules,
        command: "tidegate simulate '<i>'",
        version: "0",
    };
    let html = to_html(&simulated, &json, &terms);
    assert!(
        html.contains("&lt;img src=x onerror=alert(1)&gt;"),
        "{html}"
    );
    for wrong in [
        "<img", "<b>log", "<i>", "http://", "https://", "src=\"", "url(",
    ] {
        assert!(!html.contains(wrong), "{wrong}");
    }
    assert!(html.contains("default-src 'none'") && html.contains("<svg"));
}

#[test]
fn a_file_without_durations_leaves_rules_of_concurrency_out() {
    let rules = "rules: [{id: busy, per: [], limit: 1, algorithm: concurrency}]";
    let timed = include_str!("samples/haproxy.log");
    let report = report(
        &[
            log("timed", timed),
            log("empty", ""),
            log("plain", traffic()),
        ],
        rules,
        InputSettings::default(),
    );
    let note = report["rules"][0]["note"].as_str().unwrap();
    assert!(note.contains("`plain`"), "{note}");
    assert_eq!(report["rules"][0]["requests"], 0);
}

/// Rows of the scale with tiers, overrides, written bursts and candidates are runs of their own too.
#[test]
fn all_numbers_of_the_named_rules_are_multiplied() {
    let rules = |numbers: [u64; 5]| {
        let [limit, burst, tier, by_override, other] = numbers;
        format!(
            "rules:
- {{id: per-ip, per: [ip], limit: {limit}/hour burst {burst}, tiers: {{pro: {tier}/hour}}, overrides: {{10.0.0.2: {by_override}/hour}}, candidate: 1/hour}}
- {{id: other, per: [], limit: {other}/hour, algorithm: fixed_window}}"
        )
    };
    let text: String = (0..40)
        .map(|number: u64| {
            let client = number % 4;
            let tier = if client == 3 { "pro" } else { "free" };
            let time = 1_794_770_000 + number;
            format!("{{\"time\": {time}, \"ip\": \"10.0.0.{client}\", \"tier\": \"{tier}\"}}\n")
        })
        .collect();
    let with = |rules: &str, factors: &[&str], named: &[&str]| {
        let mut settings = settings(rules, InputSettings::default());
        settings.scale = ScaleSettings {
            factors: factors
                .iter()
                .filter_map(|text| ScaleFactor::read(text))
                .collect(),
            rules: named.iter().map(|id| (*id).to_owned()).collect(),
        };
        to_json(&run(&[log("log", text.as_str())], settings).unwrap(), None)
    };
    let scaled = with(&rules([4, 2, 5, 3, 30]), &["0.5", "1.5"], &["per-ip"]);
    for (row, numbers) in [(0, [2, 1, 2, 1, 30]), (1, [6, 3, 7, 4, 30])] {
        let row = &scaled["scale"][row];
        let alone = with(&rules(numbers), &[], &[]);
        assert_eq!(row["total"]["denied"], alone["total"]["denied"]);
        for (index, rule) in alone["rules"].as_array().unwrap().iter().enumerate() {
            for name in ["allowed", "denied", "clients_denied"] {
                assert_eq!(row["rules"][index][name], rule[name], "{row} {name}");
            }
        }
    }
}

#[test]
fn a_request_that_is_only_granted_everything_has_no_rule() {
    let rules = "rules: [{id: free, per: [ip], limit: unlimited}]";
    let report = report(&[log("log", traffic())], rules, InputSettings::default());
    assert_eq!(report["total"]["allowed"], 10);
    assert_eq!(report["total"]["unmatched"], 10);
}

#[test]
fn an_attribute_that_no_request_has_comes_with_advice() {
    let report = report(&[log("log", traffic())], RULES, InputSettings::default());
    let warnings = report["warnings"].to_string();
    for advice in ["`--map user_id=$remote_user`", "`--map api_key=@ip`"] {
        assert!(warnings.contains(advice), "{warnings}");
    }
}
