//! Clients that are explained, reset and overridden by a value or by the digest that tables and the log show.

use serde_json::{Value, json};
use tidegate_testkit_server::{ClientReply, TestFolder};

use crate::Server;

const KEY: &str = "sk_live_0123456789abcdef";
const RULES: &str = "rules:
  - {id: per-user, per: [user_id], limit: 3/hour, tiers: {pro: 1000/hour}}
  - {id: per-key, per: [api_key], limit: 3/hour}
  - {id: both, per: [api_key, path], limit: 50/hour}
";

fn serve(config: &str) -> (TestFolder, Server) {
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    folder.write("c.yaml", config);
    let server = folder.serve(&["--rules", "rules.yaml", "--config", "c.yaml"]);
    (folder, server)
}

fn check(server: &Server, attributes: &Value) -> ClientReply {
    server.ask(
        "POST /v1/check",
        &json!({ "attributes": attributes }).to_string(),
    )
}

fn explain(server: &Server, body: &Value) -> ClientReply {
    server.ask("POST /v1/explain", &body.to_string())
}

fn reset(server: &Server, body: &Value) -> ClientReply {
    server.ask("POST /v1/reset", &body.to_string())
}

/// The digest that an explanation of this key shows.
fn digest_of(server: &Server, key: &str) -> String {
    let body = json!({"attributes": {"api_key": key}});
    let shown = explain(server, &body).with_status(200).json();
    shown["attributes"]["api_key"].as_str().unwrap().to_owned()
}

/// The rule, key and usage of each counter that was reset.
fn counters(reply: &ClientReply) -> Vec<(String, Value, u64)> {
    let reply = reply.json();
    let entries = reply["reset"].as_array().unwrap().iter();
    let entry = |one: &Value| {
        let used = one["used"].as_u64().unwrap();
        (
            one["rule"].as_str().unwrap().to_owned(),
            one["key"].clone(),
            used,
        )
    };
    entries.map(entry).collect()
}

/// A digest used to be taken for another key: the reset was reported and did nothing.
#[test]
fn a_digest_resets_the_key_that_has_it_and_no_other() {
    let (_folder, server) = serve("");
    for _ in 0..2 {
        check(&server, &json!({"api_key": KEY, "path": "/a"})).with_status(200);
    }
    let shown = digest_of(&server, KEY);
    let digits = shown.strip_prefix("sk_l…").unwrap();
    for written in [shown.as_str(), digits] {
        check(&server, &json!({"api_key": KEY, "path": "/a"})).with_status(200);
        let done = reset(&server, &json!({"attributes": {"api_key": written}})).with_status(200);
        let [(rule, key, used)] = &counters(&done)[..] else {
            panic!("{done:?}")
        };
        assert_eq!(
            (rule.as_str(), key),
            ("per-key", &json!({"api_key": shown}))
        );
        assert!(*used > 0, "{done:?}");
        assert!(!done.whole().contains(KEY), "{done:?}");
    }
    let both = json!({"attributes": {"api_key": digits, "path": "/a"}, "rule": "both"});
    let done = reset(&server, &both).with_status(200);
    assert_eq!(counters(&done)[0].2, 4);
    // A key that was never seen.
    let unknown = json!({"attributes": {"api_key": "0123456789ab"}});
    for refused in [reset(&server, &unknown), explain(&server, &unknown)] {
        let refused = refused.with_status(422);
        let text = "`0123456789ab` is not a key that was seen; give the key itself";
        assert_eq!(refused.detail(), text);
    }
    // Other attributes are not shown as digests.
    reset(&server, &json!({"attributes": {"user_id": "0123456789ab"}})).with_status(200);
}

#[test]
fn a_key_in_clear_that_looks_like_a_digest_is_itself() {
    let (_folder, server) = serve("");
    let clear = "0123456789ab";
    check(&server, &json!({"api_key": clear})).with_status(200);
    let body = json!({"attributes": {"api_key": clear}});
    let done = reset(&server, &body).with_status(200);
    assert_eq!(counters(&done)[0].2, 1);
    check(&server, &json!({"api_key": clear})).with_status(200);
    let explained = explain(&server, &body).with_status(200).json();
    assert_eq!(explained["rules"][1]["limits"][0]["remaining"], 1);
    let put = json!({"key": clear, "limit": "blocked", "for": "1h"}).to_string();
    server
        .ask("POST /v1/rules/per-key/overrides", &put)
        .with_status(201);
    check(&server, &json!({"api_key": clear})).with_status(429);
}

