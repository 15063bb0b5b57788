//! Checks one by one and in batches, resets, and leases.

use serde_json::{Value, json};

use crate::Server;
use tidegate_testkit_server::HttpClient;
use tidegate_testkit_server::TestFolder;

fn serve(rules: &Value) -> (TestFolder, Server) {
    let folder = TestFolder::new();
    let server = folder.serve(&["--trust-timestamps"]);
    let body = json!({ "rules": rules }).to_string();
    server.ask("PUT /v1/rules", &body).with_status(200);
    (folder, server)
}

fn per_user(limit: &str) -> Value {
    json!([{"id": "per-user", "per": ["user_id"], "missing": "deny", "limit": limit, "algorithm": "fixed_window"}])
}

/// What one check of a user leaves, at a time that is always the same.
fn remaining(client: &mut HttpClient, user: &str, cost: u64) -> Value {
    let body = json!({"attributes": {"user_id": user}, "cost": cost, "timestamp": 1_794_770_000});
    let reply = client.ask("POST /v1/check", &body.to_string());
    reply.json()["remaining"].clone()
}

#[test]
fn a_batch_is_decided_in_order_and_each_on_its_own() {
    let (_place, server) = serve(&per_user("2/hour"));
    let checks: Vec<Value> = ["a", "b", "a", "a", "b", "c"]
        .iter()
        .map(|user| json!({"attributes": {"user_id": user}, "timestamp": 1_794_770_000.25}))
        .collect();
    let body = json!({ "checks": checks }).to_string();
    let decisions = server
        .ask("POST /v1/check/batch", &body)
        .with_status(200)
        .json();
    let decisions = decisions["decisions"].as_array().unwrap();
    let found: Vec<(bool, u64)> = decisions
        .iter()
        .map(|one| {
            (
                one["allowed"].as_bool().unwrap(),
                one["remaining"].as_u64().unwrap(),
            )
        })
        .collect();
    let expected = [
        (true, 1),
        (true, 1),
        (true, 0),
        (false, 0),
        (true, 0),
        (true, 1),
    ];
    assert_eq!(found, expected);
    let empty = server
        .ask("POST /v1/check/batch", r#"{"checks": []}"#)
        .with_status(200);
    assert_eq!(empty.json(), json!({"decisions": []}));
}

#[test]
fn a_batch_with_one_bad_check_charges_no_client() {
    let (_place, server) = serve(&per_user("5/hour"));
    let good = json!({"attributes": {"user_id": "a"}, "timestamp": 1_794_770_000});
    for bad in [
        json!({"attributes": {"user_id": 7}}),
        json!({"attributes": {"ip": "nowhere"}}),
        json!({"attributes": {"user_id": "a"}, "cots": 1}),
        json!({"attributes": {"user_id": "a"}, "timestamp": "now"}),
        json!(7),
    ] {
        let body = json!({"checks": [good, good, bad]}).to_string();
        let refused = server.ask("POST /v1/check/batch", &body).with_status(400);
        assert!(refused.detail().contains("checks[2]"), "{refused:?}");
    }
    assert_eq!(remaining(&mut server.client(), "a", 0), 5);
}

#[test]
fn a_batch_whose_conditions_would_take_long_is_refused_and_charges_no_client() {
    let folder = TestFolder::new();
    let looping = |index| {
        format!(
            "  - {{id: loop-{index}, per: [], limit: 5/hour, match: {{when: 'attributes.exists(name, name == \"x{index}\")'}}}}\n"
        )
    };
    let looping: String = (0..100).map(looping).collect();
    let rules = format!("rules:\n  - {{id: all, per: [], limit: 5/hour}}\n{looping}");
    folder.write("rules.yaml", &rules);
    let server = folder.serve(&["--rules", "rules.yaml"]);
    let attributes: serde_json::Map<_, _> = (0..100)
        .map(|index| (format!("a{index}"), json!("v")))
        .collect();
    let check = json!({"attributes": attributes});
    let batch = |count| json!({"checks": vec![check.clone(); count]}).to_string();
    let refused = server
        .ask("POST /v1/check/batch", &batch(1_000))
        .with_status(413);
    assert!(refused.detail().contains("fewer checks"), "{refused:?}");
    // One alone is not too much, and the first that is charged.
    let allowed = server
        .ask("POST /v1/check/batch", &batch(1))
        .with_status(200);
    assert_eq!(allowed.json()["decisions"][0]["remaining"], 4);
}

#[test]
fn a_batch_has_a_thousand_checks_at_the_most() {
    let (_place, server) = serve(&per_user("5000/hour"));
    let check = json!({"attributes": {"user_id": "a"}, "timestamp": 1_794_770_000});
    let batch = |count| json!({"checks": vec![check.clone(); count]}).to_string();
    let refused = server
        .ask("POST /v1/check/batch", &batch(1_001))
        .with_status(400);
    assert!(refused.detail().contains("split it"), "{refused:?}");
    assert_eq!(remaining(&mut server.client(), "a", 0), 5_000);
    let answered = server
        .ask("POST /v1/check/batch", &batch(1_000))
        .with_status(200)
        .json();
    assert_eq!(answered["decisions"][999]["remaining"], 4_000);
}

#[test]
fn a_denied_request_takes_nothing_from_any_of_its_limits() {
    let (_place, server) = serve(&json!([
        {"id": "all", "per": [], "limit": "100/hour", "algorithm": "fixed_window"},
        {"id": "per-user", "per": ["user_id"], "missing": "deny", "limit": "1/hour", "algorithm": "fixed_window"},
    ]));
    let body = json!({"attributes": {"user_id": "a"}, "timestamp": 1_794_770_000}).to_string();
    server.ask("POST /v1/check", &body).with_status(200);
    let denied = server.ask("POST /v1/check", &body).with_status(429);
    assert_eq!(denied.header("retry-after"), Some("2800"));
    assert_eq!(denied.header("x-ratelimit-reset"), Some("1794772800"));
    let policies = r#""all";q=100;w=3600, "per-user";q=1;w=3600"#;
    assert_eq!(denied.header("ratelimit-policy"), Some(policies));
    let answer = denied.json();
    assert_eq!(answer["rule"], "per-user");
    assert_eq!(
        (
            &answer["limits"][0]["allowed"],
            &answer["limits"][0]["remaining"]
        ),
        (&json!(true), &json!(99))
    );
}

#[test]
fn without_a_rule_a_request_is_allowed_and_nothing_else_is_said() {
    let (_place, server) = serve(&json!([]));
    let reply = server
        .ask("POST /v1/check", r#"{"attributes": {}}"#)
        .with_status(200);
    let expected = json!({"allowed": true, "rule": null, "limit": null, "remaining": null, "reset_time": null,
        "retry_after": null, "delay": null, "degraded": null, "lease": null, "limits": [],
        "reason": null});
    assert_eq!(reply.json(), expected);
    assert!(
        !reply
            .headers
            .iter()
            .any(|(name, _)| name.contains("ratelimit")),
        "{reply:?}"
    );
}

#[test]
fn a_reset_forgets_what_one_client_has_used() {
    let (_place, server) = serve(&json!([
        {"id": "per-user", "per": ["user_id"], "missing": "deny", "limit": "5/hour", "algorithm": "fixed_window"},
        {"id": "all", "per": [], "limit": "100/hour", "algorithm": "fixed_window"},
    ]));
    let mut client = server.client();
    let used = |client: &mut HttpClient, user: &str| {
        let body = json!({"attributes": {"user_id": user}, "cost": 0, "timestamp": 1_794_770_000});
        let limits = client.ask("POST /v1/check", &body.to_string()).json();
        let remaining = |index: usize| limits["limits"][index]["remaining"].as_u64().unwrap();
        (remaining(0), remaining(1))
    };
    for user in ["a", "a", "b"] {
        remaining(&mut client, user, 1);
    }
    assert_eq!(used(&mut client, "a"), (3, 97));
    let one = json!({"attributes": {"user_id": "a"}, "rule": "per-user"}).to_string();
    let done = client.ask("POST /v1/reset", &one).with_status(200).json();
    let entry = |rule: &str, limit: u64, key: Value, used: u64| json!({"rule": rule, "limit": limit, "key": key, "used": used});
    let a = entry("per-user", 5, json!({"user_id": "a"}), 2);
    assert_eq!(done, json!({"reset": [a]}));
    assert_eq!(used(&mut client, "a"), (5, 97));
    assert_eq!(used(&mut client, "b"), (4, 97));
    let all = json!({"attributes": {"user_id": "b", "usr": "x"}}).to_string();
    let done = client.ask("POST /v1/reset", &all).with_status(200).json();
    let b = entry("per-user", 5, json!({"user_id": "b"}), 1);
    assert_eq!(done, json!({"reset": [b], "ignored": ["usr"]}));
    // What all share is not theirs alone, and stays unless it is named.
    assert_eq!(used(&mut client, "b"), (5, 97));
    let shared = json!({"attributes": {}, "rule": "all"}).to_string();
    let done = client
        .ask("POST /v1/reset", &shared)
        .with_status(200)
        .json();
    assert_eq!(done, json!({"reset": [entry("all", 100, json!({}), 3)]}));
    assert_eq!(used(&mut client, "b"), (5, 100));

    let unknown = json!({"attributes": {"user_id": "a"}, "rule": "unknown"}).to_string();
    let refused = client.ask("POST /v1/reset", &unknown).with_status(404);
    assert!(refused.detail().contains("`unknown`"), "{refused:?}");
    // A misspelt attribute resets nothing, least of all what all clients share.
    remaining(&mut client, "a", 1);
    let misspelt = json!({"attributes": {"userid": "a"}}).to_string();
    let refused = client.ask("POST /v1/reset", &misspelt).with_status(422);
    assert!(refused.detail().contains("`user_id`"), "{refused:?}");
    assert_eq!(used(&mut client, "a"), (4, 99));
    let anonymous = json!({"attributes": {}, "rule": "per-user"}).to_string();
    let refused = client.ask("POST /v1/reset", &anonymous).with_status(422);
    assert!(refused.detail().contains("user_id"), "{refused:?}");
    let log = server.log.wait_for_times("a counter was reset", 3);
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("was reset"))
        .collect();
    assert!(lines[0].contains("rule=\"per-user\" key=\""), "{log}");
    assert!(lines[0].contains("by=\"admin-token\""), "{log}");
}

#[test]
fn a_reset_does_not_repeat_a_secret() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let rule = json!({"id": "keys", "per": ["api_key"], "limit": "5/hour", "missing": "deny"});
    server
        .ask("POST /v1/rules", &rule.to_string())
        .with_status(201);
    let body = json!({"attributes": {"api_key": "secret-of-more-than-20-characters"}}).to_string();
    server.ask("POST /v1/check", &body).with_status(200);
    let done = server.ask("POST /v1/reset", &body).with_status(200).json();
    let key = done["reset"][0]["key"]["api_key"].as_str().unwrap();
    assert!(
        key.starts_with("secr…") && key.chars().count() == 17,
        "{done}"
    );
    assert_eq!(done["reset"][0]["used"], 1);
}

