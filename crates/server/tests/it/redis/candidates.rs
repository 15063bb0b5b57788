//! Candidates and rollouts over Redis: one more charge in the same call, the same keys on every server.

use serde_json::{Value, json};
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit_server::TestFolder;

use crate::Server;
use crate::redis::shared::{check, serve, wait_for_status};

fn two(folders: &[TestFolder; 2], redis: &RedisServer, rules: &str) -> [Server; 2] {
    folders.each_ref().map(|folder| {
        folder.write("rules.yaml", rules);
        serve(folder, redis, &["--rules", "rules.yaml"])
    })
}

fn allowed(reply: &Value) -> Vec<bool> {
    let limits = reply["limits"].as_array().unwrap();
    limits
        .iter()
        .map(|limit| limit["allowed"] == true)
        .collect()
}

#[test]
fn servers_share_the_counters_of_a_candidate() {
    let redis = RedisServer::start();
    let folders = [TestFolder::new(), TestFolder::new()];
    for (name, more) in [("exact", ""), ("leased", ", sync: leased")] {
        let rules = format!(
            "rules:\n  - {{id: {name}, per: [user_id], missing: deny, limit: 6/day burst 6, candidate: 4/day burst 4{more}}}\n"
        );
        let servers = two(&folders, &redis, &rules);
        let mut counts = [0, 0];
        for turn in 0..10 {
            let reply = check(&servers[turn % 2], &json!({"user_id": "u"})).json();
            assert_eq!(reply["degraded"], false, "{reply}");
            let allowed = allowed(&reply);
            assert_eq!(allowed.len(), 2, "{reply}");
            for (count, allowed) in counts.iter_mut().zip(allowed) {
                *count += u32::from(allowed);
            }
        }
        assert_eq!(counts[0], 6, "{name}");
        // What an instance holds in advance, another cannot use.
        let is_expected = if more.is_empty() {
            counts[1] == 4
        } else {
            counts[1] <= 4
        };
        assert!(is_expected, "{name} {counts:?}");
        for server in servers {
            server.stop();
        }
    }
}

#[test]
fn a_candidate_is_in_the_same_call_and_in_the_same_slot() {
    let redis = RedisServer::start();
    let folder = TestFolder::new();
    let rules =
        "rules:\n  - {id: a, per: [user_id], missing: deny, limit: 100/day, candidate: 50/day}\n";
    folder.write("rules.yaml", rules);
    let server = serve(&folder, &redis, &["--rules", "rules.yaml"]);
    check(&server, &json!({"user_id": "u"})).with_status(200);
    let calls = || {
        let info: String = redis.query(&["INFO", "commandstats"]);
        let line = info.lines().find(|line| line.contains("cmdstat_evalsha:"));
        let calls =
            line.and_then(|line| line.split("calls=").nth(1)?.split(',').next()?.parse().ok());
        calls.unwrap_or(0_u64)
    };
    let before = calls();
    for _ in 0..20 {
        check(&server, &json!({"user_id": "u"})).with_status(200);
    }
    let made = calls() - before;
    assert!(made <= 25, "{made} calls for 20 checks");
    let keys: Vec<String> = redis.query(&["KEYS", "*{u}*"]);
    assert_eq!(keys.len(), 2, "{keys:?}");
}

#[test]
fn every_server_rolls_out_to_the_same_keys() {
    let redis = RedisServer::start();
    let folders = [TestFolder::new(), TestFolder::new()];
    let rules = "rules:\n  - {id: a, per: [user_id], missing: deny, limit: 1000/day, candidate: 500/day, rollout: 40%}\n";
    let servers = two(&folders, &redis, rules);
    let cohort = |server: &Server| -> Vec<bool> {
        let is_in = |user: u32| {
            let reply = check(server, &json!({"user_id": format!("u{user}")})).json();
            reply["limit"] == 500
        };
        (0..60).map(is_in).collect()
    };
    let [first, second] = servers.each_ref().map(cohort);
    assert_eq!(first, second);
    assert!(first.iter().any(|is_in| *is_in) && !first.iter().all(|is_in| *is_in));
}

#[test]
fn without_redis_a_candidate_says_nothing_unless_it_decides() {
    let redis = RedisServer::start();
    let folder = TestFolder::new();
    let rules = "rules:
  - {id: tried, match: {path: /tried}, per: [user_id], missing: deny, limit: 100/day, candidate: 50/day}
  - {id: rolled, match: {path: /rolled}, per: [user_id], missing: deny, limit: 100/day, candidate: 50/day, rollout: 100%}\n";
    folder.write("rules.yaml", rules);
    let server = serve(&folder, &redis, &["--rules", "rules.yaml"]);
    let ask = |path: &str| {
        check(&server, &json!({"user_id": "u", "path": path}))
            .with_status(200)
            .json()
    };
    assert_eq!(ask("/tried")["limits"].as_array().unwrap().len(), 2);
    redis.kill();
    wait_for_status(&server, 200, "degraded");
    let tried = ask("/tried");
    assert_eq!(
        (&tried["degraded"], &tried["limit"]),
        (&json!(true), &json!(100))
    );
    assert_eq!(tried["limits"].as_array().unwrap().len(), 1, "{tried}");
    let rolled = ask("/rolled");
    assert_eq!(
        (&rolled["degraded"], &rolled["limit"]),
        (&json!(true), &json!(50))
    );
    assert_eq!(rolled["limits"][0]["candidate"], true, "{rolled}");
}

#[test]
fn a_reservation_settles_the_candidate_on_its_own() {
    let redis = RedisServer::start();
    let folder = TestFolder::new();
    let rules = "rules:\n  - {id: a, per: [user_id], missing: deny, unit: tokens, limit: 100/day, candidate: 50/day}\n";
    folder.write("rules.yaml", rules);
    let server = serve(&folder, &redis, &["--rules", "rules.yaml"]);
    let reserve = |tokens: u64| {
        let body = json!({"attributes": {"user_id": "u"}, "costs": {"tokens": tokens}});
        server
            .ask("POST /v1/reserve", &body.to_string())
            .with_status(200)
            .json()
    };
    let reserved = reserve(40);
    assert_eq!(allowed(&reserved), [true, true], "{reserved}");
    let id = reserved["reservation"].as_str().unwrap();
    let call = format!("POST /v1/reservations/{id}/settle");
    let settled = server
        .ask(&call, r#"{"costs": {"tokens": 10}}"#)
        .with_status(200)
        .json();
    let limits = settled["limits"].as_array().unwrap();
    assert_eq!(limits.len(), 2, "{settled}");
    for (limit, is_candidate) in limits.iter().zip([Value::Null, json!(true)]) {
        assert_eq!(
            (&limit["rule"], &limit["given_back"]),
            (&json!("a"), &json!(30))
        );
        assert_eq!(limit["candidate"], is_candidate);
    }
    assert_eq!(allowed(&reserve(45)), [true, false]);
}
