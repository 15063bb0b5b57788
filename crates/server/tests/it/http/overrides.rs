//! Temporary overrides: who gets what until when, what is kept of them, and what is refused.

use std::path::Path;

use serde_json::{Value, json};
use tidegate_testkit::wait_until;
use tidegate_testkit_server::{ClientReply, PATIENCE, TestFolder};

use crate::Server;

const RULES: &str = "
rules:
  - {id: per-user, per: [user_id], limit: 1/day, algorithm: fixed_window, tiers: {pro: 2/day}, overrides: {vip: 3/day}}
  - {id: per-ip, match: {path: /ip}, per: [ip], limit: blocked}
  - {id: per-key, match: {path: /key}, per: [api_key], limit: blocked}
  - {id: all, match: {path: /all}, per: [], limit: 5/hour}
  - {id: moving, match: {path: /moving}, per: [user_id], algorithm: concurrency, adaptive: {min: 1, max: 9}}
";

fn serve(folder: &TestFolder, arguments: &[&str]) -> Server {
    folder.write("rules.yaml", RULES);
    folder.serve(&[&["--rules", "rules.yaml"], arguments].concat())
}

fn check(server: &Server, attributes: &Value, at: Option<&Value>) -> ClientReply {
    let mut body = json!({ "attributes": attributes });
    if let Some(at) = at {
        body["timestamp"] = at.clone();
    }
    server.ask("POST /v1/check", &body.to_string())
}

fn put(server: &Server, rule: &str, body: &Value) -> ClientReply {
    server.ask(
        &format!("POST /v1/rules/{rule}/overrides"),
        &body.to_string(),
    )
}

fn listed(server: &Server, path: &str) -> Vec<Value> {
    let reply = server.ask(&format!("GET {path}"), "").with_status(200);
    reply.json()["overrides"].as_array().unwrap().clone()
}

/// All that is in the files below a folder.
fn contents(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &contents(&path);
        } else {
            text += &String::from_utf8_lossy(&std::fs::read(path).unwrap());
        }
    }
    text
}

