//! Checking the text of a rule: problems with their positions, and nothing changes.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::Server;
use tidegate_testkit_server::TestFolder;

fn validate(server: &Server, text: &str) -> Value {
    let body = json!({ "text": text }).to_string();
    let reply = server.ask("POST /v1/rules/a/validate", &body);
    reply.with_status(200).json()
}

#[test]
fn the_problems_of_a_text_have_their_lines() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let text = "per: [ip]\nlimit: 10/minut\nmode: shadows\n";
    let found = validate(&server, text);
    assert_eq!(found["valid"], false);
    assert_eq!(
        (&found["rule"], &found["yaml"]),
        (&Value::Null, &Value::Null)
    );
    let problems = found["problems"].as_array().unwrap();
    let positions: Vec<_> = problems
        .iter()
        .map(|problem| (&problem["severity"], &problem["line"], &problem["field"]))
        .collect();
    let error = json!("error");
    assert_eq!(
        positions,
        [
            (&error, &json!(2), &json!("limit")),
            (&error, &json!(3), &json!("mode"))
        ]
    );
    assert!(
        problems[0]["message"].as_str().unwrap().contains("`minut`"),
        "{found}"
    );

    for (text, line) in [
        ("per: [ip\n", json!(2)),
        ("", Value::Null),
        ("- a", json!(1)),
        ("id: b\nper: []\nlimit: 1/s", json!(1)),
    ] {
        let found = validate(&server, text);
        assert_eq!(found["valid"], false, "{text}");
        assert_eq!(found["problems"][0]["line"], line, "{found}");
    }
    let rules = server.ask("GET /v1/rules", "").json();
    assert_eq!(rules, json!({"rules": [], "version": 0}), "nothing changes");
}

#[test]
fn a_valid_text_is_shown_as_it_would_be_stored() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let rule = json!({"id": "a", "per": ["user_id"], "limit": "10/minute"});
    for text in [
        "per: [user_id] # who\nlimit: 10/minute\n",
        &rule.to_string(),
    ] {
        let found = validate(&server, text);
        assert_eq!(found["valid"], true, "{found}");
        let mut shown = found["rule"].clone();
        assert!(
            shown
                .as_object_mut()
                .unwrap()
                .remove("worst_case")
                .is_some()
        );
        assert_eq!(shown, rule);
        assert_eq!(found["yaml"], "id: a\nper: [user_id]\nlimit: 10/minute\n");
        assert_eq!(found["problems"][0]["severity"], "warning", "{found}");
    }
    let put = server.ask("PUT /v1/rules/a", &rule.to_string());
    put.with_status(201);
}

#[test]
fn only_a_text_is_accepted() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    for body in ["{}", "[]", r#"{"text": 1}"#, r#"{"text": "", "more": 1}"#] {
        let reply = server.ask("POST /v1/rules/a/validate", body);
        reply.with_status(400).detail();
    }
    let text = r#"{"text": "per: []\nlimit: 1/s"}"#;
    let no_id = server.ask("POST /v1/rules/-a/validate", text);
    no_id.with_status(422).detail();
    let unknown = server.ask("POST /v1/rules/a/validate?x=1", text);
    unknown.with_status(400).detail();
    server.ask("GET /v1/rules/a/validate", "").with_status(405);
    server
        .ask("POST /v1/rules/history/validate", "{}")
        .with_status(405);
}

/// The most memory that this process has had, in MiB.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib / 1_024
}

#[test]
fn a_text_that_expands_to_much_takes_little_memory() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let key = "k".repeat(270_000);
    let aliases = vec!["*a"; 67_000].join(",");
    let by_keys = format!("x: &a {{? \"{key}\" : 1}}\nper: [{aliases}]\nlimit: 1/s\n");
    let mut by_values = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..8 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(",");
        writeln!(by_values, "a{level}: &a{level} [{aliases}]").unwrap();
    }
    // Each list has a name, and none is used.
    let mut nested = "x,".repeat(100_000);
    for level in 0..20 {
        nested = format!("&a{level} [{nested}]");
    }
    let nested = format!("per: {nested}\n# *\n");
    // The key is in the field of each problem.
    let problems = format!(
        "match: {{attributes: {{? \"{key}\" : [{}]}}}}\n",
        "[],".repeat(600)
    );
    let before = peak();
    #[rustfmt::skip]
    let table = [
        (by_keys,   "more than 8388608 (8 MiB)"),
        (by_values, "more than 8388608 (8 MiB)"),
        (nested,    ""),
        (problems,  ""),
    ];
    for (text, expected) in table {
        let found = validate(&server, &text);
        assert_eq!(found["valid"], false);
        let message = found["problems"][0]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
        let grown = peak() - before;
        assert!(grown < 150, "{grown} MiB for {} bytes", text.len());
    }
}
