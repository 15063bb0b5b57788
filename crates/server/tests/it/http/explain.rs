//! `POST /v1/explain`: every rule with why it applies or not, what a check would answer, nothing charged and no
//! secret in clear.

use serde_json::{Value, json};
use tidegate_testkit_server::TestFolder;

use crate::Server;

const KEY: &str = "sk_live_0123456789abcdef";

fn serve(rules: &Value) -> (TestFolder, Server) {
    let folder = TestFolder::new();
    let server = folder.serve(&["--trust-timestamps"]);
    let body = json!({ "rules": rules }).to_string();
    server.ask("PUT /v1/rules", &body).with_status(200);
    (folder, server)
}

fn asked(attributes: &Value) -> String {
    json!({"attributes": attributes, "timestamp": 1_794_770_000}).to_string()
}

#[test]
fn an_explanation_has_every_rule_and_the_answer_of_a_check() {
    let rules = json!([
        {"id": "writes", "match": {"method": ["POST", "PUT"]}, "per": [], "limit": "1/minute"},
        {"id": "per-user", "per": ["user_id"], "limit": "2/hour; 9/day", "algorithm": "fixed_window"},
        {"id": "held", "per": [], "limit": 5, "algorithm": "concurrency"},
        {"id": "seen", "mode": "shadow", "per": [], "limit": "1/day"},
    ]);
    let (_place, server) = serve(&rules);
    let body = asked(&json!({"user_id": "u1", "method": "GET"}));
    for _ in 0..3 {
        let explained = server
            .ask("POST /v1/explain", &body)
            .with_status(200)
            .json();
        let expected = json!({
            "rule": "writes", "applies": false, "grant": null, "key": null, "limits": [],
            "candidate": null, "rollout": null,
            "failed": {"condition": "method", "expected": "POST, PUT", "actual": "GET"},
        });
        assert_eq!(explained["rules"][0], expected);
        let rule = &explained["rules"][1];
        assert_eq!(
            rule["grant"],
            json!({"from": "limit", "value": "2/hour; 9/day"})
        );
        assert_eq!(rule["key"], json!({"user_id": "u1"}));
        assert_eq!(
            (&rule["applies"], &rule["failed"]),
            (&json!(true), &Value::Null)
        );
        let remaining: Vec<&Value> = rule["limits"]
            .as_array()
            .unwrap()
            .iter()
            .map(|limit| &limit["remaining"])
            .collect();
        assert_eq!(remaining, [&json!(1), &json!(8)], "after the request");
        assert_eq!(explained["rules"].as_array().unwrap().len(), 4);
        assert_eq!(explained["decision"]["lease"], Value::Null);
    }
    for turn in 0..3 {
        let mut explained = server.ask("POST /v1/explain", &body).json();
        let checked = server.ask("POST /v1/check", &body);
        let mut decision = checked.json();
        decision["lease"] = Value::Null;
        assert_eq!(explained["decision"].take(), decision, "{turn}");
        for (name, value) in explained["headers"].as_object().unwrap() {
            assert_eq!(checked.header(name), value.as_str(), "{name}");
        }
        assert!(checked.header("ratelimit").is_some());
        assert_eq!(explained["headers"].get("retry-after").is_some(), turn == 2);
    }
}