/// Micros of a time as text, and back as Unix seconds.
fn seconds(time: &str, later: i64) -> Value {
    let time: jiff::Timestamp = time.parse().unwrap();
    let micros = time.as_microsecond() + later;
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_denied_client_passes_until_the_microsecond_in_which_its_override_ends() {
    let folder = TestFolder::new();
    let server = serve(&folder, &["--trust-timestamps"]);
    let u1 = json!({"user_id": "u1", "tier": "pro"});
    let body = json!({"key": "u1", "limit": "unlimited", "for": "2h", "reason": "a launch"});
    let made = put(&server, "per-user", &body).with_status(201);
    assert_eq!(
        made.header("location"),
        Some("/v1/rules/per-user/overrides/u1")
    );
    let made = made.json();
    for (field, value) in [
        ("rule", "per-user"),
        ("key", "u1"),
        ("limit", "unlimited"),
        ("reason", "a launch"),
        ("by", "admin-token"),
    ] {
        assert_eq!(made[field], value, "{made}");
    }
    let end = made["expires_at"].as_str().unwrap();
    for _ in 0..5 {
        check(&server, &u1, Some(&seconds(end, -1))).with_status(200);
    }
    // Nothing was charged while it lasted.
    let own = check(&server, &u1, Some(&seconds(end, 0))).with_status(200);
    assert_eq!(own.json()["remaining"], 1);
    check(&server, &u1, Some(&seconds(end, 0))).with_status(200);
    check(&server, &u1, Some(&seconds(end, 0))).with_status(429);
    check(&server, &u1, Some(&seconds(end, -1))).with_status(200);

    // The same client has one; it can be made blocked, and removed.
    let blocked = json!({"key": "u1", "limit": "blocked", "expires_at": end});
    let made = put(&server, "per-user", &blocked).with_status(201).json();
    assert_eq!(
        (&made["expires_at"], &made["reason"]),
        (&json!(end), &Value::Null)
    );
    assert_eq!(listed(&server, "/v1/rules/per-user/overrides"), [made]);
    let reply = check(&server, &u1, Some(&seconds(end, -1))).with_status(429);
    assert_eq!(reply.json()["reason"], "blocked");
    let removed = server.ask("DELETE /v1/rules/per-user/overrides/u1", "");
    removed.with_status(204);
    let removed = server.ask("DELETE /v1/rules/per-user/overrides/u1", "");
    removed.with_status(404);
    check(&server, &json!({"user_id": "u9"}), None).with_status(200);
    assert!(listed(&server, "/v1/overrides").is_empty());
}

#[test]
fn an_override_continues_with_what_was_used() {
    let folder = TestFolder::new();
    let server = serve(&folder, &[]);
    let vip = json!({"user_id": "vip"});
    let remaining = |expected: u64| {
        let reply = check(&server, &vip, None).with_status(200);
        assert_eq!(reply.json()["remaining"], expected);
    };
    remaining(2);
    let body = json!({"key": "vip", "limit": "9/day", "for": "1h"});
    put(&server, "per-user", &body).with_status(201);
    remaining(7);
    let explained = || {
        let body = json!({ "attributes": vip }).to_string();
        let explained = server.ask("POST /v1/explain", &body).with_status(200);
        explained.json()["rules"][0]["grant"].clone()
    };
    assert_eq!(explained()["from"], "temporary", "{}", explained());
    let path = "DELETE /v1/rules/per-user/overrides/vip";
    server.ask(path, "").with_status(204);
    remaining(0);
    check(&server, &vip, None).with_status(429);
    let body = json!({"key": "vip", "limit": "9/hour", "for": "1h"});
    put(&server, "per-user", &body).with_status(201);
    // Another window is another counter, as with `overrides`.
    remaining(8);
}

#[test]
fn they_live_over_a_restart_and_rules_do_not_touch_them() {
    let folder = TestFolder::new();
    let rule = |limit: &str| json!({"id": "a", "per": ["user_id"], "limit": limit});
    let u1 = json!({"user_id": "u1"});
    let server = folder.serve(&[]);
    server
        .ask("POST /v1/rules", &rule("blocked").to_string())
        .with_status(201);
    let body = json!({"key": "u1", "limit": "5/day", "for": "1h", "reason": "import"});
    let made = put(&server, "a", &body).with_status(201).json();
    server
        .ask("PUT /v1/rules/a", &rule("1/day").to_string())
        .with_status(200);
    server
        .ask("POST /v1/rules/rollback", r#"{"version": 1}"#)
        .with_status(200);
    let reply = check(&server, &u1, None).with_status(200);
    assert_eq!(reply.json()["limit"], 5);
    server.kill();

    let server = folder.serve(&[]);
    let reply = check(&server, &u1, None).with_status(200);
    assert_eq!(reply.json()["limit"], 5);
    assert_eq!(
        listed(&server, "/v1/overrides"),
        std::slice::from_ref(&made)
    );
    let history = server.ask("GET /v1/rules/history", "").json();
    let rows: Vec<(u64, String)> = history["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let change = row["changes"][0].as_str().unwrap();
            let is_override = change.contains("override");
            let mark =
                json!({"rule": "a", "key": "u1", "what": change.split(' ').next(), "text": change});
            assert_eq!(row.get("override"), is_override.then_some(&mark));
            (row["version"].as_u64().unwrap(), change.to_owned())
        })
        .collect();
    let end = made["expires_at"].as_str().unwrap();
    let added = format!("added override of a for u1: 5/day until {end} (import)");
    assert_eq!(
        rows,
        [
            (3, "rolled back to version 1".to_owned()),
            (2, "changed a".to_owned()),
            (1, added),
            (1, "added a".to_owned()),
        ]
    );

    // Of a rule that is gone it has no effect, and can be seen and removed.
    server.ask("DELETE /v1/rules/a", "").with_status(204);
    check(&server, &u1, None).with_status(200);
    assert_eq!(listed(&server, "/v1/rules/a/overrides"), [made]);
    server
        .ask("DELETE /v1/rules/a/overrides/u1", "")
        .with_status(204);
    server
        .ask("DELETE /v1/rules/a/overrides/u1", "")
        .with_status(404);
    server.ask("GET /v1/rules/a/overrides", "").with_status(404);
}

#[test]
fn a_reload_of_the_rule_file_does_not_touch_them_and_the_history_has_them() {
    let folder = TestFolder::new();
    let server = serve(&folder, &[]);
    let body = json!({"key": "u1", "limit": "7/day", "for": "1h"});
    put(&server, "per-user", &body).with_status(201);
    folder.write("rules.yaml", &RULES.replace("1/day", "4/day"));
    server.log.wait_for("the rules were reloaded");
    let limit =
        |user: &str| check(&server, &json!({ "user_id": user }), None).json()["limit"].clone();
    assert_eq!((limit("u1"), limit("u2")), (json!(7), json!(4)));
    let history = server.ask("GET /v1/rules/history", "").json();
    let rows = history["history"].as_array().unwrap().iter();
    let versions: Vec<_> = rows.map(|row| row["version"].clone()).collect();
    assert_eq!(versions, [json!(2), json!(1), json!(1)], "{history}");
}

#[test]
fn addresses_and_networks_are_read_as_rules_read_them() {
    let folder = TestFolder::new();
    let server = serve(&folder, &[]);
    let ip = |ip: &str| check(&server, &json!({"ip": ip, "path": "/ip"}), None).status;
    assert_eq!(ip("10.1.2.3"), 429);
    let body = json!({"key": "10.0.0.0/8", "limit": "unlimited", "for": "1h"});
    let made = put(&server, "per-ip", &body).with_status(201);
    let location = made.header("location").unwrap();
    assert_eq!(location, "/v1/rules/per-ip/overrides/10%2E0%2E0%2E0%2F8");
    let body = json!({"key": "2001:DB8::1", "limit": "unlimited", "for": "1h"});
    let made = put(&server, "per-ip", &body).with_status(201).json();
    assert_eq!(made["key"], "2001:db8::/64");
    assert_eq!((ip("10.1.2.3"), ip("2001:db8::ffff")), (200, 200));
    server
        .ask(&format!("DELETE {location}"), "")
        .with_status(204);
    server
        .ask("DELETE /v1/rules/per-ip/overrides/2001:db8::7", "")
        .with_status(204);
    assert_eq!((ip("10.1.2.3"), ip("2001:db8::ffff")), (429, 429));
}

#[test]
fn no_secret_is_kept_shown_or_logged_in_clear() {
    let folder = TestFolder::new();
    let server = serve(&folder, &[]);
    let secret = "sk_clear_0123456789abcdef";
    let key = json!({"api_key": secret, "path": "/key"});
    check(&server, &key, None).with_status(429);
    let body = json!({"key": secret, "limit": "unlimited", "for": "1h"});
    let made = put(&server, "per-key", &body).with_status(201);
    let (location, made) = (made.header("location").unwrap().to_owned(), made.json());
    // What `printf %s sk_clear_0123456789abcdef | sha256sum` says: anyone can try a guess against it.
    let hash = "sha256:929e7f2e26e60a088f12a42454244c6cdb6bcf081053f930bc7352b34aa8a377";
    let digest = made["digest"].as_str().unwrap().to_owned();
    assert_eq!((digest.len(), &made["key"]), (12, &json!(digest)));
    check(&server, &key, None).with_status(200);
    let history = server.ask("GET /v1/rules/history", "").body;
    let shown = [
        made.to_string(),
        location.clone(),
        history,
        server.ask("GET /v1/overrides", "").body,
        server.ask("GET /metrics", "").body,
    ];
    // By its digest it can be found, replaced and removed.
    let body = json!({"key": format!("sk_c…{digest}"), "limit": "blocked", "for": "1h"});
    let made = put(&server, "per-key", &body).with_status(201).json();
    assert_eq!(made["key"], json!(digest));
    let reply = check(&server, &key, None).with_status(429);
    assert_eq!(reply.json()["reason"], "blocked");
    assert_eq!(listed(&server, "/v1/overrides"), [made]);
    server
        .ask(&format!("DELETE {location}"), "")
        .with_status(204);
    check(&server, &key, None).with_status(429);
    put(
        &server,
        "per-key",
        &json!({"key": secret, "limit": "unlimited", "for": "1h"}),
    )
    .with_status(201);
    let refused = put(
        &server,
        "per-key",
        &json!({"key": secret, "limit": "no limit", "for": "1h"}),
    );
    let log = server.stop();
    let data = contents(&folder.path("."));
    assert!(data.contains(&digest), "{data}");
    for text in shown.iter().chain([&log, &data, &refused.body]) {
        for hidden in [secret, &hash["sha256:".len()..]] {
            assert!(!text.contains(hidden), "{text}");
        }
    }

    // Digests are the same after a restart.
    let server = serve(&folder, &[]);
    check(&server, &key, None).with_status(200);
    let path = format!("DELETE /v1/rules/per-key/overrides/{digest}");
    server.ask(&path, "").with_status(204);
}

#[test]
fn a_hash_that_a_caller_gives_is_kept_until_the_key_itself_is_given() {
    let folder = TestFolder::new();
    let server = serve(&folder, &[]);
    // What `printf %s clear-key | sha256sum` says.
    let hash = "sha256:2d3556e2be089a2e7b53f86b640d23464170fbbc38ef97cd077c989319fc1741";
    let key = json!({"api_key": "clear-key", "path": "/key"});
    let body = |key: &str, limit: &str| json!({"key": key, "limit": limit, "for": "1h"});
    let made = put(&server, "per-key", &body(hash, "unlimited")).with_status(201);
    assert_eq!(made.json()["key"], hash);
    check(&server, &key, None).with_status(200);
    put(&server, "per-key", &body("clear-key", "blocked")).with_status(201);
    let reply = check(&server, &key, None).with_status(429);
    assert_eq!(reply.json()["reason"], "blocked");
    assert_eq!(listed(&server, "/v1/overrides").len(), 1);
    // That the hash is of the same client cannot be known: the last one counts.
    put(&server, "per-key", &body(hash, "unlimited")).with_status(201);
    check(&server, &key, None).with_status(200);
    assert_eq!(listed(&server, "/v1/overrides").len(), 2);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let folder = TestFolder::new();
    let server = serve(&folder, &[]);
    let with = |rule: &str, changes: Value| {
        let mut body = json!({"key": "u1", "limit": "5/day", "for": "2h"});
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => drop(body.as_object_mut().unwrap().remove(name)),
                value => body[name] = value.clone(),
            }
        }
        put(&server, rule, &body)
    };
    #[rustfmt::skip]
    let table = [
        ("per-user", json!({"for": null}),                      422, "needs an end"),
        ("per-user", json!({"for": "0s"}),                      422, "ended already"),
        ("per-user", json!({"for": "721h"}),                    422, "30 days"),
        ("per-user", json!({"for": "soon"}),                    422, "`for` must be a duration"),
        ("per-user", json!({"expires_at": "2027-01-01T00:00:00Z"}), 422, "not both"),
        ("per-user", json!({"for": null, "expires_at": "2020-01-01T00:00:00Z"}), 422, "ended already"),
        ("per-user", json!({"for": null, "expires_at": 1}),     422, "ended already"),
        ("per-user", json!({"for": null, "expires_at": "2200-01-01T00:00:00Z"}), 422, "30 days"),
        ("per-user", json!({"for": null, "expires_at": "2027-01-01"}), 422, "`expires_at`"),
        ("per-user", json!({"for": null, "expires_at": []}),    422, "Unix seconds"),
        ("per-user", json!({"limit": "fast"}),                  422, "`limit`"),
        ("per-user", json!({"limit": "x".repeat(501)}),         422, "500 bytes"),
        ("per-user", json!({"key": ""}),                        422, "`key`"),
        ("per-user", json!({"reason": "é".repeat(201)}),        422, "200 characters"),
        ("per-user", json!({"limit": true}),                    400, "`limit` must be text"),
        ("per-user", json!({"limit": null}),                    400, "limit"),
        ("per-user", json!({"key": 1}),                         400, "string"),
        ("per-user", json!({"untl": "2h"}),                     400, "unknown field"),
        ("per-ip",   json!({}),                                 422, "neither an address nor a network"),
        ("per-ip",   json!({"key": "10.0.0.1/8"}),              422, "bits set"),
        ("all",      json!({}),                                 422, "`per`"),
        ("moving",   json!({"limit": 5}),                       422, "`unlimited` or `blocked`"),
        ("none",     json!({}),                                 404, "there is no rule `none`"),
    ];
    for (rule, changes, status, detail) in table {
        let reply = with(rule, changes.clone());
        assert_eq!(reply.status, status, "{changes}: {reply:?}");
        assert!(reply.detail().contains(detail), "{changes}: {reply:?}");
    }
    with("moving", json!({"limit": "blocked"})).with_status(201);
    with(
        "per-user",
        json!({"for": "720h", "reason": "é".repeat(200)}),
    )
    .with_status(201);
    assert_eq!(listed(&server, "/v1/overrides").len(), 2);
    for (call, status) in [
        ("GET /v1/rules/none/overrides", 404),
        ("DELETE /v1/rules/none/overrides/u1", 404),
        ("DELETE /v1/rules/per-user/overrides/%ff", 400),
        ("GET /v1/rules/per-user/overrides?x=1", 400),
        ("GET /v1/overrides?x=1", 400),
        ("PUT /v1/rules/per-user/overrides", 405),
        ("GET /v1/rules/per-user/overrides/u1", 405),
        ("DELETE /v1/rules/per-user/overrides/", 404),
        ("DELETE /v1/rules/per-user/overrides/a/b", 404),
    ] {
        server.ask(call, "").with_status(status);
    }
}

