//! Servers that share a Redis: one limit for all of them, with and without Redis, and no secret in it.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::wait_until;

use crate::Server;
use tidegate_testkit_server::ClientReply;
use tidegate_testkit_server::{PATIENCE, TestFolder};

/// Many tests run at once, and this is not about how fast Redis is.
const CALM: [(&str, &str); 1] = [("TIDEGATE_REDIS_DEADLINE", "5s")];

/// A server on a Redis, in a folder of its own.
pub(crate) fn serve(folder: &TestFolder, redis: &RedisServer, arguments: &[&str]) -> Server {
    let url = redis.url();
    let arguments = [&["--redis", url.as_str()], arguments].concat();
    folder.serve_with(&arguments, &CALM)
}

pub(crate) fn check(server: &Server, attributes: &Value) -> ClientReply {
    let body = json!({ "attributes": attributes }).to_string();
    server.ask("POST /v1/check", &body)
}

/// Waits until `/readyz` answers so, and returns its body.
pub(crate) fn wait_for_status(server: &Server, code: u16, status: &str) -> Value {
    wait_until(&format!("{code} {status}"), PATIENCE, || {
        let reply = server.ask("GET /readyz", "");
        let body = reply.json();
        (reply.status == code && body["status"] == status).then_some(body)
    })
}

#[test]
fn two_servers_share_a_limit_exactly() {
    let redis = RedisServer::start();
    let (first, second) = (TestFolder::new(), TestFolder::new());
    let rules = "rules:\n  - {id: per-user, per: [user_id], missing: deny, limit: 10/day, algorithm: fixed_window, anchor: first_request}\n";
    let servers = [&first, &second].map(|folder| {
        folder.write("rules.yaml", rules);
        serve(folder, &redis, &["--rules", "rules.yaml"])
    });
    let mut allowed = 0;
    for turn in 0..30 {
        let reply = check(&servers[turn % 2], &json!({"user_id": "u"}));
        assert_eq!(reply.json()["degraded"], false, "{reply:?}");
        allowed += u32::from(reply.status == 200);
    }
    assert_eq!(allowed, 10);
    let body = wait_for_status(&servers[0], 200, "ready");
    assert_eq!(body["store"], "ok");
    assert_eq!(body["rules"]["source"], "file");
}

#[test]
fn without_redis_rules_go_on_and_with_it_they_are_shared_again() {
    let redis = RedisServer::start();
    redis.kill();
    let folder = TestFolder::new();
    let local = "rules:\n  - {id: local, per: [user_id], missing: deny, limit: 10/hour}\n";
    folder.write("rules.yaml", local);
    let arguments = ["--rules", "rules.yaml"];
    let server = serve(&folder, &redis, &arguments);
    server.log.wait_for("Redis does not answer");
    let body = wait_for_status(&server, 200, "degraded");
    assert_ne!(body["store"], "ok");
    let reply = check(&server, &json!({"user_id": "u"})).with_status(200);
    assert_eq!(reply.json()["degraded"], true);

    let deny = "  - {id: deny, per: [], limit: 10/hour, on_store_failure: deny}\n";
    folder.write("rules.yaml", &[local, deny].concat());
    wait_for_status(&server, 503, "not ready");
    check(&server, &json!({"user_id": "u"})).with_status(503);
    folder.write("rules.yaml", local);
    wait_for_status(&server, 200, "degraded");

    redis.restart();
    wait_for_status(&server, 200, "ready");
    // What was admitted without Redis is settled in it.
    let reply = wait_until("it is settled", PATIENCE, || {
        let reply = check(&server, &json!({"user_id": "u"})).with_status(200);
        (reply.json()["degraded"] == false).then(|| reply.json())
    });
    assert!(reply["remaining"].as_u64().unwrap() < 9, "{reply}");
}

#[test]
fn a_server_that_ends_returns_what_it_took_in_advance() {
    let redis = RedisServer::start();
    let (first, second) = (TestFolder::new(), TestFolder::new());
    let rules = "rules:\n  - {id: leased, per: [user_id], missing: deny, limit: 100/day burst 100, sync: leased}\n";
    let [ending, staying] = [&first, &second].map(|folder| {
        folder.write("rules.yaml", rules);
        serve(folder, &redis, &["--rules", "rules.yaml"])
    });
    for _ in 0..5 {
        check(&ending, &json!({"user_id": "u"})).with_status(200);
    }
    let log = ending.log.text();
    assert!(!log.contains("`sync: leased` has no effect"), "{log}");
    ending.stop();
    let body = json!({"attributes": {"user_id": "u"}, "cost": 95}).to_string();
    staying.ask("POST /v1/check", &body).with_status(200);
    check(&staying, &json!({"user_id": "u"})).with_status(429);
    let instances = || {
        let metrics = staying.ask("GET /metrics", "").body;
        metrics.contains("\ntidegate_instances 1\n").then_some(())
    };
    wait_until("the other does not count any more", PATIENCE, instances);
}

