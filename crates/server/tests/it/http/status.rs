//! The state of a server, for people and their tools.

use serde_json::{Value, json};
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::wait_until;
use tidegate_testkit_server::{PATIENCE, TestFolder};

use crate::Server;
use crate::redis::shared::{check, serve};

const RULES: &str = "rules:\n  - {id: one, per: [user_id], limit: 10/hour}\n";

fn status(server: &Server) -> Value {
    server.ask("GET /v1/status", "").with_status(200).json()
}

#[test]
fn a_server_with_its_own_memory_reports_keys_leases_and_snapshots() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let rules = json!({"rules": [
        {"id": "one", "per": ["user_id"], "limit": "10/hour"},
        {"id": "at-once", "per": [], "limit": 5, "algorithm": "concurrency"},
    ]});
    server
        .ask("PUT /v1/rules", &rules.to_string())
        .with_status(200);
    check(&server, &json!({"user_id": "u1"})).with_status(200);
    let status = status(&server);
    assert_eq!(status["status"], "ready");
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert!(status["uptime"].as_f64().unwrap() > 0.0, "{status}");
    let store = json!({"kind": "memory", "latency": null, "breaker": null, "degraded_since": null, "problem": null});
    assert_eq!(status["store"], store);
    let rules = json!({"source": "data directory", "version": 1, "count": 2, "problem": null, "file": null});
    assert_eq!(status["rules"], rules);
    assert_eq!(status["instances"], 1);
    assert_eq!(
        (&status["console"], &status["activity"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(status["leases"], 1);
    assert_eq!(status["keys"], 2);
    assert_eq!(status["snapshot"]["last_written"], Value::Null);
    assert!(status["snapshot"]["age"].as_f64().unwrap() < 60.0);
    assert_eq!(status["snapshot"]["problem"], Value::Null);
    server
        .ask("GET /v1/status?verbose=1", "")
        .with_status(400)
        .detail();

    // The counters are written at the end, and read at the next start.
    server.stop();
    let server = folder.serve(&[]);
    let written = self::status(&server)["snapshot"]["last_written"].clone();
    assert!(written.as_f64().unwrap() > 1.7e9, "{written}");
}

#[test]
fn with_redis_latency_and_the_begin_of_an_outage_are_reported() {
    let redis = RedisServer::start();
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    let server = serve(&folder, &redis, &["--rules", "rules.yaml"]);
    let whole = wait_until("the count of servers", PATIENCE, || {
        let status = status(&server);
        (status["instances"] == 1).then_some(status)
    });
    assert_eq!(whole["store"]["kind"], "redis");
    assert!(whole["store"]["latency"].as_f64().unwrap() > 0.0, "{whole}");
    assert_eq!(whole["store"]["breaker"], "closed");
    assert_eq!(whole["store"]["degraded_since"], Value::Null);
    assert_eq!(
        (&whole["keys"], &whole["snapshot"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(whole["leases"], 0);
    assert_eq!(whole["rules"]["source"], "file");
    assert_eq!(whole["rules"]["file"], folder.file("rules.yaml"));

    redis.kill();
    let down = wait_until("the outage", PATIENCE, || {
        let status = status(&server);
        (status["store"]["breaker"] == "open").then_some(status)
    });
    assert_eq!(down["status"], "degraded");
    assert_eq!(down["store"]["latency"], Value::Null);
    assert!(down["store"]["problem"].is_string(), "{down}");
    let since = down["store"]["degraded_since"].clone();
    assert!(since.as_f64().unwrap() > 1.7e9, "{down}");
    assert_eq!(status(&server)["store"]["degraded_since"], since);

    redis.restart();
    let again = wait_until("Redis again", PATIENCE, || {
        let status = status(&server);
        (status["store"]["breaker"] == "closed").then_some(status)
    });
    assert_eq!(again["store"]["degraded_since"], Value::Null);
}

/// A Redis that does not answer holds the call no longer than a decision.
#[test]
fn a_redis_that_hangs_does_not_hold_the_answer() {
    let redis = RedisServer::start();
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    let url = redis.url();
    let arguments = ["--rules", "rules.yaml", "--redis", url.as_str()];
    let server = folder.serve_with(&arguments, &[("TIDEGATE_REDIS_DEADLINE", "200ms")]);
    wait_until("Redis", PATIENCE, || {
        (status(&server)["store"]["breaker"] == "closed").then_some(())
    });
    redis.stop();
    let hung = wait_until("the outage", PATIENCE, || {
        let status = status(&server);
        (status["status"] == "degraded").then_some(status)
    });
    assert_eq!(hung["store"]["latency"], Value::Null, "{hung}");
    redis.resume();
}

#[test]
fn the_memory_of_states_is_shown_and_permits_beyond_it_are_503() {
    let folder = TestFolder::new();
    let server = folder.serve_with(&[], &[("TIDEGATE_MAX_MEMORY", "1MiB")]);
    let rules = json!({"rules": [
        {"id": "held", "match": {"path": "/jobs"}, "per": ["user_id"], "limit": 5, "algorithm": "concurrency", "lease_ttl": "1h"},
        {"id": "counted", "match": {"path": "/v1"}, "per": ["user_id"], "limit": "5/hour"},
    ]});
    server
        .ask("PUT /v1/rules", &rules.to_string())
        .with_status(200);
    let memory = status(&server)["memory"].clone();
    assert_eq!(memory, json!({"used": 0, "bound": 1 << 20}));
    let mut permits = 0;
    for batch in 0..5 {
        let checks: Vec<Value> = (0..1_000)
            .map(|index| json!({"attributes": {"path": "/jobs", "user_id": format!("{batch} {index}")}}))
            .collect();
        let body = json!({ "checks": checks }).to_string();
        let decisions = server
            .ask("POST /v1/check/batch", &body)
            .with_status(200)
            .json();
        for decision in decisions["decisions"].as_array().unwrap() {
            if decision["allowed"] == true {
                permits += 1;
            } else {
                assert_eq!(decision["reason"], "store_unavailable", "{decision}");
            }
        }
    }
    assert!((2_000..5_000).contains(&permits), "{permits}");
    let refused = check(&server, &json!({"path": "/jobs", "user_id": "a"})).with_status(503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    let now = status(&server);
    assert_eq!(now["leases"], permits, "none was evicted");
    let used = now["memory"]["used"].as_u64().unwrap();
    // A 16th is left to counters.
    let most = (15 << 20) / 16;
    assert!((most..most + 4_096).contains(&used), "{used}");
    for user in 0..10 {
        check(
            &server,
            &json!({"path": "/v1", "user_id": user.to_string()}),
        )
        .with_status(200);
    }
    server
        .log
        .wait_for("nine tenths of the memory for counters and permits are used");
    let page = server.ask("GET /metrics", "").body;
    assert!(page.contains("tidegate_memory_max_bytes 1048576"), "{page}");
}