const DESCRIPTORS: &str = "
domain: d
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 1}}
  - key: path
    descriptors:
      - {key: api_key, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: plan, value: free, rate_limit: {unit: day, requests_per_unit: 1}}
";

#[test]
fn descriptor_limits_are_overridden_by_what_they_leave_open() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", DESCRIPTORS);
    let server = folder.serve(&["--rules", "rules.yaml"]);
    let key = "sk_clear_0123456789abcdef";
    let by_key = |path: &str, key: &str| json!({"domain": "d", "path": path, "api_key": key});
    let deny = |attributes: &Value| {
        check(&server, attributes, None).with_status(200);
        check(&server, attributes, None).with_status(429);
    };
    let explained = |attributes: &Value, rule: &str| {
        let body = json!({ "attributes": attributes }).to_string();
        let explained = server.ask("POST /v1/explain", &body).with_status(200);
        let rules = explained.json()["rules"].as_array().unwrap().clone();
        let mut rules = rules.into_iter().filter(|one| one["rule"] == rule);
        rules.next().unwrap()
    };

    let (u1, partner, free) = (
        json!({"domain": "d", "user": "u/1"}),
        by_key("/v1", key),
        json!({"domain": "d", "plan": "free"}),
    );
    let digest = explained(&partner, "d.path.api_key")["key"]["api_key"].clone();
    let digest = digest.as_str().unwrap();
    assert!(digest.starts_with("sk_c…"), "{digest}");
    #[rustfmt::skip]
    let table = [
        // attributes   rule               key                                     as it is kept
        (&u1,           "d.user",          "u/1".to_owned(),                       "u/1".to_owned()),
        (&partner,      "d.path.api_key",  format!("%2Fv1/{key}"),                 format!("%2Fv1/{}", &digest["sk_c…".len()..])),
        (&partner,      "d.path.api_key",  format!("%2Fv1/{digest}"),              format!("%2Fv1/{}", &digest["sk_c…".len()..])),
        (&free,         "d.plan_free",     "free".to_owned(),                      "free".to_owned()),
    ];
    for attributes in [&u1, &partner, &free] {
        deny(attributes);
    }
    for (attributes, rule, key, kept) in table {
        let body = json!({"key": key, "limit": "3/day", "for": "1h"});
        let made = put(&server, rule, &body).with_status(201);
        let location = made.header("location").unwrap().to_owned();
        assert_eq!(made.json()["key"], kept);
        let explained = explained(attributes, rule);
        assert_eq!(
            explained["grant"],
            json!({"from": "temporary", "value": "3/day"})
        );
        // What was used stays used: of the file's limit, one.
        let reply = check(&server, attributes, None).with_status(200);
        assert_eq!(
            (&reply.json()["limit"], &reply.json()["remaining"]),
            (&json!(3), &json!(1))
        );
        let reset = json!({"attributes": attributes, "rule": rule}).to_string();
        let reset = server.ask("POST /v1/reset", &reset).with_status(200);
        assert_eq!(reset.json()["reset"][0]["limit"], 3, "{reset:?}");
        assert_eq!(listed(&server, "/v1/overrides"), [made.json()]);
        server
            .ask(&format!("DELETE {location}"), "")
            .with_status(204);
        assert!(listed(&server, "/v1/overrides").is_empty());
        deny(attributes);
    }

    // Other clients keep the limit of the file, and a blocked one has nothing.
    let body = |key: &str, limit: &str| json!({"key": key, "limit": limit, "for": "1h"});
    put(
        &server,
        "d.path.api_key",
        &body(&format!("%2Fv1/{key}"), "unlimited"),
    )
    .with_status(201);
    check(&server, &partner, None).with_status(200);
    deny(&by_key("/v2", key));
    deny(&by_key("/v1", "another"));
    put(&server, "d.user", &body("u2", "blocked")).with_status(201);
    let denied = check(&server, &json!({"domain": "d", "user": "u2"}), None).with_status(429);
    assert_eq!(denied.json()["reason"], "blocked");
    let page = server.ask("GET /metrics", "").body;
    assert!(
        page.contains("\ntidegate_temporary_overrides 2\n"),
        "{page}"
    );
    let log = server.stop();
    for text in [log, contents(&folder.path("."))] {
        assert!(!text.contains(key), "{text}");
    }

    // They are there after a restart, and when rules change.
    let server = folder.serve(&["--rules", "rules.yaml"]);
    check(&server, &partner, None).with_status(200);
    folder.write("rules.yaml", &DESCRIPTORS.replace("path", "method"));
    server.log.wait_for("the rules were reloaded");
    assert_eq!(
        listed(&server, "/v1/rules/d.path.api_key/overrides").len(),
        1
    );
    folder.write("rules.yaml", DESCRIPTORS);
    wait_until("the rules are back", PATIENCE, || {
        let reply = server.ask("GET /v1/rules/d.path.api_key", "");
        (reply.status == 200).then_some(())
    });
    for _ in 0..3 {
        check(&server, &partner, None).with_status(200);
    }
}