#[test]
fn secret_values_are_nowhere_in_the_answer() {
    let rules = json!([
        {"id": "key", "per": ["api_key"], "limit": "5/minute"},
        {"id": "not", "match": {"attributes": {"api_key": ["other"]}}, "per": [], "limit": "5/minute"},
        {"id": "when", "match": {"when": format!("attributes.api_key != '{KEY}'")}, "per": [], "limit": "5/minute"},
        {"id": "except", "except": [{"attributes": {"api_key": KEY}}], "per": [], "limit": "5/minute"},
        {"id": "override", "per": ["api_key"], "limit": "1/minute", "overrides": {KEY: "9/minute"}},
        {"id": "session", "match": {"attributes": {"session": "a"}}, "per": ["session"], "limit": "1/minute"},
    ]);
    let folder = TestFolder::new();
    folder.write("c.yaml", "secret_attributes: [session]\n");
    let server = folder.serve(&["--trust-timestamps", "--config", "c.yaml"]);
    let body = json!({ "rules": rules }).to_string();
    server.ask("PUT /v1/rules", &body).with_status(200);
    let body = asked(&json!({"api_key": KEY, "session": "s3cret"}));
    let reply = server.ask("POST /v1/explain", &body).with_status(200);
    assert!(!reply.whole().contains(KEY), "{}", reply.whole());
    assert!(!reply.whole().contains("s3cret"), "{}", reply.whole());
    let explained = reply.json();
    let shown = explained["rules"][0]["key"]["api_key"].as_str().unwrap();
    let digits = shown.strip_prefix("sk_l…").unwrap();
    assert!(digits.len() == 12 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    for index in [1, 2, 3] {
        let actual = explained["rules"][index]["failed"]["actual"].as_str();
        assert!(actual.unwrap().contains(shown), "{explained:#}");
    }
    assert_eq!(explained["rules"][4]["grant"]["from"], "override");
    let session = explained["rules"][5]["failed"]["actual"].as_str().unwrap();
    assert_eq!(session.len(), 12, "too short to show its beginning");
}

#[test]
fn explaining_needs_the_scope_read_and_takes_the_body_of_a_check() {
    let folder = TestFolder::new();
    folder.write(
        "c.yaml",
        "tokens:\n  - {name: r, token_env: READER, scopes: [read]}\n  - {name: c, token_env: CHECKER, scopes: [check]}\n",
    );
    let environment = [("READER", "r-secret"), ("CHECKER", "c-secret")];
    let server = folder.serve_with(&["--config", "c.yaml"], &environment);
    let body = r#"{"attributes": {"user_id": "u"}}"#;
    let ask = |token: &str, body: &str| {
        let authorization = format!("Bearer {token}");
        server.ask_with(
            "POST /v1/explain",
            &[("authorization", &authorization)],
            body,
        )
    };
    ask("c-secret", body).with_status(403);
    ask("x-secret", body).with_status(401);
    ask("r-secret", body).with_status(200);
    #[rustfmt::skip]
    let refused = [
        ("{}",                                           "attributes"),
        (r#"{"attributes": {"user_id": 7}}"#,               "user_id"),
        (r#"{"attributes": {}, "cost": -1}"#,               "cost"),
        (r#"{"attributes": {}, "rule": "a"}"#,              "rule"),
        (r#"{"attributes": {}, "timestamp": 1794770000}"#,  "--trust-timestamps"),
        ("[]",                                           "JSON object"),
    ];
    for (body, mentions) in refused {
        let reply = ask("r-secret", body).with_status(400);
        assert!(reply.detail().contains(mentions), "{body}: {reply:?}");
    }
}

#[test]
fn an_explanation_has_at_most_a_mebibyte() {
    let unmet = |id: usize| json!({"id": format!("r{id}"), "match": {"path": format!("/{id}"), "attributes": {"x": "y"}}, "per": [], "limit": "1/s"});
    let mut rules: Vec<Value> = (0..1_000).map(unmet).collect();
    rules.push(json!({"id": "last", "per": ["user_id"], "limit": "5/minute"}));
    let (_place, server) = serve(&json!(rules));
    let long = "ä".repeat(4_000);
    let body = asked(&json!({"path": format!("/{long}"), "user_id": long}));
    let reply = server.ask("POST /v1/explain", &body).with_status(200);
    assert!(reply.body.len() < 1 << 20, "{}", reply.body.len());
    let explained = reply.json();
    assert_eq!(explained["omitted"], 500);
    let listed = explained["rules"].as_array().unwrap();
    assert_eq!((listed.len(), &listed[500]["rule"]), (501, &json!("last")));
    let cut = format!("{}…", "ä".repeat(127));
    assert_eq!(listed[500]["key"]["user_id"], cut);
    let actual = listed[0]["failed"]["actual"].as_str().unwrap();
    assert_eq!(actual.chars().count(), 128, "{actual}");

    // Many that apply are listed as far as there is room.
    let applies =
        |id: usize| json!({"id": format!("r{id}"), "per": ["user_id"], "limit": "5/minute"});
    let rules: Vec<Value> = (0..6_000).map(applies).collect();
    let body = json!({ "rules": rules }).to_string();
    server.ask("PUT /v1/rules", &body).with_status(200);
    let body = asked(&json!({"user_id": "\u{1}".repeat(128)}));
    let reply = server.ask("POST /v1/explain", &body).with_status(200);
    assert!(reply.body.len() <= 1 << 20, "{}", reply.body.len());
    let explained = reply.json();
    let listed = explained["rules"].as_array().unwrap().len();
    assert_eq!(explained["omitted"], 6_000 - listed);
    assert!(listed > 100, "{listed}");
    let decision = &explained["decision"];
    let limits = decision["limits"].as_array().unwrap().len();
    assert_eq!(decision["omitted"], 6_000 - limits);
    assert!(limits > 100, "{limits}");
}
