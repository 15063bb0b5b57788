//! Why requests are denied, in the answers, the log and the metrics of a server, in memory and with Redis.

use serde_json::{Value, json};
use tidegate_testkit::redis::RedisServer;

use crate::Server;
use crate::redis::shared;
use tidegate_testkit_server::ClientReply;
use tidegate_testkit_server::TestFolder;

const RULES: &str = "rules:
- {id: over, match: {path: /over}, per: [], limit: 1/hour}
- {id: blocked, match: {path: /blocked}, per: [user_id], limit: 5/hour, overrides: {mallory: blocked}}
- {id: missing, match: {path: /missing}, per: [ip, user_id, 'a\"b'], missing: deny, limit: 5/hour}
- {id: costly, match: {path: /costly}, per: [], limit: 5/hour}
- {id: window, match: {path: /window}, per: [], limit: 5/day, algorithm: fixed_window}
- {id: held, match: {path: /held}, per: [], limit: 2, algorithm: concurrency}
";

fn ask(server: &Server, path: &str, user: Option<&str>, cost: u64) -> ClientReply {
    let mut attributes = json!({"path": path, "ip": "203.0.113.7"});
    if let Some(user) = user {
        attributes["user_id"] = json!(user);
    }
    let body = json!({"attributes": attributes, "cost": cost}).to_string();
    server.ask("POST /v1/check", &body)
}

fn each_reason_is_given(server: &Server) {
    ask(server, "/over", None, 1).with_status(200);
    #[rustfmt::skip]
    let table = [
        ("/over",       None,               1,  "over_limit",           json!(null)),
        ("/blocked",    Some("mallory"),    1,  "blocked",              json!(null)),
        ("/missing",    None,               1,  "missing_attribute",    json!(["user_id", "a\"b"])),
        ("/costly",     None,               6,  "too_expensive",        json!(null)),
        ("/window",     None,               6,  "too_expensive",        json!(null)),
        ("/held",       None,               3,  "too_expensive",        json!(null)),
    ];
    for (path, user, cost, reason, missing) in &table {
        let answer = ask(server, path, *user, *cost).with_status(429).json();
        for part in [&answer, &answer["limits"][0]] {
            assert_eq!(part["reason"], **reason, "{path}: {answer}");
            assert_eq!(part["missing"], *missing, "{path}: {answer}");
            assert_eq!(part.get("missing").is_some(), !missing.is_null());
        }
    }
    let allowed = ask(server, "/blocked", Some("ann"), 1)
        .with_status(200)
        .json();
    assert_eq!(allowed["reason"], Value::Null);
    assert_eq!(allowed["limits"][0]["reason"], Value::Null);
    let metrics = server.ask("GET /metrics", "").body;
    for (path, _, _, reason, _) in table {
        let rule = &path[1..];
        let line = format!(r#"tidegate_denied_total{{rule="{rule}",reason="{reason}"}} 1"#);
        assert!(
            metrics.lines().any(|known| known == line),
            "{line}: {metrics}"
        );
    }
}

#[test]
fn each_reason_is_given_in_memory() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    let server = folder.serve(&["--rules", "rules.yaml"]);
    each_reason_is_given(&server);
    let log = server.log.wait_for_times(" denied ", 6);
    let said = r#"denied rule="missing" reason="missing_attribute" missing="user_id,a\"b""#;
    assert!(log.contains(said), "{log}");
}

#[test]
fn each_reason_is_given_with_redis() {
    let (redis, folder) = (RedisServer::start(), TestFolder::new());
    folder.write("rules.yaml", RULES);
    let server = shared::serve(&folder, &redis, &["--rules", "rules.yaml"]);
    each_reason_is_given(&server);
}

#[test]
fn a_store_that_is_gone_is_a_reason_of_its_own() {
    let (redis, folder) = (RedisServer::start(), TestFolder::new());
    let rules = "rules:\n- {id: strict, per: [], limit: 5/hour, on_store_failure: deny}\n";
    folder.write("rules.yaml", rules);
    let server = shared::serve(&folder, &redis, &["--rules", "rules.yaml"]);
    ask(&server, "/", None, 1).with_status(200);
    redis.kill();
    let answer = ask(&server, "/", None, 1).with_status(503).json();
    assert_eq!(answer["reason"], "store_unavailable", "{answer}");
    assert_eq!(answer["limits"][0]["reason"], "store_unavailable");
    let refused = server.ask("GET /v1/authorize", "").with_status(503).json();
    assert_eq!(refused["reason"], "store_unavailable", "{refused}");
    let metrics = server.ask("GET /metrics", "").body;
    let line = r#"tidegate_denied_total{rule="strict",reason="store_unavailable"} 2"#;
    assert!(metrics.contains(line), "{metrics}");
}

/// Programs read the answer by its names; people read it in this order.
#[test]
fn the_fields_of_an_answer_have_their_order() {
    let folder = TestFolder::new();
    folder.write(
        "rules.yaml",
        "rules:\n- {id: per-user, per: [user_id], missing: deny, limit: 100/minute}\n",
    );
    let server = folder.serve(&["--rules", "rules.yaml", "--trust-timestamps"]);
    let body = r#"{"attributes": {"user_id": "u1"}, "cost": 101, "timestamp": 1794770000.25}"#;
    let denied = server.ask("POST /v1/check", body).with_status(429).body;
    let expected = concat!(
        r#"{"allowed":false,"rule":"per-user","limit":100,"remaining":100,"reset_time":1794770000.25,"#,
        r#""retry_after":null,"delay":0,"degraded":false,"lease":null,"limits":[{"rule":"per-user","#,
        r#""algorithm":"token_bucket","window":60,"rate":100,"allowed":false,"limit":100,"remaining":100,"#,
        r#""reset_time":1794770000.25,"retry_after":null,"delay":0,"shadow":false,"degraded":false,"#,
        r#""reason":"too_expensive"}],"reason":"too_expensive"}"#
    );
    assert_eq!(denied, expected);
    let batch = format!(r#"{{"checks": [{body}, {{"attributes": {{}}}}]}}"#);
    let batch = server.ask("POST /v1/check/batch", &batch).with_status(200);
    let decisions = batch.json();
    assert_eq!(decisions["decisions"][0]["reason"], "too_expensive");
    assert_eq!(decisions["decisions"][1]["reason"], "missing_attribute");
    assert_eq!(decisions["decisions"][1]["missing"], json!(["user_id"]));
}
