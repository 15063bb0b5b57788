//! Explanations over Redis: exactly what a check then answers, and with leases the same verdict and numbers.

use serde_json::{Value, json};
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit_server::TestFolder;

use super::shared::serve;

const RULES: &str = "rules:
  - {id: user, per: [user_id], missing: deny, limit: 5/minute; 12/hour, algorithm: sliding_window_log}
  - {id: bucket, per: [user_id], limit: 6/minute, max_delay: 20s}
  - {id: counter, per: [], limit: 30/minute, algorithm: sliding_window_counter}
  - {id: held, per: [user_id], limit: 4, algorithm: concurrency, lease_ttl: 1m}
  - {id: shadow, per: [], limit: 7/minute, mode: shadow}
  - {id: writes, match: {method: POST}, per: [user_id], limit: 3/minute, algorithm: fixed_window}
";

#[test]
fn over_redis_an_explanation_says_what_the_check_then_answers() {
    let redis = RedisServer::start();
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    let server = serve(
        &folder,
        &redis,
        &["--rules", "rules.yaml", "--trust-timestamps"],
    );
    // Which values a request has follows its number, in steps that share no factor.
    for turn in 0_u64..80 {
        let method = if turn % 3 == 0 { "POST" } else { "GET" };
        let cost = [1, 2, 0, 1, 40][usize::try_from(turn % 5).unwrap()];
        let mut attributes = json!({ "method": method });
        if turn % 11 > 0 {
            attributes["user_id"] = json!(format!("u{}", turn % 2));
        }
        let body = json!({
            "attributes": attributes,
            "cost": cost,
            "timestamp": 1_794_770_000 + turn * 7,
        });
        let explained = server
            .ask("POST /v1/explain", &body.to_string())
            .with_status(200)
            .json();
        let mut decision = server.ask("POST /v1/check", &body.to_string()).json();
        decision["lease"] = Value::Null;
        assert_eq!(explained["decision"], decision, "turn {turn}: {body}");
    }
}

#[test]
fn with_leases_an_explanation_has_the_verdict_and_what_is_left() {
    let redis = RedisServer::start();
    let folder = TestFolder::new();
    let rules = "rules:\n  - {id: leased, per: [user_id], limit: 40/day, algorithm: fixed_window, sync: leased}\n";
    folder.write("rules.yaml", rules);
    let server = serve(&folder, &redis, &["--rules", "rules.yaml"]);
    let mut denied = 0;
    for turn in 0..50 {
        let body = r#"{"attributes": {"user_id": "u"}}"#;
        let explained = server.ask("POST /v1/explain", body).with_status(200).json();
        let decision = server.ask("POST /v1/check", body).json();
        for part in ["allowed", "rule", "limit", "remaining", "reason"] {
            assert_eq!(
                explained["decision"][part], decision[part],
                "{part} of turn {turn}"
            );
        }
        denied += u32::from(decision["allowed"] == false);
    }
    assert_eq!(denied, 10);
}
