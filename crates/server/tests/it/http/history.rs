//! Earlier versions of the rules: read, compared, previewed and brought back.

use serde_json::{Value, json};
use tidegate_testkit_server::{PATIENCE, TestFolder};

use crate::Server;

fn rule(id: &str, limit: &str) -> Value {
    json!({"id": id, "per": ["ip"], "limit": limit})
}

/// Three versions: `a` is added, `a` is changed, `b` is added and `a` removed.
fn change_three_times(server: &Server) {
    let sets = [
        json!({"rules": [rule("a", "1/second")]}),
        json!({"rules": [rule("a", "2/second")]}),
        json!({"rules": [rule("b", "3/second")]}),
    ];
    for set in sets {
        server
            .ask("PUT /v1/rules", &set.to_string())
            .with_status(200);
    }
}

/// Reads and compares versions. For the data directory and for Redis.
pub(crate) fn read_and_compare(server: &Server) {
    change_three_times(server);
    let get = |call: &str| server.ask(&format!("GET {call}"), "");
    let second = get("/v1/rules/history/2").with_status(200).json();
    assert_eq!(second["rules"], json!([rule("a", "2/second")]));
    assert_eq!(second["version"], 2);
    assert_eq!(second["by"], "admin-token");
    assert_eq!(second["changes"], json!(["changed a"]));
    let rows = get("/v1/rules/history").json();
    assert_eq!(rows["history"][1]["at"], second["at"]);

    let diff = get("/v1/rules/diff?from=1&to=2").with_status(200).json();
    let changed =
        json!([{"rule": "a", "before": rule("a", "1/second"), "after": rule("a", "2/second")}]);
    let text = "--- version 1\n+++ version 2\n@@ -1,4 +1,4 @@ rule a\n rules:\n   - id: a\n     per: [ip]\n-    limit: 1/second\n+    limit: 2/second\n";
    let expected = json!({"from": 1, "to": 2, "added": [], "removed": [], "changed": changed, "order": null, "text": text});
    assert_eq!(diff, expected);

    // By default: what the last change did.
    let last = get("/v1/rules/diff").with_status(200).json();
    assert_eq!((&last["from"], &last["to"]), (&json!(2), &json!(3)));
    assert_eq!(last["added"], json!([rule("b", "3/second")]));
    assert_eq!(last["removed"], json!([rule("a", "2/second")]));
    assert_eq!(get("/v1/rules/diff?from=2").json(), last);
    let first = get("/v1/rules/diff?to=1").with_status(200).json();
    assert_eq!((&first["from"], &first["changed"]), (&json!(0), &json!([])));
    assert_eq!(first["added"], json!([rule("a", "1/second")]));
    let back = get("/v1/rules/diff?from=3&to=0").with_status(200).json();
    assert_eq!(back["removed"], json!([rule("b", "3/second")]));
    let same = get("/v1/rules/diff?from=2&to=2").with_status(200).json();
    assert_eq!((&same["changed"], &same["text"]), (&json!([]), &json!("")));

    for call in [
        "/v1/rules/history/77",
        "/v1/rules/history/0",
        "/v1/rules/diff?from=77",
        "/v1/rules/diff?from=1&to=77",
    ] {
        let unknown = get(call).with_status(404).detail();
        assert!(unknown.contains("kept: 1 to 3"), "{call}: {unknown}");
    }
    for call in [
        "/v1/rules/history/last",
        "/v1/rules/history/2?a=b",
        "/v1/rules/diff?from=one",
        "/v1/rules/diff?from=-1",
        "/v1/rules/diff?from=1&from=2",
        "/v1/rules/diff?form=1",
    ] {
        get(call).with_status(400).detail();
    }
}

/// A preview changes nothing, and what was previewed is done or refused. `change` is made by another caller.
pub(crate) fn preview_and_roll_back(server: &Server, change: impl Fn(&str)) {
    change_three_times(server);
    let rollback = |body: &Value, headers: &[(&str, &str)]| {
        server.ask_with("POST /v1/rules/rollback", headers, &body.to_string())
    };
    let all = || {
        let rules = server.ask("GET /v1/rules", "");
        (rules.json(), server.ask("GET /v1/rules/history", "").json())
    };
    let before = all();
    let dry = json!({"version": 1, "dry_run": true});
    let preview = rollback(&dry, &[]).with_status(200);
    let tag = preview.header("etag").unwrap().to_owned();
    let diff = server.ask("GET /v1/rules/diff?from=3&to=1", "").json();
    assert_eq!(preview.json(), diff);
    for (body, status) in [
        (json!({"version": 77, "dry_run": true}), 404),
        (json!({"version": 1, "dry_run": "yes"}), 400),
        (json!({"version": 1, "dry_run": null}), 400),
        (json!({"version": 1, "dryrun": true}), 400),
    ] {
        rollback(&body, &[]).with_status(status).detail();
    }
    rollback(&dry, &[("if-match", "\"0\"")]).with_status(412);
    rollback(&dry, &[("if-match", &tag)]).with_status(200);
    assert_eq!(all(), before, "a preview changes nothing");

    change("9/second");
    let body = json!({"version": 1});
    let stale = rollback(&body, &[("if-match", &tag)]).with_status(412);
    assert!(stale.detail().contains("read it again"), "{stale:?}");
    rollback(&dry, &[("if-match", &tag)]).with_status(412);
    let preview = rollback(&dry, &[]).with_status(200);
    assert_eq!(preview.json()["removed"], json!([rule("b", "9/second")]));
    let tag = preview.header("etag").unwrap();
    let done = rollback(&body, &[("if-match", tag)]).with_status(200);
    assert_eq!(done.written()["rules"], json!([rule("a", "1/second")]));
    assert_eq!(done.json()["version"], 5);
}

