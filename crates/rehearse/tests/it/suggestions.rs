//! Suggested limits keep their goal when they are simulated, and one less does not.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tidegate::InvalidCredentials;
use tidegate::rules::RuleSet;
use tidegate_rehearse::{
    InputProgress, InputSettings, SuggestGoal, SuggestSettings, SuggestShare, Suggested, suggest,
    suggestions_to_json, suggestions_to_yaml,
};

use crate::support::{log, names, report};

/// A kind of traffic: the seconds between requests of a client, and how many clients there are.
fn traffic(kind: u64) -> String {
    let mut random = SmallRng::seed_from_u64(kind);
    let mut lines: Vec<(u64, String)> = Vec::new();
    let clients = 20 + kind * 2;
    for client in 0..clients {
        let mut at = random.random_range(0..60_000);
        let count = match kind % 5 {
            0 => 20,
            1 => 1 + client % 40,
            2 => random.random_range(1..60),
            3 => {
                if client % 17 == 0 {
                    200
                } else {
                    5
                }
            }
            _ => 1 + client * client / clients,
        };
        for number in 0..count {
            at += match kind % 3 {
                0 => random.random_range(0..4_000),
                1 => {
                    if number % 10 == 0 {
                        45_000
                    } else {
                        10
                    }
                }
                _ => 1_500,
            };
            let time = 1_794_770_000_000 + at;
            lines.push((
                at,
                format!(
                    "{{\"ts\": {time}, \"ip\": \"10.{}.{}.1\", \"weight\": {}}}\n",
                    client / 256,
                    client % 256,
                    1 + number % 3
                ),
            ));
        }
    }
    lines.sort_by_key(|(at, _)| *at);
    lines.into_iter().map(|(_, line)| line).collect()
}

fn suggested(text: &str, rules: &str, goal: SuggestGoal) -> Suggested {
    let settings = SuggestSettings {
        input: InputSettings::default(),
        rules: RuleSet::from_yaml(rules).unwrap(),
        are_new: false,
        goal,
        headroom: SuggestShare::ZERO,
        names: names(),
        invalid_credentials: InvalidCredentials::default(),
        as_candidate: false,
    };
    suggest(
        &[log("log", text)],
        settings,
        &Arc::new(InputProgress::default()),
    )
    .unwrap()
}

/// How many clients and requests a limit denies.
fn denied(text: &str, rules: &str) -> (u64, u64) {
    let report = report(&[log("log", text)], rules, InputSettings::default());
    let rule = &report["rules"][0];
    (
        rule["clients_denied"].as_u64().unwrap(),
        rule["denied"].as_u64().unwrap(),
    )
}

#[test]
fn suggestions_keep_their_goal_and_one_less_does_not() {
    for kind in 0..10 {
        let text = traffic(kind);
        for algorithm in [
            "fixed_window",
            "sliding_window_log",
            "sliding_window_counter",
            "sliding_window_slots",
            "token_bucket",
            "leaky_bucket",
        ] {
            for goal in [
                SuggestGoal::Clients(SuggestShare::read("5%").unwrap()),
                SuggestGoal::Requests(SuggestShare::read("2%").unwrap()),
            ] {
                check(
                    &text,
                    algorithm,
                    goal,
                    &format!("kind {kind}, {algorithm}, {goal:?}"),
                );
            }
        }
    }
}

fn check(text: &str, algorithm: &str, goal: SuggestGoal, what: &str) {
    let rule = |limit: &str| {
        format!("rules: [{{id: per-ip, per: [ip], limit: {limit}, algorithm: {algorithm}}}]")
    };
    let suggested = suggested(text, &rule("1/30s"), goal);
    let json = suggestions_to_json(&suggested);
    let one = &json["suggestions"][0];
    let number = |name: &str| one[name].as_u64().unwrap();
    let most = match goal {
        SuggestGoal::Clients(share) => floor(share, number("clients")),
        SuggestGoal::Requests(share) => floor(share, number("requests")),
    };
    let part = |(clients, requests): (u64, u64)| match goal {
        SuggestGoal::Clients(_) => clients,
        SuggestGoal::Requests(_) => requests,
    };
    // The printed rule, simulated.
    let yaml = suggestions_to_yaml(&suggested);
    let kept = denied(text, &yaml);
    assert!(part(kept) <= most, "{what}: {kept:?} of {most}\n{yaml}");
    assert_eq!(
        kept,
        (number("clients_denied"), number("requests_denied")),
        "{what}: the evidence"
    );
    assert!(RuleSet::from_yaml(&yaml).is_ok(), "{yaml}");
    let (count, is_bucket) = (number("requests_per_window"), algorithm.ends_with("bucket"));
    if is_bucket {
        assert!((1..=count).contains(&number("burst")), "{what}");
        // The rate is that of a log of requests with the same window.
        let log = |count: u64| {
            let limit = format!("{count}/30s, algorithm: sliding_window_log");
            denied(
                text,
                &format!("rules: [{{id: per-ip, per: [ip], limit: {limit}}}]"),
            )
        };
        assert!(part(log(count)) <= most, "{what}: the rate");
        assert!(
            count == 1 || part(log(count - 1)) > most,
            "{what}: a smaller rate keeps the goal"
        );
        if number("burst") > 1 {
            let less = denied(
                text,
                &rule(&format!("{count}/30s burst {}", number("burst") - 1)),
            );
            assert!(part(less) > most, "{what}: a smaller burst keeps the goal");
        }
    } else if count > 1 {
        let less = denied(text, &rule(&format!("{}/30s", count - 1)));
        assert!(part(less) > most, "{what}: one less keeps the goal");
    }
}