#[test]
fn a_client_is_explained_by_its_last_decision() {
    let (_folder, server) = serve("");
    let request = json!({"user_id": "carl", "tier": "pro", "api_key": KEY, "method": "GET", "path": "/v1/orders", "ip": "203.0.113.7"});
    for _ in 0..4 {
        check(&server, &request);
    }
    for wanted in ["carl", &digest_of(&server, KEY), KEY] {
        let reply = explain(&server, &json!({"client": wanted})).with_status(200);
        assert!(!reply.whole().contains(KEY), "{reply:?}");
        let explained = reply.json();
        let rule = &explained["rules"][0];
        assert_eq!(rule["tier"], "pro", "{wanted}: {explained:#}");
        assert_eq!(rule["grant"], json!({"from": "tier", "value": "1000/hour"}));
        assert_eq!(explained["decision"]["rule"], "per-key");
        assert_eq!(explained["decision"]["reason"], "over_limit");
        assert_eq!(explained["attributes"]["path"], "/v1/orders");
        assert_eq!(explained["attributes"]["ip"], "203.0.113.7");
        let last = &explained["last"];
        assert_eq!(
            (&last["tier"], &last["path"]),
            (&json!("pro"), &json!("/v1/orders"))
        );
        assert_eq!(last["method"], "GET");
    }
    let unknown = explain(&server, &json!({"client": "dora"})).with_status(422);
    assert!(
        unknown
            .detail()
            .contains("no client with this value was seen")
    );
    let unknown = explain(&server, &json!({"client": "carl", "rule": "x"})).with_status(404);
    assert_eq!(unknown.detail(), "there is no rule `x`");
    let unknown = explain(&server, &json!({"client": "carl", "rule": "per-key"}));
    unknown.with_status(422);
    let free = json!({"attributes": {"user_id": "dora"}});
    let rule = &explain(&server, &free).with_status(200).json()["rules"][0];
    assert_eq!(rule["tier"], "unknown");
    assert_eq!(rule["tiers"], json!({"pro": "1000/hour"}));
}

#[test]
fn a_value_of_two_attributes_means_two_clients() {
    let (_folder, server) = serve("");
    check(&server, &json!({"user_id": "x1"})).with_status(200);
    check(&server, &json!({"api_key": "x1", "path": "/a"})).with_status(200);
    for call in ["explain", "reset"] {
        let ask = |body: Value| server.ask(&format!("POST /v1/{call}"), &body.to_string());
        let refused = ask(json!({"client": "x1"})).with_status(409);
        let detail = refused.detail();
        assert!(detail.contains("`user_id=x1`"), "{detail}");
        assert!(
            detail.contains("api_key=") && !detail.contains("api_key=x1"),
            "{detail}"
        );
        ask(json!({"client": "x1", "rule": "per-key"})).with_status(200);
    }
}

#[test]
fn a_reset_of_a_client_has_every_counter_of_it() {
    let (_folder, server) = serve("");
    for path in ["/a", "/b", "/b"] {
        check(&server, &json!({"api_key": KEY, "path": path})).with_status(200);
    }
    check(&server, &json!({"api_key": "other", "path": "/a"})).with_status(200);
    let shown = digest_of(&server, KEY);
    let done = reset(&server, &json!({"client": shown})).with_status(200);
    let mut found = counters(&done);
    found.sort_by_key(|(rule, key, _)| (rule.clone(), key.to_string()));
    let key = |path: &str| json!({"api_key": shown, "path": path});
    let expected = [
        ("both".to_owned(), key("/a"), 1),
        ("both".to_owned(), key("/b"), 2),
        ("per-key".to_owned(), json!({"api_key": shown}), 3),
    ];
    assert_eq!(found, expected);
    let again = reset(&server, &json!({"client": shown, "rule": "per-key"})).with_status(200);
    assert_eq!(counters(&again).len(), 1);
    let body = json!({"attributes": {"api_key": "other"}});
    assert_eq!(
        counters(&reset(&server, &body))[0].2,
        1,
        "of another client nothing"
    );
    for body in [json!({}), json!({"attributes": {}, "client": "x"})] {
        let refused = reset(&server, &body).with_status(400);
        assert_eq!(
            refused.detail(),
            "give exactly one of `attributes` and `client`"
        );
    }
}