#[test]
fn versions_in_the_data_directory_are_read_and_compared() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let none = server.ask("GET /v1/rules/diff", "").with_status(200).json();
    assert_eq!((&none["from"], &none["to"]), (&json!(0), &json!(0)));
    let unknown = server.ask("GET /v1/rules/history/1", "").with_status(404);
    assert!(unknown.detail().contains("kept: none"), "{unknown:?}");
    read_and_compare(&server);
}

#[test]
fn a_rollback_is_previewed_and_refused_if_the_rules_have_changed_since() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    preview_and_roll_back(&server, |limit| {
        let body = rule("b", limit).to_string();
        server.ask("PUT /v1/rules/b", &body).with_status(200);
    });
}

#[test]
fn of_rollbacks_with_the_same_tag_at_the_same_time_one_is_done() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    change_three_times(&server);
    let tag = server.ask("GET /v1/rules", "");
    let headers = [("if-match", tag.header("etag").unwrap())];
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let ask = || {
            let body = r#"{"version": 1}"#;
            let reply = server.ask_with("POST /v1/rules/rollback", &headers, body);
            reply.status
        };
        let asking: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        asking
            .into_iter()
            .map(|asked| asked.join().unwrap())
            .collect()
    });
    let done = statuses.iter().filter(|status| **status == 200).count();
    let stale = statuses.iter().filter(|status| **status == 412).count();
    assert_eq!((done, stale), (1, 7), "{statuses:?}");
}

#[test]
fn a_version_that_is_no_longer_kept_is_404_and_the_detail_lists_the_others() {
    let folder = TestFolder::new();
    folder.write("tidegate.yaml", "history: 2\n");
    let server = folder.serve(&["--config", "tidegate.yaml"]);
    change_three_times(&server);
    for call in [
        "GET /v1/rules/history/1",
        "GET /v1/rules/diff?from=1",
        "GET /v1/rules/diff?to=2",
    ] {
        let gone = server.ask(call, "").with_status(404).detail();
        assert!(gone.contains("kept: 2 to 3"), "{call}: {gone}");
    }
    let body = r#"{"version": 1, "dry_run": true}"#;
    let gone = server.ask("POST /v1/rules/rollback", body).with_status(404);
    assert!(gone.detail().contains("kept: 2 to 3"), "{gone:?}");
}

#[test]
fn versions_of_a_file_are_compared_and_not_brought_back() {
    let folder = TestFolder::new();
    let rules = |limit: &str| format!("rules:\n  - {{id: a, per: [ip], limit: {limit}}}\n");
    folder.write("rules.yaml", &rules("1/second"));
    let server = folder.serve(&["--rules", "rules.yaml"]);
    folder.write("rules.yaml", &rules("2/second"));
    server.reload();
    tidegate_testkit::wait_until("the new rules", PATIENCE, || {
        let version = &server.ask("GET /v1/rules", "").json()["version"];
        (*version == 2).then_some(())
    });
    let first = server.ask("GET /v1/rules/history/1", "").with_status(200);
    assert_eq!(first.json()["rules"], json!([rule("a", "1/second")]));
    let diff = server.ask("GET /v1/rules/diff", "").with_status(200).json();
    assert_eq!(diff["changed"][0]["after"], rule("a", "2/second"));
    for dry_run in [true, false] {
        let body = json!({"version": 1, "dry_run": dry_run}).to_string();
        let refused = server
            .ask("POST /v1/rules/rollback", &body)
            .with_status(409);
        assert!(
            refused.detail().contains("change that instead"),
            "{refused:?}"
        );
    }
}

#[test]
fn the_call_for_differences_is_not_a_rule() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let body = rule("diff", "1/second").to_string();
    server.ask("POST /v1/rules", &body).with_status(422);
    let refused = server.ask("DELETE /v1/rules/diff", "").with_status(405);
    assert_eq!(refused.header("allow"), Some("GET, HEAD"));
}

#[test]
fn versions_with_much_text_are_not_compared() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    for count in [1, 300] {
        let values: Vec<String> = (0..count).map(|index| format!("{index:0>8000}")).collect();
        let rule =
            json!({"id": "a", "match": {"attributes": {"x": values}}, "per": [], "limit": "1/s"});
        let body = json!({ "rules": [rule] }).to_string();
        server.ask("PUT /v1/rules", &body).with_status(200);
    }
    let diff = server
        .ask("GET /v1/rules/diff?from=0&to=1", "")
        .with_status(200);
    assert!(diff.json()["text"].as_str().unwrap().contains("+  - id: a"));
    for call in [
        "GET /v1/rules/diff?from=1&to=2",
        "GET /v1/rules/diff?from=2&to=1",
    ] {
        let refused = server.ask(call, "").with_status(422);
        let detail = refused.detail();
        assert!(
            detail.starts_with("version 2 has more than 2097152 bytes (2 MiB) of text"),
            "{detail}"
        );
    }
}
