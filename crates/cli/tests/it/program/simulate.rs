//! `tidegate simulate` and `tidegate rules suggest`: logs and rules in files, a report and an exit code out.

use std::fs;

use serde_json::{Value, json};

use super::support::{CommandRun, tidegate};

const RULES: &str = "rules:
  - {id: per-ip, per: [ip], limit: 4/hour, algorithm: fixed_window, candidate: 2/hour, rollout: 100%}
";

/// A client with six requests, and one with one.
fn log() -> String {
    let line = |ip: &str, second: u64| {
        format!(
            "{ip} - - [15/Nov/2026:19:13:{second:02} +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\"\n"
        )
    };
    let lines: String = (0..6).map(|second| line("10.0.0.1", second)).collect();
    lines + &line("10.0.0.2", 7)
}

fn run(arguments: &[&str]) -> CommandRun {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [("rules.yaml", RULES), ("access.log", &log())] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    tidegate(directory.path(), arguments, "")
}

#[test]
fn a_simulation_reports_and_ends_by_what_is_accepted() {
    let simulate = |options: &[&str]| {
        let begin = ["simulate", "--rules", "rules.yaml", "access.log"];
        run(&[&begin, options].concat())
    };
    let reported = simulate(&["--json"]);
    assert_eq!(reported.code, Some(0), "{}", reported.whole());
    let report: Value = serde_json::from_str(&reported.stdout).unwrap();
    assert_eq!(report["total"]["denied"], 4);
    let rule = &report["rules"][0];
    assert_eq!(
        (&rule["denied"], &rule["candidate"]["denied"]),
        (&json!(2), &json!(4))
    );
    assert_eq!(rule["enforced"], json!({"allowed": 3, "denied": 4}));
    assert!(
        reported.stdout.contains("`key_secret`"),
        "the rollout has other clients"
    );
    let table = simulate(&[]);
    assert!(
        table.stdout.contains("4 of 7 requests denied"),
        "{}",
        table.whole()
    );
    assert_eq!(simulate(&["--max-denied", "4"]).code, Some(0));
    assert_eq!(simulate(&["--max-denied", "3"]).code, Some(1));
    assert_eq!(
        run(&["simulate", "--rules", "rules.yaml", "none.log"]).code,
        Some(2)
    );
}

#[test]
fn a_suggestion_is_a_rule_file() {
    let begin = ["rules", "suggest", "access.log", "--window", "1h"];
    let options = ["--algorithm", "fixed_window", "--deny-clients", "0%"];
    let suggested = run(&[&begin[..], &options].concat());
    assert_eq!(suggested.code, Some(0), "{}", suggested.whole());
    assert!(suggested.stdout.contains("6/h"), "{}", suggested.stdout);
    let directory = tempfile::tempdir().unwrap();
    let checked = tidegate(
        directory.path(),
        &["rules", "validate", "-"],
        &suggested.stdout,
    );
    assert_eq!(checked.code, Some(0), "{}", checked.whole());
}