#[test]
fn what_the_log_shows_can_be_explained() {
    let (_folder, server) = serve("");
    for _ in 0..4 {
        check(&server, &json!({"user_id": "u1"}));
        check(&server, &json!({"api_key": KEY}));
    }
    let log = server.log.wait_for_times("denied rule=", 2);
    let keys = log.lines().filter(|line| line.contains("denied rule="));
    let keys: Vec<&str> = keys
        .map(|line| {
            line.split("key=\"")
                .nth(1)
                .unwrap()
                .split('"')
                .next()
                .unwrap()
        })
        .collect();
    assert!(!log.contains(KEY) && !log.contains("u1\""), "{log}");
    assert_eq!(keys[1], digest_of(&server, KEY));
    assert_eq!(keys[0].len(), 12);
    for (key, rule) in keys.iter().zip(["per-user", "per-key"]) {
        let explained = explain(&server, &json!({"client": key}))
            .with_status(200)
            .json();
        assert_eq!(explained["decision"]["rule"], rule, "{explained:#}");
    }
    // Several values, with commas between them.
    let put = json!({"id": "both", "per": ["user_id", "path"], "limit": "1/hour"});
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    server
        .ask("POST /v1/rules", &put.to_string())
        .with_status(201);
    for _ in 0..2 {
        check(&server, &json!({"user_id": "u1", "path": "/x"}));
    }
    check(&server, &json!({"user_id": "u1", "path": "/y"}));
    let log = server.log.wait_for("denied rule=");
    let key = log
        .split("key=\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    assert_eq!(key.len(), 25, "{key}");
    let explained = explain(&server, &json!({"client": key}))
        .with_status(200)
        .json();
    assert_eq!(
        explained["attributes"],
        json!({"user_id": "u1", "path": "/x"})
    );
    let done = reset(&server, &json!({"client": key})).with_status(200);
    assert_eq!(
        counters(&done),
        [("both".to_owned(), json!({"user_id": "u1", "path": "/x"}), 1)]
    );
}

#[test]
fn keys_of_the_clients_file_and_of_overrides_are_known_by_their_digests() {
    let folder = TestFolder::new();
    let hashed = "015f7e6bc5aeaf483724089e9252cc13b50951a6b69412522765cff4d780306e";
    folder.write(
        "clients.yaml",
        &format!("clients:\n  k-of-file: {{user_id: alice, tier: pro}}\n  sha256:{hashed}: {{}}\n"),
    );
    folder.write("c.yaml", &format!("identify: {{api_key: {{header: x-api-key}}, user_id: {{client: user_id}}}}\nclients_file: {}\n", folder.file("clients.yaml")));
    folder.write(
        "rules.yaml",
        "rules:\n  - {id: per-key, per: [api_key], limit: 3/hour, overrides: {k-of-rule: 9/hour}}\n",
    );
    let server = folder.serve(&["--config", "c.yaml", "--rules", "rules.yaml"]);
    for key in ["k-of-file", "k-of-rule"] {
        let digest = digest_of(&server, key);
        let explained = explain(&server, &json!({"client": digest}))
            .with_status(200)
            .json();
        assert_eq!(explained["attributes"], json!({"api_key": digest}), "{key}");
        assert_eq!(explained["last"], Value::Null);
        reset(&server, &json!({"attributes": {"api_key": digest}})).with_status(200);
        reset(&server, &json!({"client": digest})).with_status(200);
    }
    // The file has only the hash of it.
    let digest = digest_of(&server, "k2");
    let put = |key: &str| {
        let body = json!({"key": key, "limit": "blocked", "for": "1h"}).to_string();
        server.ask("POST /v1/rules/per-key/overrides", &body)
    };
    let refused = put(&digest).with_status(422);
    assert!(refused.detail().contains("is not a key that was seen"));
    // Once it has an override, another one is possible, and nothing else.
    put("k2").with_status(201);
    let listed = server.ask("GET /v1/overrides", "").json();
    assert_eq!(
        listed["overrides"][0]["key"], digest,
        "the same digest everywhere"
    );
    let history = server.ask("GET /v1/rules/history", "").body;
    assert!(history.contains(&digest), "{history}");
    put(&digest).with_status(201);
    for body in [
        json!({"client": digest}),
        json!({"attributes": {"api_key": digest}}),
    ] {
        for reply in [explain(&server, &body), reset(&server, &body)] {
            let detail = reply.with_status(422).detail();
            assert!(
                detail.contains("a temporary override is for it"),
                "{detail}"
            );
        }
    }
    check(&server, &json!({"api_key": "k2"})).with_status(429);
    // What a blocked client is granted now.
    let done = reset(&server, &json!({"attributes": {"api_key": "k2"}}))
        .with_status(200)
        .json();
    assert_eq!(done["reset"][0]["limit"], 0);
}

#[test]
fn anonymous_clients_are_known_by_digests_alone() {
    let (_folder, server) = serve("activity: anonymous\n");
    check(
        &server,
        &json!({"user_id": "carl-of-acme-incorporated", "tier": "pro"}),
    )
    .with_status(200);
    let keys = server
        .ask("GET /v1/rules/per-user/keys?sort=used", "")
        .json();
    let digest = keys["keys"][0]["key"]["user_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let put = |key: &str| {
        let body = json!({"key": key, "limit": "blocked", "for": "1h"}).to_string();
        server.ask("POST /v1/rules/per-user/overrides", &body)
    };
    let client = json!({"client": digest});
    let explained = explain(&server, &client).with_status(200);
    assert_eq!(explained.json()["rules"][0]["tier"], "pro");
    let done = reset(&server, &json!({"attributes": {"user_id": digest}})).with_status(200);
    assert_eq!(counters(&done)[0].2, 1);
    let put_reply = put(&digest).with_status(201);
    for reply in [&explained, &done, &put_reply] {
        assert!(!reply.whole().contains("carl"), "{reply:?}");
    }
    check(&server, &json!({"user_id": "carl-of-acme-incorporated"})).with_status(429);
    put("0123456789ab").with_status(422);
}

#[test]
fn credentials_in_headers_are_shown_as_digests() {
    let folder = TestFolder::new();
    folder.write(
        "rules.yaml",
        "rules:\n  - {id: a, per: [user_id], match: {attributes: {header.authorization: x}}, limit: 3/hour}\n  - {id: b, per: [user_id], limit: 3/hour}\n",
    );
    let server = folder.serve(&["--rules", "rules.yaml"]);
    let attributes = json!({"user_id": "u1", "header.authorization": "Bearer s3cret-of-a-token"});
    check(&server, &attributes).with_status(200);
    for body in [json!({"client": "u1"}), json!({ "attributes": attributes })] {
        let reply = explain(&server, &body).with_status(200);
        assert!(!reply.whole().contains("s3cret"), "{reply:?}");
        let shown = &reply.json()["attributes"]["header.authorization"];
        assert_eq!(shown.as_str().unwrap().chars().count(), 17, "{shown}");
    }
}

/// The log shows digests of all values, so they are understood for all.
#[test]
fn a_digest_of_a_value_that_is_not_secret_means_its_client_too() {
    let (_folder, server) = serve("");
    for _ in 0..4 {
        check(&server, &json!({"user_id": "carol"}));
    }
    let line = server.log.wait_for("denied rule=\"per-user\"");
    let digest = line.split("key=\"").nth(1).unwrap();
    let digest = digest.split('"').next().unwrap();
    assert_eq!(digest.len(), 12, "{line}");
    let done = reset(&server, &json!({"attributes": {"user_id": digest}})).with_status(200);
    let carol = json!({"user_id": "carol"});
    assert_eq!(counters(&done), [("per-user".to_owned(), carol, 3)]);
    let override_of = |key: &str| {
        let body = json!({"key": key, "limit": "blocked", "for": "1h"}).to_string();
        let call = "POST /v1/rules/per-user/overrides";
        server.ask(call, &body).with_status(201).json()
    };
    assert_eq!(override_of(digest)["key"], "carol");
    check(&server, &json!({"user_id": "carol"})).with_status(429);
    // One that no client has may be a value.
    assert_eq!(override_of("0123456789ab")["key"], "0123456789ab");
    check(&server, &json!({"user_id": "0123456789ab"})).with_status(429);
}

#[test]
fn credentials_in_headers_are_secret_as_keys_too() {
    const SECRET: &str = "bearer AUTHSECRET-eyJhbGciOiJub25lIn0";
    let folder = TestFolder::new();
    folder.write(
        "rules.yaml",
        "rules:
  - {id: per-token, per: [header.authorization], limit: 1/hour}
  - {id: per-cookie, per: [header.cookie], limit: 1/hour}
",
    );
    let server = folder.serve(&["--rules", "rules.yaml"]);
    for _ in 0..3 {
        check(
            &server,
            &json!({"header.authorization": SECRET, "header.cookie": SECRET}),
        );
    }
    let body = json!({"key": SECRET, "limit": "blocked", "for": "1h"}).to_string();
    let call = "POST /v1/rules/per-token/overrides";
    let set = server.ask(call, &body).with_status(201).body;
    let mut seen = vec![set];
    for call in [
        "/v1/denied",
        "/v1/clients",
        "/v1/rules/per-token/keys",
        "/v1/rules/per-cookie/keys",
        "/v1/overrides",
        "/v1/rules/history",
        "/metrics",
    ] {
        seen.push(server.ask(&format!("GET {call}"), "").with_status(200).body);
    }
    seen.push(server.stop());
    for text in seen {
        assert!(!text.contains("AUTHSECRET"), "{text}");
    }
}