#[test]
fn a_lease_is_taken_renewed_and_released_once() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let rule = json!({"id": "jobs", "per": ["user_id"], "missing": "deny", "limit": 2, "algorithm": "concurrency"});
    server
        .ask("POST /v1/rules", &rule.to_string())
        .with_status(201);
    let mut client = server.client();
    let body = json!({"attributes": {"user_id": "a"}}).to_string();
    let mut take = || client.ask("POST /v1/check", &body);
    let first = take().with_status(200).json();
    let second = take().with_status(200).json();
    let denied = take().with_status(429).json();
    assert_eq!(denied["lease"], Value::Null);
    let id = |answer: &Value| answer["lease"].as_str().unwrap().to_owned();
    assert_eq!(id(&first).len(), 32, "128 bits: {first}");
    assert_ne!(id(&first), id(&second));

    let lease = format!("/v1/leases/{}", id(&first));
    server.ask(&format!("PUT {lease}"), "").with_status(204);
    server.ask(&format!("DELETE {lease}"), "").with_status(204);
    take().with_status(200);
    for call in [
        format!("PUT {lease}"),
        format!("DELETE {lease}"),
        "DELETE /v1/leases/x".to_owned(),
    ] {
        let refused = server.ask(&call, "").with_status(404);
        assert!(refused.detail().contains("there is no lease"), "{call}");
    }
    take().with_status(429);
}
