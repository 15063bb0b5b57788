//! Alerts and dashboard: the alerts pass their unit tests, and both use only metrics that are documented.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::{page, root};

const ALERTS: &str = "packaging/prometheus/alerts.yaml";
const DASHBOARD: &str = "packaging/grafana/tidegate.json";

/// Promtool from the path, or where `scripts/install promtool` puts it.
fn promtool(arguments: &[&str]) {
    let unpacked = root().join("target/tools/prometheus/usr/bin/promtool");
    let program = if unpacked.exists() {
        unpacked
    } else {
        PathBuf::from("promtool")
    };
    let output = Command::new(program)
        .current_dir(root())
        .args(arguments)
        .output();
    let output = output.unwrap_or_else(|error| {
        panic!("promtool does not run: {error}; run scripts/install promtool")
    });
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
}

#[test]
fn the_alerts_are_valid_and_pass_their_tests() {
    promtool(&["check", "rules", ALERTS]);
    promtool(&["test", "rules", "packaging/prometheus/alerts_test.yaml"]);
}

/// The names of metrics in an expression.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_part(c));
    words
        .filter(|word| word.starts_with("tidegate_") || word.starts_with("process_"))
        .collect()
}

/// The name under which a series is documented.
fn documented(name: &str) -> &str {
    let endings = ["_bucket", "_sum", "_count"];
    let ending = endings.iter().find_map(|ending| name.strip_suffix(ending));
    ending.unwrap_or(name)
}

fn assert_documented(metrics: &BTreeSet<&str>) {
    let reference = page("docs/reference/metrics.md");
    for name in metrics {
        let row = format!("| `{}` |", documented(name));
        assert!(reference.contains(&row), "{name} is not documented");
    }
}

#[test]
fn every_alert_uses_documented_metrics_and_links_to_what_to_do() {
    let alerts = page(ALERTS);
    let expressions: String = alerts
        .lines()
        .filter(|line| !line.contains("runbook_url:") && !line.contains("summary:"))
        .collect();
    let metrics = metrics_in(&expressions);
    assert!(metrics.len() > 10, "{metrics:?}");
    assert_documented(&metrics);
    let guide = page("docs/guides/alerts.md");
    let names: Vec<&str> = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    for name in &names {
        let anchor = name.to_lowercase();
        let link = format!("runbook_url: docs/guides/alerts.md#{anchor}\n");
        assert!(alerts.contains(&link), "{name}");
        assert!(guide.contains(&format!("### {name}\n")), "{name}");
        let tests = page("packaging/prometheus/alerts_test.yaml");
        let fires = format!("alertname: {name}\n        exp_alerts:");
        assert!(tests.contains(&fires), "no test makes {name} fire");
    }
    let links = alerts.matches("runbook_url: ").count();
    assert_eq!(links, names.len());
}

/// All texts under a key, wherever they are.
fn texts_under<'v>(value: &'v Value, key: &str, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                if let (true, Some(text)) = (name == key, value.as_str()) {
                    found.push(text);
                }
                texts_under(value, key, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| texts_under(value, key, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_is_whole_and_uses_documented_metrics() {
    let dashboard: Value = serde_json::from_str(&page(DASHBOARD)).unwrap();
    for key in [
        "uid",
        "title",
        "schemaVersion",
        "panels",
        "templating",
        "time",
    ] {
        assert!(!dashboard[key].is_null(), "{key}");
    }
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        assert!(panel["title"].is_string() && panel["gridPos"]["w"].is_u64());
        if panel["type"] == "row" {
            continue;
        }
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        assert!(panel["description"].is_string(), "{}", panel["title"]);
        assert!(!panel["targets"].as_array().unwrap().is_empty());
    }
    let mut expressions = Vec::new();
    texts_under(&dashboard, "expr", &mut expressions);
    texts_under(&dashboard, "query", &mut expressions);
    let text = expressions.join("\n");
    let metrics = metrics_in(&text);
    assert!(metrics.len() > 15, "{metrics:?}");
    assert_documented(&metrics);
}