#[test]
fn no_api_key_is_in_redis() {
    let redis = RedisServer::start();
    let folder = TestFolder::new();
    folder.write(
        "rules.yaml",
        "rules:\n  - {id: a, per: [api_key], missing: deny, limit: 10/hour}\n  - {id: b, per: [session, user_id], missing: deny, limit: 10/hour}\n",
    );
    folder.write("secret", "under this");
    let url = redis.url();
    let arguments = ["--redis", &url, "--rules", "rules.yaml"];
    let environment = [
        ("TIDEGATE_REDIS_DEADLINE", "5s"),
        ("TIDEGATE_SECRET_ATTRIBUTES", "session"),
        ("TIDEGATE_KEY_SECRET_FILE", "secret"),
    ];
    let server = folder.serve_with(&arguments, &environment);
    let attributes = json!({"api_key": "clear-key", "session": "clear-session", "user_id": "u"});
    check(&server, &attributes).with_status(200);
    let keys: Vec<String> = redis.query(&["KEYS", "*"]);
    let of_rules = |key: &&String| key.contains("}:a@") || key.contains("}:b@");
    assert_eq!(keys.iter().filter(of_rules).count(), 2, "{keys:?}");
    let log = server.log.text();
    for text in keys.iter().chain([&log]) {
        assert!(!text.contains("clear-"), "{text}");
        assert!(!text.contains("under this"), "{text}");
    }
    assert!(!log.contains("public default secret"), "{log}");
}

#[test]
fn an_api_key_that_is_hashed_in_a_rule_is_in_clear_nowhere() {
    let redis = RedisServer::start();
    let folder = TestFolder::new();
    let server = serve(&folder, &redis, &[]);
    // What `printf %s clear-key | sha256sum` says.
    let hash = "sha256:2d3556e2be089a2e7b53f86b640d23464170fbbc38ef97cd077c989319fc1741";
    let rule =
        json!({"id": "a", "per": ["api_key"], "limit": "1/hour", "overrides": {hash: "3/hour"}});
    let rules = json!({ "rules": [rule] });
    server
        .ask("PUT /v1/rules", &rules.to_string())
        .with_status(200);
    for status in [200, 200, 200, 429] {
        check(&server, &json!({"api_key": "clear-key"})).with_status(status);
    }
    for (key, status) in [("other", 200), ("other", 429), (hash, 200), (hash, 429)] {
        check(&server, &json!({ "api_key": key })).with_status(status);
    }
    let shown = server.ask("GET /v1/rules", "").written();
    assert_eq!(shown["rules"], rules["rules"]);
    let keys: Vec<String> = redis.query(&["KEYS", "*"]);
    let values = keys
        .iter()
        .map(|key| redis.query::<Vec<u8>>(&["DUMP", key]));
    let values: Vec<String> = values
        .map(|value| String::from_utf8_lossy(&value).into_owned())
        .collect();
    let entries = std::fs::read_dir(folder.path("data/rules")).unwrap();
    let files = entries.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let all = keys.iter().cloned().chain(values).chain(files);
    for text in all.chain([server.log.text(), shown.to_string()]) {
        assert!(!text.contains("clear-key"), "{text}");
    }
}

#[test]
fn a_reset_reports_what_was_used_in_redis() {
    let redis = RedisServer::start();
    let folder = TestFolder::new();
    let rules = "rules:
  - {id: window, per: [user_id], limit: 10/day, algorithm: fixed_window, anchor: first_request}
  - {id: bucket, per: [user_id], limit: 10/hour; 20/week burst 7}
  - {id: held, per: [user_id], limit: 4, algorithm: concurrency}
  - {id: all, per: [], limit: 100/23h}
";
    folder.write("rules.yaml", rules);
    let server = serve(&folder, &redis, &["--rules", "rules.yaml"]);
    for _ in 0..3 {
        check(&server, &json!({"user_id": "u"})).with_status(200);
    }
    let reset = |body: Value| {
        let reply = server
            .ask("POST /v1/reset", &body.to_string())
            .with_status(200);
        let reply = reply.json();
        let entries = reply["reset"].as_array().unwrap().iter();
        let entries = entries.map(|one| {
            (
                one["rule"].clone(),
                one["limit"].clone(),
                one["used"].clone(),
            )
        });
        entries.collect::<Vec<_>>()
    };
    let entry = |rule: &str, limit: u64, used: u64| (json!(rule), json!(limit), json!(used));
    let expected = |used: u64| {
        vec![
            entry("window", 10, used),
            entry("bucket", 10, used),
            entry("bucket", 7, used),
            entry("held", 4, used),
        ]
    };
    assert_eq!(reset(json!({"attributes": {"user_id": "u"}})), expected(3));
    assert_eq!(reset(json!({"attributes": {"user_id": "u"}})), expected(0));
    assert_eq!(
        reset(json!({"attributes": {}, "rule": "all"})),
        [entry("all", 100, 3)]
    );
    let misspelt = json!({"attributes": {"userid": "u"}}).to_string();
    server.ask("POST /v1/reset", &misspelt).with_status(422);
}