#[test]
fn an_override_that_a_descriptor_limit_cannot_have_is_refused() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", DESCRIPTORS);
    let server = folder.serve(&["--rules", "rules.yaml"]);
    #[rustfmt::skip]
    let table = [
        ("d.user",          "",                     "5/day",            422, "`key`"),
        ("d.user",          "u1",                   "5/day burst 2",    422, "`limit`"),
        ("d.path.api_key",  "k1",                   "5/day",            422, "leaves 2 entries open"),
        ("d.path.api_key",  "/v1/k1",               "5/day",            422, "`PATH/API_KEY`"),
        ("d.path.api_key",  "a/0123456789ab",       "5/day",            422, "give the key itself"),
        ("d.plan_free",     "u1",                   "5/day",            422, "write `free`"),
        ("d",               "u1",                   "5/day",            404, "no rule `d`"),
    ];
    for (rule, key, limit, status, detail) in table {
        let body = json!({"key": key, "limit": limit, "for": "2h"});
        let reply = put(&server, rule, &body).with_status(status);
        assert!(reply.detail().contains(detail), "{key}: {reply:?}");
    }
    let gone = "DELETE /v1/rules/d.user/overrides/u1";
    server.ask(gone, "").with_status(404);
}

#[test]
fn reading_needs_the_scope_read_and_changing_the_scope_write() {
    let folder = TestFolder::new();
    folder.write(
        "config.yaml",
        "tokens: [{name: r, scopes: [read], token_env: READER}, {name: w, scopes: [write], token_env: WRITER}]\n",
    );
    folder.write("rules.yaml", RULES);
    let server = folder.serve_with(
        &["--config", "config.yaml", "--rules", "rules.yaml"],
        &[("READER", "reader"), ("WRITER", "writer")],
    );
    let body = json!({"key": "u1", "limit": "5/day", "for": "2h"}).to_string();
    let ask = |token: &str, call: &str| {
        let header = format!("Bearer {token}");
        let body = if call.starts_with("POST") { &body } else { "" };
        server
            .ask_with(call, &[("authorization", &header)], body)
            .status
    };
    let calls = [
        ("POST /v1/rules/per-user/overrides", 403, 201),
        ("DELETE /v1/rules/per-user/overrides/u1", 403, 204),
        ("GET /v1/rules/per-user/overrides", 200, 200),
        ("GET /v1/overrides", 200, 200),
    ];
    for (call, reader, writer) in calls {
        assert_eq!(ask("reader", call), reader, "{call}");
        assert_eq!(ask("writer", call), writer, "{call}");
        assert_eq!(ask("other", call), 401, "{call}");
    }
}
