//! Rules that count other units than requests: checks, batches and explanations with `costs`, metrics, and `warn_at`.

use serde_json::{Value, json};
use tidegate_testkit_server::TestFolder;

use crate::Server;

fn serve() -> (TestFolder, Server) {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let rules = json!({"rules": [
        {"id": "requests", "per": ["user_id"], "limit": "10/day"},
        {"id": "tokens", "per": ["user_id"], "unit": "tokens", "limit": "100/day", "warn_at": 80},
        {"id": "money", "per": [], "unit": "money", "limit": "50/day", "match": {"when": "cost > 1"}},
    ]});
    server
        .ask("PUT /v1/rules", &rules.to_string())
        .with_status(200);
    (folder, server)
}

fn body(costs: &Value) -> Value {
    json!({"attributes": {"user_id": "u1"}, "costs": costs})
}

/// The rule that speaks, and what each limit has left.
fn summary(decision: &Value) -> Value {
    let limits = decision["limits"].as_array().unwrap().iter();
    let left: Vec<Value> = limits
        .map(|limit| json!([limit["rule"], limit["remaining"]]))
        .collect();
    json!([decision["rule"], left])
}

#[test]
fn each_rule_is_charged_in_its_own_unit() {
    let (_folder, server) = serve();
    let check = |costs: Value, status: u16| {
        let reply = server.ask("POST /v1/check", &body(&costs).to_string());
        summary(&reply.with_status(status).json())
    };
    let all = |rule, requests, tokens| json!([rule, [["requests", requests], ["tokens", tokens]]]);
    assert_eq!(check(json!({"tokens": 60}), 200), all("requests", 9, 40));
    assert_eq!(check(json!({}), 200), all("requests", 8, 40));
    assert_eq!(check(json!({"tokens": 50}), 429), all("tokens", 8, 40));
    let asked = check(json!({"requests": 0}), 200);
    assert_eq!(asked, json!([null, [["requests", 8], ["tokens", 40]]]));
    let with_money = check(json!({"tokens": 1, "money": 2}), 200);
    assert_eq!(
        with_money,
        json!(["requests", [["requests", 7], ["tokens", 39], ["money", 48]]])
    );

    let checks = json!({"checks": [body(&json!({"tokens": 9})), body(&json!({"tokens": 40}))]});
    let decisions = server
        .ask("POST /v1/check/batch", &checks.to_string())
        .with_status(200)
        .json();
    assert_eq!(summary(&decisions["decisions"][0]), all("requests", 6, 30));
    assert_eq!(decisions["decisions"][1]["reason"], "over_limit");

    let explained = server
        .ask(
            "POST /v1/explain",
            &body(&json!({"tokens": 40})).to_string(),
        )
        .with_status(200)
        .json();
    assert_eq!(explained["decision"]["rule"], "tokens");
    let rules = explained["rules"].as_array().unwrap();
    assert_eq!(rules[1]["limits"][0]["unit"], "tokens");
    assert_eq!(rules[2]["failed"]["actual"], "false: cost=0");

    let policy = server.ask("POST /v1/check", &body(&json!({})).to_string());
    let policy = policy.header("ratelimit-policy").unwrap().to_owned();
    let expected = r#""requests";q=10;w=86400, "tokens";q=100;qu="tokens";w=86400"#;
    assert_eq!(policy, expected);
}

#[test]
fn cost_and_costs_together_are_refused_and_charge_nothing() {
    let (_folder, server) = serve();
    for (members, expected) in [
        (json!({"cost": 1, "costs": {"tokens": 1}}), "not both"),
        (json!({"costs": {"tokens": -1}}), "a whole number from 0"),
        (json!({"costs": {"tokens": 1.5}}), "a whole number from 0"),
        (json!({"costs": {"Tokens": 1}}), "cannot be a unit"),
        (json!({"costs": [1]}), "an object of costs by unit"),
    ] {
        let mut body = members;
        body["attributes"] = json!({"user_id": "u1"});
        let batch = json!({"checks": [{"attributes": {"user_id": "u1"}}, body]});
        for (call, body) in [
            ("POST /v1/check", &body),
            ("POST /v1/explain", &body),
            ("POST /v1/check/batch", &batch),
        ] {
            let refused = server.ask(call, &body.to_string()).with_status(400);
            assert!(refused.detail().contains(expected), "{call}: {refused:?}");
        }
    }
    let left = server.ask("POST /v1/check", &body(&json!({"requests": 0})).to_string());
    assert_eq!(left.json()["limits"][0]["remaining"], 10);
}

