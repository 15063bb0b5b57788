//! Candidates and rollouts through the API: answers, explanations, metrics, activity, and their promotion.

use serde_json::{Value, json};
use tidegate_testkit_server::TestFolder;

use crate::Server;
use crate::redis::shared::check;

const RULES: &str = "
rules:
  - {id: per-user, per: [user_id], limit: 3/hour, candidate: 1/hour}
  - {id: plain, match: {path: /plain}, per: [user_id], limit: 3/hour}
";

fn serve(folder: &TestFolder) -> Server {
    folder.write("rules.yaml", RULES);
    folder.serve(&["--rules", "rules.yaml"])
}

fn get(server: &Server, call: &str) -> Value {
    let reply = server.ask(&format!("GET {call}"), "");
    reply.with_status(200).json()
}

#[test]
fn an_answer_has_the_candidate_after_the_limit_and_nothing_else_of_it() {
    let folder = TestFolder::new();
    let server = serve(&folder);
    let user = json!({"user_id": "u1"});
    check(&server, &user).with_status(200);
    let second = check(&server, &user).with_status(200).json();
    assert_eq!(
        (&second["limit"], &second["remaining"]),
        (&json!(3), &json!(1))
    );
    let limits = second["limits"].as_array().unwrap();
    assert_eq!(limits.len(), 2, "{second}");
    assert!(limits[0].get("candidate").is_none());
    assert_eq!(limits[1]["candidate"], true);
    assert_eq!(
        (&limits[0]["shadow"], &limits[1]["shadow"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(
        (&limits[1]["allowed"], &limits[1]["reason"]),
        (&json!(false), &json!("over_limit"))
    );
    let batch = json!({"checks": [{"attributes": user}]}).to_string();
    let batch = server
        .ask("POST /v1/check/batch", &batch)
        .with_status(200)
        .json();
    assert_eq!(
        batch["decisions"][0]["limits"][1]["candidate"], true,
        "{batch}"
    );
    let reset = json!({"attributes": user, "rule": "per-user"}).to_string();
    let reset = server.ask("POST /v1/reset", &reset).with_status(200).json();
    assert_eq!(reset["reset"].as_array().unwrap().len(), 1, "{reset}");
    let fresh = check(&server, &user).with_status(200).json();
    assert_eq!(fresh["limits"][1]["allowed"], true);
}

#[test]
fn explanations_have_the_candidate_and_the_rollout() {
    let folder = TestFolder::new();
    folder.write(
        "rules.yaml",
        &RULES.replace("candidate: 1/hour", "candidate: 1/hour, rollout: 100%"),
    );
    let server = folder.serve(&["--rules", "rules.yaml"]);
    let body = json!({"attributes": {"user_id": "u1", "path": "/plain"}}).to_string();
    let explained = server
        .ask("POST /v1/explain", &body)
        .with_status(200)
        .json();
    let rule = &explained["rules"][0];
    assert_eq!(rule["rollout"], json!({"percent": 100.0, "in": true}));
    let candidate = &rule["candidate"];
    assert_eq!(candidate["decides"], true);
    assert_eq!(
        candidate["grant"],
        json!({"from": "limit", "value": "1/hour"})
    );
    assert_eq!(candidate["limits"][0]["candidate"], true);
    assert_eq!(rule["limits"][0]["shadow"], true);
    assert_eq!(explained["rules"][1]["candidate"], Value::Null);
    assert_eq!(explained["rules"][1]["rollout"], Value::Null);
    assert_eq!(explained["decision"]["limit"], 1);
}

#[test]
fn metrics_count_what_the_candidate_says_and_changes() {
    let folder = TestFolder::new();
    folder.write(
        "rules.yaml",
        &[
            RULES,
            "  - {id: out, per: [user_id], limit: 1/hour, rollout: 0%}\n",
        ]
        .concat(),
    );
    let server = folder.serve(&["--rules", "rules.yaml"]);
    let count = |name: &str| {
        let metrics = server.ask("GET /metrics", "").body;
        let line = metrics.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {metrics}"));
        line.rsplit_once(' ').unwrap().1.to_owned()
    };
    let decisions = |rule: &str, verdict: &str| {
        count(&format!(
            r#"tidegate_decisions_total{{rule="{rule}",front_end="http",verdict="{verdict}"}}"#
        ))
    };
    assert_eq!(decisions("per-user", "candidate_denied"), "0");
    for _ in 0..4 {
        check(&server, &json!({"user_id": "u1"}));
    }
    for (rule, verdict, expected) in [
        ("per-user", "allowed", "3"),
        ("per-user", "denied", "1"),
        ("per-user", "candidate_allowed", "1"),
        ("per-user", "candidate_denied", "3"),
        ("out", "shadow_allowed", "1"),
        ("out", "shadow_denied", "3"),
        ("out", "denied", "0"),
    ] {
        assert_eq!(decisions(rule, verdict), expected, "{rule} {verdict}");
    }
    let change = |name: &str| {
        count(&format!(
            r#"tidegate_candidate_changes_total{{rule="per-user",change="{name}"}}"#
        ))
    };
    assert_eq!(
        (change("newly_denied"), change("newly_allowed")),
        ("2".into(), "0".into())
    );
    assert_eq!(count(r#"tidegate_rollout_ratio{rule="out"}"#), "0.0");
    let metrics = server.ask("GET /metrics", "").body;
    assert!(!metrics.contains(r#"rule="plain",front_end="http",verdict="candidate"#));
    assert!(!metrics.contains(r#"rule="plain",front_end="http",verdict="shadow"#));
}

#[test]
fn activity_has_what_the_candidate_denied_and_whom() {
    let folder = TestFolder::new();
    let server = serve(&folder);
    for (user, times) in [("u1", 5), ("u2", 2), ("u3", 1)] {
        for _ in 0..times {
            check(&server, &json!({"user_id": user, "path": "/plain"}));
        }
    }
    let sum = |series: &Value| -> u64 {
        let counts = series.as_array().unwrap();
        counts.iter().map(|count| count.as_u64().unwrap()).sum()
    };
    let activity = get(&server, "/v1/activity");
    let rules = activity["rules"].as_array().unwrap();
    let names: Vec<&str> = rules
        .iter()
        .map(|rule| rule["rule"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["per-user", "plain"]);
    assert_eq!(sum(&rules[0]["candidate_denied"]), 5);
    assert_eq!(sum(&rules[0]["denied"]), 2);
    assert_eq!(sum(&rules[1]["candidate_denied"]), 0);
    assert_eq!(sum(&activity["total"]["candidate_denied"]), 5);
    assert_eq!(sum(&activity["total"]["denied"]), 2);

    let keys = get(&server, "/v1/rules/per-user/keys?sort=candidate_denied");
    let listed: Vec<(&Value, &Value, &Value)> = keys["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| {
            (
                &key["key"]["user_id"],
                &key["candidate_denied"],
                &key["denied"],
            )
        })
        .collect();
    let expected = [
        (&json!("u1"), &json!(4), &json!(2)),
        (&json!("u2"), &json!(1), &json!(0)),
    ];
    assert_eq!(listed, expected, "{keys}");
    assert_eq!(
        (&keys["total"], &keys["distinct_denied"]),
        (&json!(5), &json!(2))
    );
    assert_eq!(keys["keys"][0]["last"]["rule"], "per-user", "{keys}");
    let denied = get(&server, "/v1/rules/per-user/keys?sort=denied");
    assert!(denied["keys"][0].get("candidate_denied").is_none());
    let clients = get(&server, "/v1/clients").to_string();
    assert!(!clients.contains('~'), "{clients}");
    let samples = get(&server, "/v1/denied").to_string();
    assert!(!samples.contains('~'), "{samples}");
    let unknown = server.ask("GET /v1/rules/per-user/keys?sort=candidate", "");
    assert!(
        unknown
            .with_status(400)
            .detail()
            .contains("`candidate_denied`")
    );
}

#[test]
fn a_candidate_is_promoted_in_one_change() {
    let folder = TestFolder::new();
    let server = folder.serve(&["--data-dir", "data"]);
    let rules = json!({"rules": [
        {"id": "a", "per": ["user_id"], "limit": "5/hour", "candidate": "2/hour", "rollout": "25%"},
        {"id": "b", "per": ["user_id"], "limit": "5/hour", "rollout": "25%", "description": "b"},
        {"id": "c", "per": ["user_id"], "limit": "5/hour", "mode": "shadow"},
        {"id": "d", "per": ["user_id"], "limit": "5/hour"},
    ]});
    server
        .ask("PUT /v1/rules", &rules.to_string())
        .with_status(200);
    check(&server, &json!({"user_id": "u1"})).with_status(200);
    let promote = |id: &str, headers: &[(&str, &str)], body: &str| {
        server.ask_with(&format!("POST /v1/rules/{id}/promote"), headers, body)
    };

    let preview = promote("a", &[], r#"{"dry_run": true}"#).with_status(200);
    let tag = preview.header("etag").unwrap().to_owned();
    let diff = preview.json();
    assert_eq!((&diff["from"], &diff["to"]), (&json!(1), &json!(2)));
    assert_eq!(diff["changed"][0]["rule"], "a");
    let text = diff["text"].as_str().unwrap();
    for line in [
        "-    limit: 5/hour\n",
        "+    limit: 2/hour\n",
        "-    candidate: 2/hour\n",
        "-    rollout: 25%\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert_eq!(
        get(&server, "/v1/rules/a")["limit"],
        "5/hour",
        "nothing is changed"
    );

    promote("a", &[("If-Match", "\"other\"")], "{}").with_status(412);
    let promoted = promote("a", &[("If-Match", &tag)], "{}")
        .with_status(200)
        .json();
    assert_eq!(promoted["limit"], "2/hour");
    assert!(promoted.get("candidate").is_none() && promoted.get("rollout").is_none());
    let history = get(&server, "/v1/rules/history");
    assert_eq!(history["history"][0]["changes"], json!(["promoted a"]));
    // What was used of the limit stays used.
    let next = check(&server, &json!({"user_id": "u1"}))
        .with_status(200)
        .json();
    assert_eq!(
        (&next["limits"][0]["limit"], &next["limits"][0]["remaining"]),
        (&json!(2), &json!(0))
    );

    let rolled = promote("b", &[], "{}").with_status(200).json();
    assert!(rolled.get("rollout").is_none() && rolled["limit"] == "5/hour");
    assert_eq!(rolled["description"], "b");
    let enforced = promote("c", &[], "{}").with_status(200).json();
    assert!(enforced.get("mode").is_none());
    for id in ["a", "b", "c", "d"] {
        let nothing = promote(id, &[], "{}").with_status(422).detail();
        assert!(nothing.contains("nothing to promote"), "{nothing}");
        promote(id, &[], r#"{"dry_run": true}"#).with_status(422);
    }
    promote("e", &[], "{}").with_status(404);
    promote("d", &[], r#"{"dryrun": true}"#).with_status(400);
    assert_eq!(get(&server, "/v1/rules")["version"], 4);
}

#[test]
fn rules_of_a_file_are_not_promoted() {
    let folder = TestFolder::new();
    let server = serve(&folder);
    for id in ["per-user", "plain", "none"] {
        let refused = server
            .ask(&format!("POST /v1/rules/{id}/promote"), "{}")
            .with_status(409);
        assert!(refused.detail().contains("rules.yaml"), "{refused:?}");
    }
}

#[test]
fn a_rollout_has_the_same_keys_after_a_restart() {
    let folder = TestFolder::new();
    let arguments = ["--data-dir", "data"];
    let server = folder.serve(&arguments);
    let rule = json!({"rules": [{"id": "a", "per": ["user_id"], "limit": "1000/day", "candidate": "1/day", "rollout": "40%"}]});
    server
        .ask("PUT /v1/rules", &rule.to_string())
        .with_status(200);
    let cohort = |server: &Server| -> Vec<bool> {
        let limit = |user: u32| {
            let reply = check(server, &json!({"user_id": format!("u{user}")})).json();
            reply["limit"] == 1
        };
        (0..60).map(limit).collect()
    };
    let before = cohort(&server);
    assert!(before.iter().any(|is_in| *is_in) && !before.iter().all(|is_in| *is_in));
    server.stop();
    let server = folder.serve(&arguments);
    assert_eq!(cohort(&server), before);
}
