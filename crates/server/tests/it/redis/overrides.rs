//! Temporary overrides in Redis: the same for all servers, also where rules come from a file.

use serde_json::{Value, json};
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::wait_until;
use tidegate_testkit_server::{PATIENCE, TestFolder};

use crate::Server;
use crate::redis::shared::{check, serve, wait_for_status};

const RULES: &str = "
rules:
  - {id: exact, match: {path: /exact}, per: [user_id], limit: 2/day, algorithm: fixed_window, anchor: first_request}
  - {id: leased, match: {path: /leased}, per: [user_id], limit: 2/day, algorithm: fixed_window, anchor: first_request, sync: leased}
  - {id: secret, match: {path: /secret}, per: [api_key], limit: blocked}
";

fn put(server: &Server, rule: &str, body: &Value) -> Value {
    let call = format!("POST /v1/rules/{rule}/overrides");
    let reply = server.ask(&call, &body.to_string());
    reply.with_status(201).json()
}

fn listed(server: &Server) -> Vec<Value> {
    let reply = server.ask("GET /v1/overrides", "").with_status(200);
    reply.json()["overrides"].as_array().unwrap().clone()
}

fn wait_for(server: &Server, expected: &[Value]) {
    wait_until("the overrides", PATIENCE, || {
        (listed(server) == expected).then_some(())
    });
}

fn two<'a>(folders: &'a [TestFolder; 2], redis: &RedisServer) -> [Server; 2] {
    folders.each_ref().map(|folder: &'a TestFolder| {
        folder.write("rules.yaml", RULES);
        serve(folder, redis, &["--rules", "rules.yaml"])
    })
}

#[test]
fn a_change_reaches_the_other_server_also_where_units_are_leased() {
    let redis = RedisServer::start();
    let folders = [TestFolder::new(), TestFolder::new()];
    let [first, second] = two(&folders, &redis);
    for rule in ["exact", "leased"] {
        let user = json!({"path": format!("/{rule}"), "user_id": "u1"});
        for _ in 0..2 {
            check(&second, &user).with_status(200);
        }
        check(&second, &user).with_status(429);
        let body = json!({"key": "u1", "limit": "5/day", "for": "1h", "reason": "import"});
        let made = put(&first, rule, &body);
        wait_for(&second, &[made]);
        // It continues with what was used.
        for _ in 0..3 {
            check(&second, &user).with_status(200);
        }
        check(&second, &user).with_status(429);
        check(&first, &user).with_status(429);
        let call = format!("DELETE /v1/rules/{rule}/overrides/u1");
        second.ask(&call, "").with_status(204);
        wait_for(&first, &[]);
        check(&first, &user).with_status(429);
    }
    for server in [&first, &second] {
        let history = server.ask("GET /v1/rules/history", "").json();
        let rows = history["history"].as_array().unwrap();
        assert_eq!(rows.len(), 5, "{history}");
        assert_eq!(rows[0]["changes"][0], "removed override of leased for u1");
    }
}

#[test]
fn changes_on_two_servers_at_once_are_all_there() {
    let redis = RedisServer::start();
    let folders = [TestFolder::new(), TestFolder::new()];
    let servers = two(&folders, &redis);
    std::thread::scope(|scope| {
        for (which, server) in servers.iter().enumerate() {
            scope.spawn(move || {
                for number in 0..3 {
                    let key = format!("u{which}-{number}");
                    put(
                        server,
                        "exact",
                        &json!({"key": key, "limit": "5/day", "for": "1h"}),
                    );
                }
            });
        }
    });
    for server in &servers {
        wait_until("all of them", PATIENCE, || {
            (listed(server).len() == 6).then_some(())
        });
    }
}

#[test]
fn a_start_without_redis_has_the_copy_and_a_redis_that_lost_them_gets_it() {
    let redis = RedisServer::start();
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    let arguments = ["--rules", "rules.yaml"];
    let server = serve(&folder, &redis, &arguments);
    let made = put(
        &server,
        "exact",
        &json!({"key": "u1", "limit": "blocked", "for": "1h"}),
    );
    server.kill();
    redis.kill();

    let server = serve(&folder, &redis, &arguments);
    wait_for_status(&server, 200, "degraded");
    let user = json!({"path": "/exact", "user_id": "u1"});
    check(&server, &user).with_status(429);
    let body = json!({"key": "u2", "limit": "blocked", "for": "1h"}).to_string();
    let refused = server.ask("POST /v1/rules/exact/overrides", &body);
    let refused = refused.with_status(503);
    assert!(
        refused.detail().contains("nothing was changed"),
        "{refused:?}"
    );
    check(&server, &json!({"path": "/exact", "user_id": "u2"})).with_status(200);

    // It keeps nothing over its end.
    redis.restart();
    server
        .log
        .wait_for("those in force here were written to it");
    let key = "tg:{rules}:overrides";
    let text = wait_until("they are in Redis", PATIENCE, || {
        redis.query::<Option<String>>(&["HGET", key, "text"])
    });
    assert!(text.contains("u1"), "{text}");
    check(&server, &user).with_status(429);
    assert_eq!(listed(&server), [made]);
    let call = "DELETE /v1/rules/exact/overrides/u1";
    server.ask(call, "").with_status(204);
    check(&server, &user).with_status(200);
}

#[test]
fn no_secret_is_in_redis_and_digests_are_those_of_all_servers() {
    let redis = RedisServer::start();
    let folders = [TestFolder::new(), TestFolder::new()];
    let [first, second] = two(&folders, &redis);
    let secret = "sk_clear_0123456789abcdef";
    let client = json!({"path": "/secret", "api_key": secret});
    let body = json!({"key": secret, "limit": "unlimited", "for": "1h"});
    let made = put(&first, "secret", &body);
    wait_for(&second, std::slice::from_ref(&made));
    check(&second, &client).with_status(200);
    let digest = made["digest"].as_str().unwrap();
    let keys: Vec<String> = redis.query(&["KEYS", "*"]);
    assert!(
        keys.contains(&"tg:{rules}:overrides".to_owned()),
        "{keys:?}"
    );
    let text: Vec<String> = redis.query(&["HVALS", "tg:{rules}:overrides"]);
    let text = text.concat();
    assert!(text.contains(digest), "{text}");
    let logs = [&first, &second].map(|server| server.log.text());
    for text in keys.iter().chain([&text]).chain(&logs) {
        // Nor a hash against which anyone can try a guess.
        assert!(!text.contains(secret) && !text.contains("sha256"), "{text}");
    }
    // Another server knows the client by the same digest.
    let body = json!({"key": digest, "limit": "blocked", "for": "1h"});
    let replaced = put(&second, "secret", &body);
    wait_for(&first, &[replaced]);
    check(&first, &client).with_status(429);
}
