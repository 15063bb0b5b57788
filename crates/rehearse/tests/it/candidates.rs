//! What is tried of rules is tried on logs as by a gate: candidates, and rollouts under the secret of the digests.

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate::rules::RuleSet;
use tidegate::{Attributes, Gate, MemoryStore};
use tidegate_rehearse::{InputSettings, ScaleSettings, to_json};

use crate::support::{SharedText, line, log, names, report, run, settings};

/// Client `n` of `clients` has `n` requests.
fn traffic(clients: u64) -> String {
    let requests = (1..=clients).flat_map(|client| (0..client).map(move |at| (at, client)));
    let mut requests: Vec<(u64, u64)> = requests.collect();
    requests.sort_unstable();
    let lines = requests.iter();
    lines
        .map(|(at, client)| line(&format!("10.0.0.{client}"), *at, "/"))
        .collect()
}

fn rules(options: &str) -> String {
    format!("rules: [{{id: a, per: [ip], algorithm: fixed_window, {options}}}]")
}

fn of_rule(options: &str) -> (Value, Value) {
    let logs = [log("log", traffic(6))];
    let report = report(&logs, &rules(options), InputSettings::default());
    (report["total"].clone(), report["rules"][0].clone())
}

#[test]
fn a_candidate_is_compared_and_decides_by_its_rollout() {
    // 21 requests. The limit denies 1 and 2 of two clients, the candidate 1, 2, 3 and 4 of four.
    let tried = json!({"limit": "2/hour", "requests": 21, "allowed": 11, "denied": 10,
        "clients_denied": 4, "newly_denied": 7, "newly_allowed": 0});
    for (rollout, denied) in [("", 3), (", rollout: 0%", 3), (", rollout: 100%", 10)] {
        let (total, rule) = of_rule(&format!("limit: 4/hour, candidate: 2/hour{rollout}"));
        assert_eq!(total["denied"], denied, "{rollout}");
        assert_eq!(
            (&rule["allowed"], &rule["denied"], &rule["clients_denied"]),
            (&json!(18), &json!(3), &json!(2)),
            "the limit's own answers{rollout}"
        );
        let enforced = json!({"allowed": 21 - denied, "denied": denied});
        assert_eq!(rule["enforced"], enforced, "{rollout}");
        assert_eq!(rule["candidate"], tried, "{rollout}");
    }
    let (total, rule) = of_rule("limit: unlimited, candidate: 5/hour, rollout: 100%");
    assert_eq!(
        (&total["denied"], &total["unmatched"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(
        (&rule["requests"], &rule["candidate"]["newly_denied"]),
        (&json!(0), &json!(1))
    );
    let (_, rule) = of_rule("limit: 2/hour, candidate: 4/hour, mode: shadow");
    assert_eq!(rule["enforced"], json!({"allowed": 0, "denied": 0}));
    assert_eq!(rule["candidate"]["newly_allowed"], 7);
    let (_, rule) = of_rule("limit: 2/hour");
    assert_eq!(rule["candidate"], Value::Null);
}

#[test]
fn a_rollout_has_the_clients_that_it_has_in_a_gate() {
    for options in ["limit: 9/hour, candidate: 1/hour", "limit: 1/hour"] {
        let rules = rules(&format!("{options}, rollout: 50%"));
        let gate = Gate::new(MemoryStore::new(), RuleSet::from_yaml(&rules).unwrap());
        let gate = gate.with_digest(Arc::new(names().digest));
        let mut denied = 0_u64;
        for client in 1..=9 {
            for _ in 0..client {
                let ip = format!("10.0.0.{client}");
                let mut attributes = Attributes::new();
                attributes.insert("ip", &ip).unwrap();
                denied += u64::from(gate.try_decide(&attributes).unwrap().is_denied());
            }
        }
        assert!(
            denied > 0 && denied < 36,
            "some clients are in it: {denied}"
        );
        let mut settings = settings(&rules, InputSettings::default());
        let written = SharedText::default();
        settings.record = Some(Box::new(written.clone()));
        settings.scale = ScaleSettings::default();
        settings.against = Some(("same".to_owned(), RuleSet::from_yaml(&rules).unwrap()));
        let simulated = run(&[log("log", traffic(9))], settings).unwrap();
        let report = to_json(&simulated, None);
        assert_eq!(report["total"]["denied"], denied, "{options}");
        assert_eq!(
            report["rules"][0]["enforced"]["denied"], denied,
            "{options}"
        );
        assert_eq!(report["against"]["newly_denied"]["requests"], 0);
        assert_eq!(report["warnings"], json!([]));
        let has_candidate = |line: &Value| {
            let limits = line["limits"].as_array();
            limits.is_some_and(|limits| limits.iter().any(|limit| limit["candidate"] == true))
        };
        let is_recorded = written.lines().iter().any(has_candidate);
        assert_eq!(is_recorded, options.contains("candidate"));
    }
}

#[test]
fn without_the_secret_a_rollout_is_warned_about() {
    let mut settings = settings(
        &rules("limit: 9/hour, candidate: 5/hour, rollout: 50%"),
        InputSettings::default(),
    );
    settings.names.is_secret_given = false;
    let simulated = run(&[log("log", traffic(2))], settings).unwrap();
    assert!(
        matches!(simulated.warnings(), [warning] if warning.contains("`key_secret`")),
        "{:?}",
        simulated.warnings()
    );
}

#[test]
fn what_becomes_different_by_a_candidate_is_named_by_its_rule() {
    let mut settings = settings(
        &rules("limit: 9/hour, candidate: 5/hour, rollout: 100%"),
        InputSettings::default(),
    );
    let before = RuleSet::from_yaml(&rules("limit: 9/hour")).unwrap();
    settings.against = Some(("before".to_owned(), before));
    let report = to_json(&run(&[log("log", traffic(6))], settings).unwrap(), None);
    assert_eq!(
        report["against"]["newly_denied"]["top"],
        json!([{"rule": "a", "key": {"ip": "10.0.0.6"}, "requests": 1}])
    );
}

#[test]
fn a_candidate_that_a_log_cannot_show_is_left_out() {
    let (total, rule) =
        of_rule("limit: 4/hour, candidate: {limit: 1, algorithm: concurrency}, rollout: 100%");
    assert_eq!(total["denied"], 3, "the limit decides");
    assert_eq!(rule["candidate"], Value::Null);
    assert!(
        rule["note"]
            .as_str()
            .unwrap()
            .starts_with("its candidate was left out")
    );
}
