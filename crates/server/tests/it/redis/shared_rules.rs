//! Rules in Redis: the same for all servers, kept by each, and never lost in silence.

use serde_json::{Value, json};
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::wait_until;

use crate::Server;
use crate::redis::shared::{check, serve, wait_for_status};
use tidegate_testkit_server::{PATIENCE, TestFolder};

const ONE: &str = r#"{"rules": [{"id": "one", "per": [], "limit": "1/hour"}]}"#;

fn version(server: &Server) -> Value {
    server.ask("GET /readyz", "").json()["rules"]["version"].clone()
}

fn wait_for_version(server: &Server, expected: u64) {
    wait_until(&format!("version {expected}"), PATIENCE, || {
        (version(server) == expected).then_some(())
    });
}

#[test]
fn a_change_reaches_the_other_server() {
    let redis = RedisServer::start();
    let folders = [TestFolder::new(), TestFolder::new()];
    let [first, second] = [&folders[0], &folders[1]].map(|folder| serve(folder, &redis, &[]));
    first.log.wait_for("there are no rules");
    check(&first, &json!({})).with_status(200);

    first.ask("PUT /v1/rules", ONE).with_status(200);
    wait_for_version(&second, 1);
    let ready = second.ask("GET /readyz", "").json();
    assert_eq!(ready["rules"]["source"], "redis");
    assert_eq!(ready["rules"]["count"], 1);
    check(&first, &json!({})).with_status(200);
    check(&second, &json!({})).with_status(429);

    // Each writes on top of what the other wrote.
    let stale = first.ask("GET /v1/rules/one", "");
    let stale = stale.header("etag").unwrap();
    let more = r#"{"id": "one", "per": [], "limit": "5/hour"}"#;
    second.ask("PUT /v1/rules/one", more).with_status(200);
    let tag = [("if-match", stale)];
    let again = r#"{"id": "one", "per": [], "limit": "9/hour"}"#;
    let reply = first.ask_with("PUT /v1/rules/one", &tag, again);
    reply.with_status(412).detail();
    let two = r#"{"id": "two", "per": [], "limit": "9/hour"}"#;
    second.ask("POST /v1/rules", two).with_status(201);
    first.ask("POST /v1/rules", two).with_status(409);
    let old = r#"{"version": 1, "rules": []}"#;
    first.ask("PUT /v1/rules", old).with_status(412);

    for server in [&first, &second] {
        let history = server.ask("GET /v1/rules/history", "").with_status(200);
        let history = history.json();
        let rows = history["history"].as_array().unwrap();
        let versions: Vec<u64> = rows
            .iter()
            .map(|row| row["version"].as_u64().unwrap())
            .collect();
        assert_eq!(versions, [3, 2, 1], "{history}");
        assert_eq!(rows[0]["changes"], json!(["added two"]));
    }
    let back = first.ask("POST /v1/rules/rollback", r#"{"version": 1}"#);
    assert_eq!(back.with_status(200).json()["version"], 4);
    first
        .ask("POST /v1/rules/rollback", r#"{"version": 77}"#)
        .with_status(404);
    wait_for_version(&second, 4);
    second.ask("GET /v1/rules/two", "").with_status(404);
    first.ask("DELETE /v1/rules/one", "").with_status(204);
    wait_for_version(&second, 5);
}

#[test]
fn changes_on_two_servers_at_once_are_all_there() {
    let redis = RedisServer::start();
    let folders = [TestFolder::new(), TestFolder::new()];
    let servers = [&folders[0], &folders[1]].map(|folder| serve(folder, &redis, &[]));
    std::thread::scope(|scope| {
        for (which, server) in servers.iter().enumerate() {
            let mut client = server.client();
            scope.spawn(move || {
                for number in 0..5 {
                    let id = format!("rule-{which}-{number}");
                    let rule = json!({"id": id, "per": [], "limit": "5/hour"});
                    client
                        .ask("POST /v1/rules", &rule.to_string())
                        .with_status(201);
                }
            });
        }
    });
    for server in &servers {
        wait_for_version(server, 10);
        let rules = server.ask("GET /v1/rules", "").json();
        assert_eq!(rules["rules"].as_array().unwrap().len(), 10);
    }
}

#[test]
fn without_redis_the_rules_that_were_kept_are_in_force() {
    let redis = RedisServer::start();
    let folder = TestFolder::new();
    let server = serve(&folder, &redis, &[]);
    server.ask("PUT /v1/rules", ONE).with_status(200);
    server.kill();
    redis.kill();

    let server = serve(&folder, &redis, &[]);
    let ready = wait_for_status(&server, 200, "degraded");
    assert_eq!(
        (&ready["rules"]["count"], &ready["rules"]["version"]),
        (&json!(1), &json!(1))
    );
    assert!(ready["rules"]["problem"].is_string(), "{ready}");
    check(&server, &json!({})).with_status(200);
    check(&server, &json!({})).with_status(429);
    let refused = server.ask("PUT /v1/rules", r#"{"rules": []}"#);
    let detail = refused.with_status(503).detail();
    assert!(detail.contains("nothing was changed"), "{detail}");
    server
        .ask("GET /v1/rules/history", "")
        .with_status(503)
        .detail();
    server.ask("GET /v1/rules/one", "").with_status(200);

    // It comes back empty: the limits must not be gone.
    redis.restart();
    server.log.wait_for("Redis had lost its rules");
    let ready = wait_for_status(&server, 200, "ready");
    assert_eq!(ready["rules"]["count"], 1);
    assert_eq!(ready["rules"]["problem"], Value::Null);
    let history = server.ask("GET /v1/rules/history", "").json();
    assert_eq!(history["history"][0]["by"], "tidegate", "{history}");
}

#[test]
fn without_redis_and_without_rules_nothing_is_decided() {
    let redis = RedisServer::start();
    redis.kill();
    let folder = TestFolder::new();
    let server = serve(&folder, &redis, &[]);
    let ready = wait_for_status(&server, 503, "not ready");
    assert!(ready["rules"]["problem"].is_string(), "{ready}");
    let detail = check(&server, &json!({})).with_status(503).detail();
    assert!(detail.contains("the rules are not known"), "{detail}");
    let batch = r#"{"checks": [{"attributes": {}}]}"#;
    server
        .ask("POST /v1/check/batch", batch)
        .with_status(503)
        .detail();
    server.ask("GET /v1/rules", "").with_status(503).detail();
    server.ask("GET /healthz", "").with_status(200);

    redis.restart();
    wait_for_status(&server, 200, "ready");
    server.log.wait_for("there are no rules");
    check(&server, &json!({})).with_status(200);
}

#[test]
fn redis_is_followed_back_but_not_into_nothing() {
    let redis = RedisServer::start();
    let folders = [TestFolder::new(), TestFolder::new()];
    let [first, second] = [&folders[0], &folders[1]].map(|folder| serve(folder, &redis, &[]));
    first.ask("PUT /v1/rules", ONE).with_status(200);
    let two = r#"{"id": "two", "per": [], "limit": "9/hour"}"#;
    first.ask("POST /v1/rules", two).with_status(201);
    wait_for_version(&second, 2);

    let _: i64 = redis.query(&["HSET", "tg:{rules}", "version", "1"]);
    for server in [&first, &second] {
        server.log.wait_for("Redis returned to an earlier version");
        wait_for_version(server, 1);
        server.ask("GET /v1/rules/two", "").with_status(404);
    }

    let _: String = redis.query(&["FLUSHALL"]);
    let restored = || redis.query::<Option<u64>>(&["HGET", "tg:{rules}", "version"]);
    assert_eq!(wait_until("written back", PATIENCE, restored), 1);
    for server in [&first, &second] {
        server.ask("GET /v1/rules/one", "").with_status(200);
    }
    // And a server that has never seen them has them.
    let third = TestFolder::new();
    let third = serve(&third, &redis, &[]);
    third.ask("GET /v1/rules/one", "").with_status(200);

    let _: i64 = redis.query(&["HSET", "tg:{rules}:texts", "1", "{}"]);
    let _: i64 = redis.query(&["PUBLISH", "tg:rules", "1"]);
    let log = third
        .log
        .wait_for("version 1 of the rules in Redis cannot be used");
    assert!(log.contains("the rules stay as they were"), "{log}");
    third.ask("GET /v1/rules/one", "").with_status(200);
    third
        .ask("DELETE /v1/rules/one", "")
        .with_status(409)
        .detail();
    let repaired = third.ask("PUT /v1/rules", ONE).with_status(200);
    assert_eq!(repaired.json()["version"], 2);
    let ready = wait_for_status(&third, 200, "ready");
    assert_eq!(ready["rules"]["problem"], Value::Null);
    wait_for_version(&first, 2);
}

#[test]
fn the_rules_of_a_data_directory_go_along_to_redis() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    server.ask("PUT /v1/rules", ONE).with_status(200);
    server.kill();
    let redis = RedisServer::start();
    let server = serve(&folder, &redis, &[]);
    server
        .log
        .wait_for("those of the data directory are in Redis now");
    let other = TestFolder::new();
    let other = serve(&other, &redis, &[]);
    other.ask("GET /v1/rules/one", "").with_status(200);
}

#[test]
fn rules_that_are_damaged_here_and_lost_in_redis_are_not_taken_for_none() {
    let redis = RedisServer::start();
    let folder = TestFolder::new();
    std::fs::create_dir_all(folder.path("data/rules")).unwrap();
    folder.write("data/rules/000000000001.json", "damaged");
    let server = serve(&folder, &redis, &[]);
    let ready = wait_for_status(&server, 503, "not ready");
    let problem = ready["rules"]["problem"].as_str().unwrap();
    assert!(problem.contains("Redis has no rules"), "{problem}");
    check(&server, &json!({})).with_status(503);

    let other = TestFolder::new();
    let other = serve(&other, &redis, &[]);
    other.ask("PUT /v1/rules", ONE).with_status(200);
    wait_for_status(&server, 200, "ready");
    check(&server, &json!({})).with_status(200);
}

#[test]
fn an_empty_set_of_rules_in_redis_is_taken_over_with_a_warning() {
    let redis = RedisServer::start();
    let folder = TestFolder::new();
    let server = serve(&folder, &redis, &[]);
    let text = r#"[{"id": "a", "per": [], "limit": "1/hour"}]"#;
    for (version, text) in [("98", text), ("99", "[]")] {
        let _: u64 = redis.query(&["HSET", "tg:{rules}:texts", version, text]);
        let _: u64 = redis.query(&["HSET", "tg:{rules}", "version", version]);
        server.log.wait_for(&format!("version={version}"));
    }
    let log = server.log.wait_for("an empty set");
    let line = log.lines().find(|line| line.contains("an empty set"));
    let line = line.unwrap();
    assert!(
        line.contains("WARN") && line.contains("version=99"),
        "{line}"
    );
}
