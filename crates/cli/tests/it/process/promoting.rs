//! `tidegate rules promote` and `tidegate rules rollout` against a server: what is done, printed and exited with.

use serde_json::{Value, json};

use crate::server::ProgramFolder;

fn put(server: &crate::server::Server, rules: &Value) {
    let reply = server.ask("PUT /v1/rules", &rules.to_string());
    reply.with_status(200);
}

#[test]
fn a_candidate_goes_from_a_share_of_keys_to_the_limit() {
    let folder = ProgramFolder::new();
    let server = folder.serve(&[]);
    let url = server.url();
    put(
        &server,
        &json!({"rules": [
            {"id": "tried", "per": ["user_id"], "limit": "5/hour", "candidate": "1/hour"},
            {"id": "plain", "per": ["user_id"], "limit": "5/hour"},
        ]}),
    );
    let run = |line: &str| {
        let mut words: Vec<&str> = line.split(' ').collect();
        words.extend(["--server", &url]);
        folder.run(&words)
    };
    let check = json!({"attributes": {"user_id": "u1"}}).to_string();
    for _ in 0..3 {
        server.ask("POST /v1/check", &check).with_status(200);
    }

    let rolled = run("rules rollout tried 12.5%");
    assert_eq!(rolled.code, Some(0), "{rolled:?}");
    assert_eq!(rolled.stdout, "tried is rolled out to 12.5% of its keys\n");
    let rule = server.ask("GET /v1/rules/tried", "").json();
    assert_eq!(rule["rollout"], "12.5%");
    assert_eq!(run("rules rollout none 10%").code, Some(1));
    for refused in ["rules rollout tried 10", "rules rollout tried 101%"] {
        assert_eq!(run(refused).code, Some(2), "{refused}");
    }
    let listed = run("rules list").stdout;
    assert!(listed.contains("5/hour, candidate 1/hour"), "{listed}");
    assert!(listed.contains("enforce, candidate for 12.5%"), "{listed}");

    let preview = run("rules promote tried --dry-run");
    assert_eq!(preview.code, Some(0), "{preview:?}");
    for line in [
        "-    limit: 5/hour\n",
        "+    limit: 1/hour\n",
        "-    candidate: 1/hour\n",
        "-    rollout: 12.5%\n",
        "in the last 24 hours, of 3 requests: denied by what decided 0, by the candidate 2\n",
    ] {
        assert!(preview.stdout.contains(line), "{line}{}", preview.stdout);
    }
    let json = run("rules promote tried --dry-run --json").stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["last_24_hours"]["candidate_denied"], 2, "{json}");

    let promoted = run("rules promote tried");
    assert_eq!(
        (promoted.code, promoted.stdout.as_str()),
        (Some(0), "promoted tried\n")
    );
    let rule = server.ask("GET /v1/rules/tried", "").json();
    assert_eq!(rule["limit"], "1/hour");
    let again = run("rules promote tried");
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(
        again
            .stderr
            .contains("there is nothing to promote in rule `tried`"),
        "{again:?}"
    );
    let missing = run("rules promote none");
    assert_eq!(
        (missing.code, missing.stderr.as_str()),
        (Some(1), "there is no rule `none`\n")
    );
    let history = run("rules history").stdout;
    assert!(history.contains("promoted tried"), "{history}");
}

#[test]
fn rules_of_a_file_are_printed_as_they_have_to_be_written() {
    let folder = ProgramFolder::new();
    let rules = "rules:\n  - {id: tried, per: [user_id], missing: deny, limit: 5/hour, candidate: {algorithm: fixed_window}}\n  - {id: plain, per: [], limit: 5/hour}\n";
    folder.write("rules.yaml", rules);
    let server = folder.serve(&["--rules", "rules.yaml"]);
    let url = server.url();
    let run = |words: &[&str]| folder.run(&[words, &["--server", &url]].concat());
    let promoted = run(&["rules", "promote", "tried"]);
    assert_eq!(promoted.code, Some(2), "{promoted:?}");
    let lines = "rules:\n  - id: tried\n    per: [user_id]\n    missing: deny\n    limit: 5/hour\n    algorithm: fixed_window\n";
    assert_eq!(promoted.stdout, lines);
    assert!(
        promoted.stderr.contains("the rules come from the file"),
        "{promoted:?}"
    );
    let rolled = run(&["rules", "rollout", "tried", "10%"]);
    assert_eq!(rolled.code, Some(2), "{rolled:?}");
    assert!(rolled.stdout.ends_with("    rollout: 10%\n"), "{rolled:?}");
    assert_eq!(run(&["rules", "promote", "plain"]).code, Some(1));
}
