//! Rules through the API: made, read, changed, removed, taken back, and kept over a restart.

use serde_json::{Value, json};

use tidegate_testkit_server::ClientReply;
use tidegate_testkit_server::TestFolder;

fn rule(id: &str, limit: &str) -> Value {
    json!({"id": id, "per": ["ip"], "limit": limit})
}

fn text(id: &str, limit: &str) -> String {
    rule(id, limit).to_string()
}

fn tag(reply: &ClientReply) -> String {
    reply.header("etag").unwrap().to_owned()
}

#[test]
fn a_rule_is_created_read_changed_and_removed() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let mut client = server.client();
    let created = client
        .ask("POST /v1/rules", &text("per-ip", "10/minute"))
        .with_status(201);
    assert_eq!(created.header("location"), Some("/v1/rules/per-ip"));
    assert_eq!(created.written(), rule("per-ip", "10/minute"));

    let read = client.ask("GET /v1/rules/per-ip", "").with_status(200);
    assert_eq!(read.json(), created.json());
    assert_eq!(tag(&read), tag(&created));

    let changed = client
        .ask("PUT /v1/rules/per-ip", &text("per-ip", "20/minute"))
        .with_status(200);
    assert_eq!(changed.header("location"), None);
    assert_ne!(tag(&changed), tag(&created));
    let checked = client.ask("POST /v1/check", r#"{"attributes": {"ip": "1.2.3.4"}}"#);
    assert_eq!(checked.json()["limit"], 20);

    let made = client
        .ask("PUT /v1/rules/all", &text("all", "5/second"))
        .with_status(201);
    assert_eq!(made.header("location"), Some("/v1/rules/all"));

    let removed = client.ask("DELETE /v1/rules/per-ip", "").with_status(204);
    assert_eq!(removed.body, "");
    for call in ["GET /v1/rules/per-ip", "DELETE /v1/rules/per-ip"] {
        let missing = client.ask(call, "").with_status(404);
        assert_eq!(missing.detail(), "there is no rule `per-ip`", "{call}");
    }
    let left = client.ask("GET /v1/rules", "").written();
    assert_eq!(left["rules"], json!([rule("all", "5/second")]));
}

#[test]
fn what_a_caller_has_already_is_304() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    server
        .ask("POST /v1/rules", &text("a", "1/second"))
        .with_status(201);
    for call in ["GET /v1/rules", "GET /v1/rules/a"] {
        let first = server.ask(call, "").with_status(200);
        let tag = tag(&first);
        let weak = format!("W/{tag}");
        let several = format!("\"other\", {tag}");
        for known in [tag.as_str(), &weak, &several, "*"] {
            let same = server
                .ask_with(call, &[("if-none-match", known)], "")
                .with_status(304);
            assert_eq!(same.header("etag"), Some(tag.as_str()), "{known}");
            assert_eq!(same.body, "");
        }
        server
            .ask_with(call, &[("if-none-match", "\"other\"")], "")
            .with_status(200);
    }
    let before = tag(&server.ask("GET /v1/rules", ""));
    server
        .ask("PUT /v1/rules/a", &text("a", "2/second"))
        .with_status(200);
    let after = server
        .ask_with("GET /v1/rules", &[("if-none-match", &before)], "")
        .with_status(200);
    assert_ne!(tag(&after), before);
    server
        .ask_with("GET /v1/rules/none", &[("if-none-match", "*")], "")
        .with_status(404);
}

#[test]
fn a_second_rule_with_the_same_id_is_a_conflict() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    server
        .ask("POST /v1/rules", &text("a", "1/second"))
        .with_status(201);
    let refused = server
        .ask("POST /v1/rules", &text("a", "2/second"))
        .with_status(409);
    assert!(
        refused.detail().contains("change it with PUT"),
        "{refused:?}"
    );
    assert_eq!(
        server.ask("GET /v1/rules/a", "").json()["limit"],
        "1/second"
    );
}

