//! Clients that another server has seen: it is asked to explain and reset them, and no secret is in Redis.

use serde_json::{Value, json};
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::wait_until;
use tidegate_testkit_server::{ClientReply, PATIENCE, TestFolder};

use crate::Server;
use crate::redis::shared::{check, serve};

const RULES: &str = "rules:
  - {id: per-key, per: [api_key], limit: 3/hour, tiers: {pro: 5/hour}}
  - {id: per-user, per: [user_id], limit: 90/day, tiers: {pro: 100/day}}
";
const KEY: &str = "sk_live_0123456789abcdef";

fn start(redis: &RedisServer, config: &str) -> (TestFolder, Server) {
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    folder.write("c.yaml", config);
    let server = serve(
        &folder,
        redis,
        &["--rules", "rules.yaml", "--config", "c.yaml"],
    );
    (folder, server)
}

fn ask(server: &Server, call: &str, body: &Value) -> ClientReply {
    let reply = server.ask(&format!("POST /v1/{call}"), &body.to_string());
    assert!(!reply.whole().contains(KEY), "{reply:?}");
    reply
}

/// The digest of the only key in the tables, once the server knows it.
fn digest_in_tables(server: &Server) -> String {
    wait_until("the other has published", PATIENCE, || {
        let keys = server
            .ask("GET /v1/rules/per-key/keys?sort=used&window=1h", "")
            .json();
        let key = keys["keys"][0]["key"]["api_key"].as_str();
        key.map(str::to_owned)
    })
}

/// Everything that is written to Redis from now on, as its log of changes has it.
struct WrittenToRedis(std::path::PathBuf);

impl WrittenToRedis {
    fn begin(redis: &RedisServer) -> Self {
        let _: String = redis.query(&["CONFIG", "SET", "appendonly", "yes"]);
        let folder: Vec<String> = redis.query(&["CONFIG", "GET", "dir"]);
        Self(std::path::Path::new(&folder[1]).join("appendonlydir"))
    }

    fn text(&self) -> String {
        let files = std::fs::read_dir(&self.0).unwrap();
        let texts = files.map(|file| std::fs::read(file.unwrap().path()).unwrap());
        let texts = texts.map(|text| String::from_utf8_lossy(&text).into_owned());
        texts.collect()
    }
}

#[test]
fn a_client_of_another_server_is_explained_and_reset_by_its_digest_alone() {
    let redis = RedisServer::start();
    let written = WrittenToRedis::begin(&redis);
    let (_one, first) = start(&redis, "");
    let (_other, second) = start(&redis, "");
    let request = json!({"api_key": KEY, "user_id": "carl", "tier": "pro", "path": "/v1/orders"});
    for _ in 0..7 {
        check(&first, &request);
    }
    let digits = digest_in_tables(&second);
    assert_eq!(digits.len(), 12, "{digits}");
    // By the client, with what the other server knows of it.
    for client in [digits.as_str(), KEY, "carl"] {
        let explained = ask(&second, "explain", &json!({"client": client}))
            .with_status(200)
            .json();
        assert_eq!(
            explained["rules"][0]["tier"], "pro",
            "{client}: {explained:#}"
        );
        assert_eq!(explained["decision"]["reason"], "over_limit");
        assert_eq!(explained["attributes"]["path"], "/v1/orders");
        assert_eq!(explained["last"]["tier"], "pro");
    }
    // By attributes.
    let attributes = json!({"attributes": {"api_key": digits, "tier": "pro"}});
    let explained = ask(&second, "explain", &attributes).with_status(200).json();
    assert_eq!(explained["decision"]["rule"], "per-key");
    assert_eq!(explained["decision"]["allowed"], false);

    let done = ask(
        &second,
        "reset",
        &json!({"client": digits, "rule": "per-key"}),
    )
    .with_status(200)
    .json();
    assert_eq!(done["reset"][0]["used"], 5, "{done}");
    check(&second, &request).with_status(200);
    let done = ask(
        &second,
        "reset",
        &json!({"attributes": {"api_key": digits}}),
    )
    .with_status(200)
    .json();
    assert_eq!(done["reset"][0]["used"], 1, "{done}");
    first.log.wait_for("a counter was reset");
    // An override needs no value.
    let put = json!({"key": digits, "limit": "blocked", "for": "1h"});
    ask(&second, "rules/per-key/overrides", &put).with_status(201);
    let unknown = json!({"client": "0123456789ab"});
    ask(&second, "explain", &unknown).with_status(422);
    ask(&second, "reset", &unknown).with_status(422);
    let written = written.text();
    for text in [":asked", "answer:", &digits] {
        assert!(written.contains(text), "{text}");
    }
    assert!(
        !written.contains("sk_live") && !written.contains("sk_l…"),
        "{written}"
    );
}

#[test]
fn a_server_that_does_not_answer_is_said() {
    let redis = RedisServer::start();
    let (_one, first) = start(&redis, "");
    let (_other, second) = start(&redis, "");
    for _ in 0..2 {
        check(&first, &json!({"api_key": KEY, "user_id": "carl"}));
    }
    let digits = digest_in_tables(&second);
    // Killed: what it has published lasts.
    first.kill();
    for call in ["explain", "reset"] {
        let refused = ask(&second, call, &json!({"client": digits})).with_status(503);
        let detail = refused.detail();
        assert!(
            detail.contains("has seen this client, and it does not answer"),
            "{detail}"
        );
    }
    // A client in clear is known by its counters.
    let explained = ask(&second, "explain", &json!({"client": "carl"}))
        .with_status(200)
        .json();
    assert_eq!(explained["last"], Value::Null);
    assert_eq!(explained["rules"][1]["tier"], "unknown");
}

#[test]
fn secrets_in_clear_are_not_sent_to_another_server() {
    let redis = RedisServer::start();
    let written = WrittenToRedis::begin(&redis);
    let config = "secret_attributes: [session]\n";
    let (_one, first) = start(&redis, config);
    let (_other, second) = start(&redis, config);
    check(&first, &json!({"api_key": KEY})).with_status(200);
    let digits = digest_in_tables(&second);
    for name in ["session", "header.authorization"] {
        let mixed = json!({"attributes": {"api_key": digits, name: "s3cret-of-a-session"}});
        for call in ["explain", "reset"] {
            let refused = ask(&second, call, &mixed).with_status(422);
            assert!(refused.detail().contains("in clear"), "{refused:?}");
        }
    }
    let written = written.text();
    assert!(written.contains(&digits) && !written.contains("s3cret-of-a-session"));
    // Without activity nothing is published, asked or answered.
    let redis = RedisServer::start();
    let (_one, off) = start(&redis, "activity: off\n");
    check(&off, &json!({"api_key": KEY, "user_id": "u"})).with_status(200);
    ask(&off, "explain", &json!({"client": "u"})).with_status(200);
    ask(&off, "explain", &json!({"client": digits})).with_status(422);
    let clients: String = redis.query(&["CLIENT", "LIST"]);
    assert!(!clients.contains("cmd=blpop"), "{clients}");
}

#[test]
fn a_server_that_ends_listens_no_longer() {
    let redis = RedisServer::start();
    let (_folder, server) = start(&redis, "");
    let is_listening = || {
        let clients: String = redis.query(&["CLIENT", "LIST"]);
        clients.contains("cmd=blpop")
    };
    wait_until("it listens", PATIENCE, || is_listening().then_some(()));
    server.stop();
    wait_until("it has left", PATIENCE, || (!is_listening()).then_some(()));
}
