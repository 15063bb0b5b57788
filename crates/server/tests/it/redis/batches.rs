//! Batches of checks over Redis: decided together, answered in their order.

use serde_json::{Value, json};
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit_server::TestFolder;

use super::shared::serve;
use crate::Server;

const RULES: &str = "rules: [{id: r, per: [user_id], missing: deny, limit: 10/day, algorithm: fixed_window, anchor: first_request}]";

/// Which of a batch of checks by these users are allowed.
fn ask(server: &Server, users: impl Iterator<Item = u32>) -> Vec<bool> {
    let check = |user: u32| json!({"attributes": {"user_id": user.to_string()}});
    let batch = json!({"checks": users.map(check).collect::<Vec<_>>()});
    let reply = server.ask("POST /v1/check/batch", &batch.to_string());
    let reply = reply.with_status(200).json();
    let decisions = reply["decisions"].as_array().unwrap().iter();
    let is_allowed = |decision: &Value| {
        assert_eq!(decision["degraded"], false, "{decision}");
        decision["allowed"].as_bool().unwrap()
    };
    decisions.map(is_allowed).collect()
}

/// How many calls the server has sent to Redis.
fn calls(server: &Server) -> u64 {
    let metrics = server.ask("GET /metrics", "").body;
    let mut lines = metrics.lines();
    let line = lines.find_map(|line| line.strip_prefix("tidegate_redis_calls_total "));
    line.unwrap().parse().unwrap()
}

#[test]
fn a_batch_takes_few_calls_and_is_decided_in_its_order() {
    let (redis, folder) = (RedisServer::start(), TestFolder::new());
    folder.write("rules.yaml", RULES);
    let server = serve(&folder, &redis, &["--rules", "rules.yaml"]);

    let before = calls(&server);
    let allowed = ask(&server, 0..1_000);
    assert!(allowed.iter().all(|is_allowed| *is_allowed));
    let taken = calls(&server) - before;
    assert!(taken < 100, "{taken} calls for 1,000 checks");

    let allowed = ask(&server, (0..200).map(|_| 1_000));
    let first_denied = allowed.iter().position(|is_allowed| !is_allowed);
    assert_eq!(first_denied, Some(10));
    assert!(!allowed[10..].iter().any(|is_allowed| *is_allowed));
}
