//! The same requests with the same times: simulated, checked on a server, and by shadow rules of a server.

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tidegate_rehearse::{FieldMap, InputSettings};
use tidegate_testkit_server::TestFolder;

use crate::support::{SharedText, log, run, settings};

const ALGORITHMS: [&str; 8] = [
    "algorithm: token_bucket",
    "algorithm: token_bucket, max_delay: 500ms",
    "algorithm: leaky_bucket",
    "algorithm: fixed_window",
    "algorithm: fixed_window, anchor: first_request",
    "algorithm: sliding_window_log",
    "algorithm: sliding_window_counter",
    "algorithm: sliding_window_slots",
];

/// Rules of one algorithm, enforced or in shadow.
fn rules(algorithm: &str, mode: &str) -> String {
    let common = format!("{algorithm}, mode: {mode}");
    format!(
        "rules:
- {{id: users, per: [user_id], limit: 4/10s, tiers: {{pro: 8/10s}}, overrides: {{u3: 2/10s}}, candidate: {{limit: 3/10s, tiers: {{pro: 9/10s}}}}, {common}}}
- {{id: twice, per: [user_id, ip], limit: 3/10s; 7/40s, {common}}}
- {{id: paths, match: {{path: /a/**}}, per: [ip, path], missing: share, limit: 6/20s, cost: {{attribute: weight}}, {common}}}
- {{id: all, per: [], limit: 20/5s, except: [{{attributes: {{tier: pro}}}}], {common}}}
- {{id: blocked, match: {{path: /b}}, per: [user_id], missing: deny, limit: blocked, {common}}}
"
    )
}

/// Requests at rising times, some of them at the same.
fn trace(random: &mut SmallRng) -> Vec<Value> {
    let mut micros: u64 = 1_794_770_000_000_000;
    let mut requests = Vec::new();
    for _ in 0..400 {
        micros += [0, 1, 250_000, 900_000, 2_000_001][random.random_range(0..5)];
        let path = ["/a/x", "/a/y", "/b", "/c"][random.random_range(0..4)];
        let mut attributes = json!({ "path": path });
        if random.random_range(0..5) > 0 {
            attributes["user_id"] = json!(format!("u{}", random.random_range(1..5)));
        }
        if random.random_range(0..3) > 0 {
            attributes["ip"] = json!(format!("203.0.113.{}", random.random_range(1..4)));
        }
        if random.random_range(0..4) == 0 {
            attributes["tier"] = json!("pro");
        }
        let weight: u32 = random.random_range(1..4);
        attributes["weight"] = json!(weight.to_string());
        let time = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        let time: serde_json::Number = time.parse().unwrap();
        let cost = random.random_range(1..3);
        requests.push(json!({"t": time, "attributes": attributes, "cost": cost}));
    }
    requests
}

/// What matters of a decision: whether it is allowed, and what each limit said.
fn decided(decision: &Value) -> (bool, Vec<(String, bool)>) {
    let limits = decision["limits"].as_array().unwrap().iter();
    let limits = limits.map(|limit| {
        (
            limit["rule"].as_str().unwrap().to_owned(),
            limit["allowed"].as_bool().unwrap(),
        )
    });
    (decision["allowed"].as_bool().unwrap(), limits.collect())
}

fn simulated(rules: &str, trace: &[Value]) -> Vec<(bool, Vec<(String, bool)>)> {
    let text: String = trace.iter().map(|request| format!("{request}\n")).collect();
    let record = SharedText::default();
    let mut settings = settings(rules, InputSettings::default());
    settings.record = Some(Box::new(record.clone()));
    run(&[log("trace", text)], settings).unwrap();
    record.lines()[1..].iter().map(decided).collect()
}

fn checked(rules: &str, trace: &[Value]) -> Vec<(bool, Vec<(String, bool)>)> {
    let folder = TestFolder::new();
    folder.write("rules.yaml", rules);
    let server = folder.serve(&["--rules", "rules.yaml", "--trust-timestamps"]);
    let mut client = server.client();
    let mut decisions = Vec::new();
    for request in trace {
        let body = json!({"attributes": request["attributes"], "cost": request["cost"], "timestamp": request["t"]});
        let reply = client.ask("POST /v1/check", &body.to_string());
        decisions.push(decided(&reply.json()));
    }
    decisions
}

#[test]
fn simulated_requests_are_decided_as_a_server_decides_them() {
    for (seed, algorithm) in (0..).zip(ALGORITHMS) {
        let trace = trace(&mut SmallRng::seed_from_u64(seed));
        let (enforced, shadow) = (rules(algorithm, "enforce"), rules(algorithm, "shadow"));
        let by_simulation = simulated(&enforced, &trace);
        assert_eq!(by_simulation.len(), trace.len());
        let by_server = checked(&enforced, &trace);
        let differences = by_simulation
            .iter()
            .zip(&by_server)
            .filter(|(one, other)| one != other)
            .count();
        assert_eq!(differences, 0, "{algorithm}, enforced");
        assert!(
            by_server.iter().any(|(allowed, _)| !allowed),
            "{algorithm}: something is denied"
        );
        let by_simulation = simulated(&shadow, &trace);
        let by_server = checked(&shadow, &trace);
        let differences = by_simulation
            .iter()
            .zip(&by_server)
            .filter(|(one, other)| one != other)
            .count();
        assert_eq!(differences, 0, "{algorithm}, in shadow");
    }
}

#[test]
fn a_rule_alone_says_the_same_in_shadow_and_enforced() {
    for (seed, algorithm) in (20..).zip(ALGORITHMS) {
        let trace = trace(&mut SmallRng::seed_from_u64(seed));
        let rules = |mode: &str| {
            format!(
                "rules: [{{id: users, per: [user_id], limit: 4/10s, tiers: {{pro: 8/10s}}, {algorithm}, mode: {mode}}}]"
            )
        };
        let limits = |decided: Vec<(bool, Vec<(String, bool)>)>| {
            decided
                .into_iter()
                .map(|(_, limits)| limits)
                .collect::<Vec<_>>()
        };
        let enforced = limits(checked(&rules("enforce"), &trace));
        assert!(enforced.iter().flatten().any(|(_, allowed)| !allowed));
        assert!(
            enforced == limits(checked(&rules("shadow"), &trace)),
            "{algorithm}, on a server"
        );
        for mode in ["enforce", "shadow"] {
            assert!(
                enforced == limits(simulated(&rules(mode), &trace)),
                "{algorithm}, simulated, {mode}"
            );
        }
    }
}

/// An adaptive limit that no answers were reported to, of which the server changes nothing either.
#[test]
fn adaptive_limits_are_those_that_a_server_begins_with() {
    let trace = trace(&mut SmallRng::seed_from_u64(40));
    let rules =
        "rules: [{id: users, per: [user_id], limit: 4/10s, adaptive: {min: 1/10s, max: 40/10s}}]";
    let by_server = checked(rules, &trace);
    assert!(by_server.iter().any(|(allowed, _)| !allowed));
    assert!(simulated(rules, &trace) == by_server);
}

/// A server gives a permit back when its request ends; a simulation knows the end by the duration.
#[test]
fn permits_are_held_as_long_as_requests_take() {
    let mut random = SmallRng::seed_from_u64(50);
    let rules = "rules: [{id: busy, per: [user_id], limit: 2, algorithm: concurrency}, {id: all, per: [], limit: 5, algorithm: concurrency}]";
    let folder = TestFolder::new();
    folder.write("rules.yaml", rules);
    let server = folder.serve(&["--rules", "rules.yaml", "--trust-timestamps"]);
    let mut client = server.client();
    let (mut millis, mut text) = (1_794_770_000_000_u64, String::new());
    let mut held: Vec<(u64, String)> = Vec::new();
    let mut by_server = Vec::new();
    for _ in 0..300 {
        millis += [0, 250, 900, 2_000][random.random_range(0..4)];
        let user = format!("u{}", random.random_range(1..5));
        let took = random.random_range(0..4_000);
        let time = format!("{}.{:03}", millis / 1_000, millis % 1_000);
        text.push_str(&format!(
            "{{\"time\": {time}, \"user_id\": \"{user}\", \"took\": {}.{:03}}}\n",
            took / 1_000,
            took % 1_000
        ));
        held.retain(|(end, lease)| {
            if *end <= millis {
                client.ask(&format!("DELETE /v1/leases/{lease}"), "");
            }
            *end > millis
        });
        let time: serde_json::Number = time.parse().unwrap();
        let body = json!({"attributes": {"user_id": user}, "timestamp": time});
        let decision = client.ask("POST /v1/check", &body.to_string()).json();
        if let Some(lease) = decision["lease"].as_str() {
            held.push((millis + took, lease.to_owned()));
        }
        by_server.push(decided(&decision));
    }
    let record = SharedText::default();
    let input = InputSettings {
        map: FieldMap::read_all(["duration=took"]).unwrap(),
        ..InputSettings::default()
    };
    let mut settings = settings(rules, input);
    settings.record = Some(Box::new(record.clone()));
    run(&[log("log", text)], settings).unwrap();
    let by_simulation: Vec<_> = record.lines()[1..].iter().map(decided).collect();
    assert!(by_server.iter().any(|(allowed, _)| !allowed));
    assert!(by_simulation == by_server);
}