#[test]
fn a_password_is_nowhere_to_be_read() {
    const PASSWORD: &str = "s3cretpassword";
    let redis = RedisServer::options().password(PASSWORD).start();
    let address = redis.address();
    let folder = TestFolder::new();
    let url = format!("redis://{address}");
    let right = [
        ("TIDEGATE_REDIS_DEADLINE", "5s"),
        ("TIDEGATE_REDIS_PASSWORD", PASSWORD),
        ("TIDEGATE_LOG_LEVEL", "debug"),
    ];
    let server = folder.serve_with(&["--redis", &url], &right);
    wait_for_status(&server, 200, "ready");
    let log = server.log.text();
    assert!(!log.contains(PASSWORD), "{log}");
    assert!(log.contains(&url), "{log}");
    drop(server);

    let wrong = format!("redis://:wrong{PASSWORD}@{address}");
    let server = folder.serve_with(&["--redis", &wrong, "--log-level", "debug"], &CALM);
    let ready = server.ask("GET /readyz", "").body;
    let rules = server.ask("PUT /v1/rules", r#"{"rules": []}"#).body;
    let log = server.log.wait_for("Redis does not answer");
    for text in [log, ready, rules, server.ask("GET /metrics", "").body] {
        assert!(!text.contains(PASSWORD), "{text}");
    }
}

#[test]
fn redis_is_reached_by_tls_with_a_certificate() {
    use tidegate_testkit::redis::ClientCertificates;
    let clients = ClientCertificates::Required;
    let redis = RedisServer::options().tls(clients).start();
    let files = redis.certificates().unwrap();
    let path = |path: &std::path::Path| path.display().to_string();
    let (ca, cert, key) = (
        path(&files.authority),
        path(&files.client),
        path(&files.client_key),
    );
    let environment = [
        ("TIDEGATE_REDIS_DEADLINE", "5s"),
        ("TIDEGATE_REDIS_CA", &ca),
        ("TIDEGATE_REDIS_CERT", &cert),
        ("TIDEGATE_REDIS_KEY", &key),
    ];
    let folder = TestFolder::new();
    let server = folder.serve_with(&["--redis", &redis.url()], &environment);
    wait_for_status(&server, 200, "ready");
}

#[test]
fn certificates_for_redis_are_followed() {
    use tidegate_testkit::redis::{Certificates, ClientCertificates};
    let redis = RedisServer::options()
        .tls(ClientCertificates::Required)
        .start();
    let folder = TestFolder::new();
    // Of an authority that this Redis does not know, and that does not vouch for it.
    let elsewhere = TestFolder::new();
    let copy = |files: &Certificates| {
        for (name, file) in [
            ("ca.pem", &files.authority),
            ("cert.pem", &files.client),
            ("key.pem", &files.client_key),
        ] {
            folder.write(name, &std::fs::read_to_string(file).unwrap());
        }
    };
    copy(&Certificates::new(&elsewhere.path(".")));
    let environment = [
        ("TIDEGATE_REDIS_DEADLINE", "5s"),
        ("TIDEGATE_REDIS_CA", &folder.file("ca.pem")),
        ("TIDEGATE_REDIS_CERT", &folder.file("cert.pem")),
        ("TIDEGATE_REDIS_KEY", &folder.file("key.pem")),
    ];
    let server = folder.serve_with(&["--redis", &redis.url()], &environment);
    server.log.wait_for("Redis does not answer");

    let key = std::fs::read_to_string(folder.path("key.pem")).unwrap();
    let whole = redis.certificates().unwrap();
    copy(whole);
    folder.write("key.pem", &key);
    wait_until(
        "the key of another certificate is warned of",
        PATIENCE,
        || {
            let ready = server.ask("GET /readyz", "").json();
            let warnings = ready["warnings"].to_string();
            warnings.contains("`redis_key` named before").then_some(())
        },
    );
    copy(whole);
    wait_for_status(&server, 200, "ready");
}

#[test]
fn a_cluster_is_shared_like_one_redis() {
    let cluster = tidegate_testkit::redis::Cluster::start();
    let folders = [TestFolder::new(), TestFolder::new()];
    let url = cluster.url();
    let [first, second] =
        [&folders[0], &folders[1]].map(|folder| folder.serve_with(&["--redis", &url], &CALM));
    let rules = json!({"rules": [
        {"id": "per-user", "per": ["user_id"], "missing": "deny", "limit": "10/day", "algorithm": "fixed_window", "anchor": "first_request"},
        {"id": "per-key", "per": ["api_key"], "missing": "deny", "limit": "1000/23h"},
    ]});
    let rules = rules.to_string();
    first.ask("PUT /v1/rules", &rules).with_status(200);
    wait_until("the other has the rules", PATIENCE, || {
        let count = second.ask("GET /readyz", "").json()["rules"]["count"].clone();
        (count == 2).then_some(())
    });
    let servers = [&first, &second];
    let answers = (0..30).map(|turn| {
        let reply = check(servers[turn % 2], &json!({"user_id": "u", "api_key": "k"}));
        assert_eq!(reply.json()["degraded"], false, "{reply:?}");
        reply.status
    });
    assert_eq!(answers.filter(|status| *status == 200).count(), 10);
    wait_for_status(&second, 200, "ready");
}

/// A deadline of the default length, for what is about time.
#[test]
fn a_redis_that_is_stopped_holds_no_request_up() {
    let redis = RedisServer::start();
    let folder = TestFolder::new();
    folder.write(
        "rules.yaml",
        "rules:\n  - {id: a, per: [], limit: 1000/23h}\n",
    );
    let url = redis.url();
    let server = folder.serve(&["--redis", &url, "--rules", "rules.yaml"]);
    wait_for_status(&server, 200, "ready");
    redis.stop();
    let start = tidegate_testkit::now();
    for _ in 0..50 {
        check(&server, &json!({})).with_status(200);
    }
    let took = start.elapsed();
    redis.resume();
    assert!(took < Duration::from_secs(5), "{took:?}");
    wait_for_status(&server, 200, "ready");
}

fn metric(server: &Server, name: &str) -> u64 {
    let metrics = server.ask("GET /metrics", "").body;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn a_damaged_counter_is_reported_and_what_was_granted_meanwhile_is_charged() {
    let redis = RedisServer::start();
    let folder = TestFolder::new();
    folder.write(
        "rules.yaml",
        "rules:\n  - {id: per-user, per: [user_id], missing: deny, limit: 10/day, algorithm: fixed_window, anchor: first_request}\n",
    );
    let server = serve(&folder, &redis, &["--rules", "rules.yaml"]);
    let user = json!({"user_id": "client-7"});
    check(&server, &user).with_status(200);
    assert_eq!(server.ask("GET /readyz", "").json()["warnings"], json!([]));
    let keys: Vec<String> = redis.query(&["KEYS", "tg:{client-7}*"]);

    // Of the right type: left as it is.
    let _: String = redis.query(&["SET", &keys[0], "garbage"]);
    for _ in 0..4 {
        let reply = check(&server, &user).with_status(200);
        assert_eq!(reply.json()["degraded"], true);
    }
    let reply = server.ask("GET /readyz", "").with_status(200);
    let ready = reply.json();
    assert_eq!(
        (&ready["status"], &ready["store"]),
        (&json!("ready"), &json!("ok"))
    );
    let warnings = ready["warnings"].to_string();
    assert!(warnings.contains("rule `per-user`"), "{warnings}");
    let log = server.log.wait_for("cannot be read");
    for text in [&warnings, &log] {
        assert!(!text.contains("client-7"), "{text}");
    }
    // Decisions, and what tries to charge there for them.
    assert!(metric(&server, "tidegate_redis_bad_states_total") >= 4);
    let kept: String = redis.query(&["GET", &keys[0]]);
    assert_eq!(kept, "garbage");

    // Healed by hand: what was granted is charged there.
    let _: u64 = redis.query(&["DEL", &keys[0]]);
    let allowed = (0..20).filter(|_| check(&server, &user).status == 200);
    assert_eq!(allowed.count(), 6, "4 of 10 were granted without Redis");

    // Of another type: replaced, and nothing is granted again.
    let _: u64 = redis.query(&["DEL", &keys[0]]);
    let _: u64 = redis.query(&["LPUSH", &keys[0], "foreign"]);
    let reply = wait_until("it was replaced", PATIENCE, || {
        let reply = check(&server, &user);
        (metric(&server, "tidegate_redis_repaired_states_total") == 1).then_some(reply)
    });
    assert_eq!(
        (reply.status, &reply.json()["degraded"]),
        (429, &json!(false))
    );
    let kind: String = redis.query(&["TYPE", &keys[0]]);
    assert_eq!(kind, "string");
}