#[test]
fn headers_by_unit_are_on_every_answer_about_a_request() {
    let folder = TestFolder::new();
    folder.write("c.yaml", "headers: [openai, anthropic]\n");
    folder.write(
        "rules.yaml",
        "rules: [{id: requests, per: [ip], limit: 10/day}, {id: tokens, per: [], unit: input_tokens, limit: 100/day}]\n",
    );
    let server = folder.serve(&["--rules", "rules.yaml", "--config", "c.yaml"]);
    let asked = json!({"attributes": {"ip": "127.0.0.1"}, "costs": {"input_tokens": 20}});
    let too_much = json!({"attributes": {"ip": "127.0.0.1"}, "costs": {"input_tokens": 90}});
    #[rustfmt::skip]
    let table = [
        // call                 body                    status  requests    tokens left
        ("POST /v1/check",      asked.to_string(),      200,    "9",        "80"),
        ("POST /v1/reserve",    asked.to_string(),      200,    "8",        "60"),
        ("POST /v1/reserve",    too_much.to_string(),   429,    "8",        "60"),
        // It costs 1 of everything.
        ("GET /v1/authorize",   String::new(),          200,    "7",        "59"),
    ];
    for (call, body, status, requests, tokens) in table {
        let reply = server.ask(call, &body).with_status(status);
        for (name, value) in [
            ("x-ratelimit-limit-requests", "10"),
            ("x-ratelimit-remaining-requests", requests),
            ("x-ratelimit-limit-input-tokens", "100"),
            ("x-ratelimit-remaining-input-tokens", tokens),
            ("anthropic-ratelimit-input-tokens-limit", "100"),
            ("anthropic-ratelimit-input-tokens-remaining", tokens),
        ] {
            assert_eq!(reply.header(name), Some(value), "{name} of {call}");
        }
        assert_eq!(reply.header("x-ratelimit-limit"), None, "{call}");
    }
    let explained = server.ask("POST /v1/explain", &asked.to_string());
    let headers = &explained.with_status(200).json()["headers"];
    assert_eq!(headers["x-ratelimit-remaining-input-tokens"], "39");
}

#[test]
fn a_settlement_that_takes_a_counter_to_warn_at_is_logged_and_counted_once() {
    let (_folder, server) = serve();
    let made = body(&json!({"tokens": 10})).to_string();
    let made = server
        .ask("POST /v1/reserve", &made)
        .with_status(200)
        .json();
    let settle = format!(
        "POST /v1/reservations/{}/settle",
        made["reservation"].as_str().unwrap()
    );
    let actual = json!({"costs": {"tokens": 85}}).to_string();
    for _ in 0..2 {
        server.ask(&settle, &actual).with_status(200);
    }
    let log = server.log.wait_for("reached `warn_at` of its limit");
    let line = log.lines().find(|line| line.contains("warn_at")).unwrap();
    for part in ["rule=\"tokens\"", "used=85", "limit=100", "key="] {
        assert!(line.contains(part), "no {part} in {line}");
    }
    let looked = server.ask(
        settle.replace("POST", "GET").trim_end_matches("/settle"),
        "",
    );
    let looked = looked.with_status(200).json();
    let digest = looked["limits"][1]["key"]["user_id"].as_str().unwrap();
    assert!(line.contains(digest), "{line}");
    let metrics = server.ask("GET /metrics", "").with_status(200).body;
    let counted = "tidegate_warned_total{rule=\"tokens\"} 1";
    assert!(metrics.lines().any(|line| line == counted), "{metrics}");
}

#[test]
fn a_counter_that_reaches_warn_at_is_logged_and_counted_once() {
    let (_folder, server) = serve();
    for tokens in [79, 1, 1] {
        let costs = json!({ "tokens": tokens });
        server
            .ask("POST /v1/check", &body(&costs).to_string())
            .with_status(200);
    }
    let log = server.log.wait_for("reached `warn_at` of its limit");
    let line = log.lines().find(|line| line.contains("warn_at")).unwrap();
    for part in [
        "WARN",
        "rule=\"tokens\"",
        "used=80",
        "limit=100",
        "unit=\"tokens\"",
        "key=",
    ] {
        assert!(line.contains(part), "no {part} in {line}");
    }
    assert!(!line.contains("u1"), "{line}");
    let metrics = server.ask("GET /metrics", "").with_status(200).body;
    for line in [
        "tidegate_warned_total{rule=\"tokens\"} 1",
        "tidegate_budget_units_total{rule=\"tokens\",kind=\"reserved\"} 0",
        "tidegate_reservations_total{end=\"settled\"} 0",
        "tidegate_reservations 0",
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "no {line} in\n{metrics}"
        );
    }
}