fn floor(share: SuggestShare, of: u64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "small numbers"
    )]
    let floor = (share.as_f64() * of as f64 + 1e-9).floor() as u64;
    floor
}

#[test]
fn tiers_are_fitted_separately_and_other_costs_still_keep_the_goal() {
    let text = traffic(3);
    let rules = "rules: [{id: per-ip, per: [ip], limit: 1/30s, cost: {attribute: weight}, overrides: {10.0.0.1: 5/30s}, tiers: {pro: 1/30s}}]";
    let suggested = suggested(
        &text,
        rules,
        SuggestGoal::Clients(SuggestShare::ONE_PERCENT),
    );
    let json = suggestions_to_json(&suggested);
    let one = &json["suggestions"][0];
    assert_eq!(one["tier"], Value::Null);
    assert_eq!(one["clients"], 25, "the one with an override is left out");
    assert_eq!(one["was"], "1/30s");
    assert_eq!(one["window"], 30);
    assert_eq!(one["clients_denied"].as_u64().unwrap(), 0);
    assert_eq!(
        json["suggestions"].as_array().unwrap().len(),
        1,
        "no request has the tier"
    );
    assert_eq!(json["goal"], json!({"clients": 0.01}));
    let yaml = suggestions_to_yaml(&suggested);
    assert!(
        yaml.contains("algorithm: token_bucket") && yaml.contains("burst"),
        "{yaml}"
    );
    assert!(RuleSet::from_yaml(&yaml).is_ok(), "{yaml}");
}

/// Each request of three clients: the first two have a tier.
fn tiered() -> String {
    (0..90)
        .map(|number: u64| {
            let client = number % 3;
            let tier = if client < 2 { "pro" } else { "free" };
            let time = 1_794_770_000 + number * (1 + client);
            format!("{{\"time\": {time}, \"ip\": \"10.0.0.{client}\", \"tier\": \"{tier}\"}}\n")
        })
        .collect()
}

#[test]
fn several_limits_and_tiers_keep_the_goal_together() {
    let rules = "rules: [{id: per-ip, per: [ip], limit: [1/10s, 2/minute], tiers: {pro: 1/10s}, algorithm: sliding_window_log}]";
    let none = SuggestGoal::Clients(SuggestShare::ZERO);
    let suggested = suggested(&tiered(), rules, none);
    let json = suggestions_to_json(&suggested);
    let entries = json["suggestions"].as_array().unwrap();
    let tiers: Vec<&Value> = entries.iter().map(|entry| &entry["tier"]).collect();
    assert_eq!(tiers, [&Value::Null, &Value::Null, &json!("pro")]);
    let windows: Vec<&Value> = entries.iter().map(|entry| &entry["window"]).collect();
    assert_eq!(windows, [&json!(10), &json!(60), &json!(10)]);
    for entry in entries {
        assert_eq!(entry["requests_denied"], 0, "{entry}");
    }
    let yaml = suggestions_to_yaml(&suggested);
    assert_eq!(denied(&tiered(), &yaml), (0, 0), "{yaml}");
}

#[test]
fn headroom_is_added_to_numbers_and_candidates_name_the_algorithm() {
    let run = |headroom: &str, as_candidate: bool, rules: &str| {
        let settings = SuggestSettings {
            input: InputSettings::default(),
            rules: RuleSet::from_yaml(rules).unwrap(),
            are_new: false,
            goal: SuggestGoal::Clients(SuggestShare::ZERO),
            headroom: SuggestShare::read(headroom).unwrap(),
            names: names(),
            invalid_credentials: InvalidCredentials::default(),
            as_candidate,
        };
        let progress = Arc::new(InputProgress::default());
        suggest(&[log("log", tiered())], settings, &progress).unwrap()
    };
    let rules = "rules: [{id: per-ip, per: [ip], limit: 1/minute, algorithm: fixed_window}]";
    let count = |headroom: &str| {
        let json = suggestions_to_json(&run(headroom, false, rules));
        json["suggestions"][0]["requests_per_window"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(count("50%"), (count("0%") * 3).div_ceil(2));
    let rules = "rules: [{id: per-ip, per: [ip], limit: 1/minute}]";
    let yaml = suggestions_to_yaml(&run("0%", true, rules));
    let written = RuleSet::from_yaml(&yaml).unwrap();
    let rule = written.iter().next().unwrap();
    assert!(yaml.contains("algorithm: token_bucket"), "{yaml}");
    assert!(
        rule.candidate().is_some() && yaml.contains("burst"),
        "{yaml}"
    );
}
