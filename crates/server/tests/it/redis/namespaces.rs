//! Several deployments on one Redis: nothing of one is seen by another.

use serde_json::json;
use tidegate_testkit::redis::{Cluster, RedisServer};
use tidegate_testkit::wait_until;

use crate::Server;
use crate::redis::shared::{check, wait_for_status};
use crate::resp::{Client, Value};
use tidegate_testkit_server::{PATIENCE, TestFolder};

fn serve(folder: &TestFolder, url: &str, namespace: &str) -> Server {
    let environment = [
        ("TIDEGATE_REDIS_DEADLINE", "5s"),
        ("TIDEGATE_NAMESPACE", namespace),
    ];
    folder.serve_with(&["--redis", url, "--resp", "127.0.0.1:0"], &environment)
}

#[test]
fn servers_of_different_namespaces_share_neither_rules_nor_counters() {
    let redis = RedisServer::start();
    let folders = [
        TestFolder::new(),
        TestFolder::new(),
        TestFolder::new(),
        TestFolder::new(),
    ];
    // An empty variable is none.
    let names = ["", "staging", "staging", "rules"];
    let servers: Vec<Server> = folders
        .iter()
        .zip(names)
        .map(|(folder, name)| serve(folder, &redis.url(), name))
        .collect();
    let rule = |limit: &str| {
        json!({"id": "per-user", "per": ["user_id"], "missing": "deny", "limit": limit}).to_string()
    };
    servers[0]
        .ask("POST /v1/rules", &rule("5/hour"))
        .with_status(201);
    servers[1]
        .ask("POST /v1/rules", &rule("7/hour"))
        .with_status(201);
    wait_until("the other of the same namespace follows", PATIENCE, || {
        (servers[2].ask("GET /v1/rules/per-user", "").status == 200).then_some(())
    });
    servers[3]
        .ask("GET /v1/rules/per-user", "")
        .with_status(404);

    let remaining = |server: &Server| {
        check(server, &json!({"user_id": "u"}))
            .with_status(200)
            .json()["remaining"]
            .clone()
    };
    assert_eq!(remaining(&servers[0]), 4);
    assert_eq!(remaining(&servers[1]), 6);
    assert_eq!(remaining(&servers[2]), 5, "the same counter");
    let mut throttled =
        servers.iter().map(
            |server| match Client::to(server).ask("CL.THROTTLE k 9 1 86400") {
                Value::Array(reply) => reply[2].clone(),
                other => panic!("{other:?}"),
            },
        );
    for left in [9, 9, 8, 9] {
        assert_eq!(throttled.next(), Some(Value::Integer(left)));
    }
    for (server, count) in servers.iter().zip([1, 2, 2, 1]) {
        let line = format!("\ntidegate_instances {count}\n");
        wait_until("it counts the servers of its namespace", PATIENCE, || {
            server
                .ask("GET /metrics", "")
                .body
                .contains(&line)
                .then_some(())
        });
    }
    let keys: Vec<String> = redis.query(&["KEYS", "*"]);
    let is_known = |key: &String| {
        ["tg:{", "tg:staging:{", "tg:rules:{"]
            .iter()
            .any(|prefix| key.starts_with(prefix))
    };
    assert!(keys.iter().all(is_known), "{keys:?}");
    servers[1].log.wait_for("namespace=staging");
}

#[test]
fn one_lost_master_of_a_cluster_is_200_with_a_warning() {
    let cluster = Cluster::start();
    let folder = TestFolder::new();
    folder.write("rules.yaml", "rules:\n  - {id: deny, per: [user_id], missing: deny, limit: 10/hour, on_store_failure: deny}\n");
    let url = cluster.url();
    let environment = [("TIDEGATE_REDIS_DEADLINE", "1s")];
    let server = folder.serve_with(
        &[
            "--redis",
            &url,
            "--rules",
            "rules.yaml",
            "--grpc",
            "127.0.0.1:0",
        ],
        &environment,
    );
    wait_for_status(&server, 200, "ready");

    cluster.nodes()[0].kill();
    let body = wait_for_status(&server, 200, "degraded");
    let warnings = body["warnings"].to_string();
    assert!(
        warnings.contains("one of its masters is unreachable"),
        "{body}"
    );
    let decided = |server: &Server| {
        let users = (0..30).map(|user| check(server, &json!({"user_id": format!("u{user}")})));
        users.filter(|reply| reply.status == 200).count()
    };
    let exact = decided(&server);
    assert!((1..30).contains(&exact), "{exact} of 30");

    cluster.nodes()[1].kill();
    cluster.nodes()[2].kill();
    wait_for_status(&server, 503, "not ready");
}
