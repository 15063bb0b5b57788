//! The history of rules in Redis, asked of two servers.

use serde_json::json;
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit_server::TestFolder;

use crate::http::history::{preview_and_roll_back, read_and_compare};
use crate::redis::shared::serve;

#[test]
fn versions_in_redis_are_read_and_compared_and_need_redis() {
    let redis = RedisServer::start();
    let folder = TestFolder::new();
    let server = serve(&folder, &redis, &[]);
    read_and_compare(&server);

    redis.kill();
    for call in ["GET /v1/rules/history/1", "GET /v1/rules/diff?from=1&to=2"] {
        let refused = server.ask(call, "").with_status(503).detail();
        assert!(refused.contains("Redis"), "{call}: {refused}");
    }
    let body = r#"{"version": 1, "dry_run": true}"#;
    let refused = server.ask("POST /v1/rules/rollback", body);
    refused.with_status(503).detail();
}

#[test]
fn a_rollback_is_refused_if_another_server_has_changed_the_rules_since() {
    let redis = RedisServer::start();
    let folders = [TestFolder::new(), TestFolder::new()];
    let [first, second] = [&folders[0], &folders[1]].map(|folder| serve(folder, &redis, &[]));
    preview_and_roll_back(&first, |limit| {
        let body = json!({"id": "b", "per": ["ip"], "limit": limit}).to_string();
        second.ask("PUT /v1/rules/b", &body).with_status(200);
    });
}