#[test]
fn a_change_of_something_that_has_changed_since_is_refused() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let mut client = server.client();
    let first = client.ask("POST /v1/rules", &text("a", "1/second"));
    let first_set = tag(&client.ask("GET /v1/rules", ""));
    let old = tag(&first);
    let with =
        |call: &str, tag: &str, body: &str| server.ask_with(call, &[("if-match", tag)], body);
    let second = with("PUT /v1/rules/a", &old, &text("a", "2/second")).with_status(200);

    let stale = with("PUT /v1/rules/a", &old, &text("a", "3/second")).with_status(412);
    assert!(stale.detail().contains("read it again"), "{stale:?}");
    with("DELETE /v1/rules/a", &old, "")
        .with_status(412)
        .detail();
    let set = json!({"rules": [rule("b", "1/second")]}).to_string();
    with("PUT /v1/rules", &first_set, &set)
        .with_status(412)
        .detail();
    with("POST /v1/rules/rollback", &first_set, r#"{"version": 1}"#)
        .with_status(412)
        .detail();
    with("PUT /v1/rules/new", "*", &text("new", "1/second"))
        .with_status(412)
        .detail();
    let absent = [("if-none-match", "*")];
    server
        .ask_with("PUT /v1/rules/a", &absent, &text("a", "4/second"))
        .with_status(412)
        .detail();
    assert_eq!(tag(&client.ask("GET /v1/rules/a", "")), tag(&second));

    let several = format!("\"0\", {}", tag(&second));
    with("PUT /v1/rules/a", &several, &text("a", "5/second")).with_status(200);
    let current = tag(&client.ask("GET /v1/rules", ""));
    with("PUT /v1/rules", &current, &set).with_status(200);
    with("DELETE /v1/rules/b", "*", "").with_status(204);
}

#[test]
fn all_problems_of_a_rule_are_reported_together_by_field() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let bad = json!({"id": "a", "per": ["ip"], "limit": "10/fortnight", "algorithm": "magic", "colour": "red"});
    for (call, body) in [
        ("POST /v1/rules", bad.clone()),
        ("PUT /v1/rules/a", bad.clone()),
        (
            "PUT /v1/rules",
            json!({"rules": [rule("b", "1/second"), bad]}),
        ),
    ] {
        let refused = server.ask(call, &body.to_string()).with_status(422);
        refused.detail();
        let problems = refused.json()["problems"].as_array().unwrap().clone();
        let mut fields: Vec<&str> = problems
            .iter()
            .inspect(|problem| assert_eq!(problem["rule"], "a", "{call}"))
            .inspect(|problem| assert_ne!(problem["message"], "", "{call}"))
            .map(|problem| problem["field"].as_str().unwrap())
            .collect();
        fields.sort_unstable();
        assert_eq!(fields, ["algorithm", "colour", "limit"], "{call}");
    }
    let set = server.ask("GET /v1/rules", "").json();
    assert_eq!(set, json!({"rules": [], "version": 0}));
}

#[test]
fn the_id_in_the_path_and_in_the_body_must_be_one() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let refused = server
        .ask("PUT /v1/rules/a", &text("b", "1/second"))
        .with_status(422);
    let detail = refused.detail();
    assert!(detail.contains("`a`") && detail.contains("`b`"), "{detail}");
    for id in ["history", "rollback", "-a", "a/b"] {
        let refused = server
            .ask("POST /v1/rules", &text(id, "1/second"))
            .with_status(422);
        assert_eq!(refused.json()["problems"][0]["field"], "id", "{refused:?}");
    }
}

#[test]
fn a_whole_set_is_replaced_or_nothing_is() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let good = json!({"rules": [rule("a", "1/second"), rule("b", "2/second")]});
    let first = server
        .ask("PUT /v1/rules", &good.to_string())
        .with_status(200);
    assert_eq!(
        first.written(),
        json!({"rules": good["rules"], "version": 1})
    );
    let twice = [rule("c", "1/second"), rule("c", "1/second")];
    for (bad, status) in [
        (
            json!({"rules": [rule("c", "1/second"), rule("d", "0/second")]}),
            422,
        ),
        (json!({ "rules": twice }), 409),
        (json!({"rules": [rule("c", "1/second")], "rule": []}), 422),
        (json!([rule("c", "1/second")]), 400),
    ] {
        server
            .ask("PUT /v1/rules", &bad.to_string())
            .with_status(status)
            .detail();
        assert_eq!(server.ask("GET /v1/rules", "").json(), first.json());
    }
    let same = server
        .ask("PUT /v1/rules", &good.to_string())
        .with_status(200);
    assert_eq!(same.json(), first.json(), "no change is no new version");
}

#[test]
fn the_history_lists_each_change_and_a_rollback_is_one_of_them() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let mut client = server.client();
    client
        .ask("POST /v1/rules", &text("a", "1/second"))
        .with_status(201);
    client
        .ask("PUT /v1/rules/a", &text("a", "2/second"))
        .with_status(200);
    client
        .ask("POST /v1/rules", &text("b", "3/second"))
        .with_status(201);
    client.ask("DELETE /v1/rules/a", "").with_status(204);

    let back = client
        .ask("POST /v1/rules/rollback", r#"{"version": 1}"#)
        .with_status(200)
        .written();
    assert_eq!(
        back,
        json!({"rules": [rule("a", "1/second")], "version": 5})
    );
    let unknown = client
        .ask("POST /v1/rules/rollback", r#"{"version": 77}"#)
        .with_status(404);
    assert!(
        unknown.detail().contains("/v1/rules/history"),
        "{unknown:?}"
    );

    let history = client
        .ask("GET /v1/rules/history", "")
        .with_status(200)
        .json();
    let rows = history["history"].as_array().unwrap();
    let found: Vec<(u64, Value)> = rows
        .iter()
        .inspect(|row| assert_eq!(row["by"], "admin-token"))
        .inspect(|row| assert!(row["at"].as_str().unwrap().ends_with('Z'), "{row}"))
        .map(|row| (row["version"].as_u64().unwrap(), row["changes"].clone()))
        .collect();
    let expected = [
        (
            5,
            json!(["rolled back to version 1", "added a", "removed b"]),
        ),
        (4, json!(["removed a"])),
        (3, json!(["added b"])),
        (2, json!(["changed a"])),
        (1, json!(["added a"])),
    ];
    assert_eq!(found, expected);
}

#[test]
fn rules_history_and_tags_outlive_the_server() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let odd = json!({"id": "odd", "per": ["user_id"], "missing": "deny", "limit": {"requests": 5, "window": "60s"},
        "overrides": {"007": "blocked", "yes": "5/minute"}});
    server
        .ask("POST /v1/rules", &odd.to_string())
        .with_status(201);
    server
        .ask("POST /v1/rules", &text("b", "1/second"))
        .with_status(201);
    let read = |server: &crate::Server| {
        let set = server.ask("GET /v1/rules", "");
        let history = server.ask("GET /v1/rules/history", "").json();
        (set.written(), tag(&set), history)
    };
    let before = read(&server);
    assert_eq!(before.0["rules"][0], odd, "as it was written");
    server.kill();
    let server = folder.serve(&[]);
    assert_eq!(read(&server), before);
    let back = server.ask("POST /v1/rules/rollback", r#"{"version": 1}"#);
    assert_eq!(back.with_status(200).json()["version"], 3);
}

#[test]
fn rules_of_a_file_are_not_changed_through_the_api() {
    let folder = TestFolder::new();
    folder.write(
        "rules.yaml",
        "rules:\n  - {id: a, per: [ip], limit: 5/minute}\n",
    );
    let server = folder.serve(&["--rules", "rules.yaml"]);
    let set = json!({"rules": []}).to_string();
    for (call, body) in [
        ("PUT /v1/rules", set.as_str()),
        ("POST /v1/rules", &text("b", "1/second")),
        ("PUT /v1/rules/a", &text("a", "1/second")),
        ("DELETE /v1/rules/a", ""),
        ("DELETE /v1/rules/unknown", ""),
        ("POST /v1/rules/rollback", r#"{"version": 1}"#),
    ] {
        let refused = server.ask(call, body).with_status(409);
        assert!(
            refused
                .detail()
                .contains("rules.yaml`; change that instead"),
            "{call}: {refused:?}"
        );
    }
    let rules = server.ask("GET /v1/rules", "").written();
    assert_eq!(rules["rules"], json!([rule("a", "5/minute")]));
    assert!(!folder.path("data/rules").exists(), "no rules are kept");
}
