//! Servers that share a Redis answer for each other: what each publishes, and what becomes of anything else there.

use serde_json::{Value, json};
use tidegate_testkit::redis::{Cluster, RedisServer};
use tidegate_testkit::wait_until;
use tidegate_testkit_server::{PATIENCE, TestFolder};

use crate::Server;
use crate::redis::shared::{check, serve};

const RULES: &str = "
rules:
  - {id: per-user, per: [user_id], limit: 2/hour}
  - {id: per-key, per: [api_key], limit: 1000/23h}
";
const SEED: &str = "tg:{activity}:seed";
const SECRET: &str = "sk-live-0123456789abcdef";

fn keys(server: &Server, call: &str) -> Value {
    let reply = server
        .ask(&format!("GET /v1/rules/{call}"), "")
        .with_status(200);
    assert!(!reply.body.contains(SECRET), "{}", reply.body);
    reply.json()
}

/// The denials of each key, with their bounds.
fn denied(answer: &Value) -> Vec<(String, u64, u64)> {
    let rows = answer["keys"].as_array().unwrap().iter().map(|key| {
        let number = |name: &str| key[name].as_u64().unwrap();
        assert_eq!(number("denied"), number("lower"));
        let user = key["key"]["user_id"].as_str().unwrap();
        (user.to_owned(), number("lower"), number("upper"))
    });
    rows.collect()
}

/// Samples and last decisions of both servers are in the answers of the first.
fn has_evidence_of_all(servers: &[Server; 2], shown: &str) {
    let ids: Vec<Value> = {
        let answer = keys(&servers[0], "per-user/keys");
        let instances = answer["instances"].as_array().unwrap().iter();
        instances.map(|instance| instance["id"].clone()).collect()
    };
    let last = keys(&servers[0], "per-user/keys?window=1h");
    let third = &last["keys"][2]["last"];
    assert_eq!(
        (&third["instance"], &third["reason"]),
        (&ids[1], &json!("over_limit"))
    );
    assert_eq!(third["attributes"]["user_id"], "u3");
    assert_eq!(
        third["attributes"]["api_key"],
        shown.trim_start_matches("sk-l…")
    );
    let get = |call: &str| {
        let reply = servers[0].ask(&format!("GET {call}"), "").with_status(200);
        assert!(!reply.body.contains(SECRET), "{}", reply.body);
        reply.json()
    };
    let denied_requests = get("/v1/denied?key=u3");
    let denied_requests = denied_requests["denied"].as_array().unwrap().clone();
    assert_eq!(denied_requests.len(), 2);
    assert_eq!(denied_requests[0]["instance"], ids[1]);
    let of_both = get("/v1/denied?key=u1");
    for id in &ids {
        let mut of_both = of_both["denied"].as_array().unwrap().iter();
        assert!(of_both.any(|one| one["instance"] == *id), "{id}");
    }
    assert_eq!(get("/v1/clients?search=U3")["clients"][0]["denied"], 2);
}

#[test]
fn any_server_answers_for_all_and_says_which_are_in_the_answer() {
    let redis = RedisServer::start();
    let folders = [TestFolder::new(), TestFolder::new()];
    let servers = folders.each_ref().map(|folder| {
        folder.write("rules.yaml", RULES);
        serve(
            folder,
            &redis,
            &["--rules", "rules.yaml", "--log-level", "debug"],
        )
    });
    // u1 is denied by both, u2 by the first, u3 by the second.
    for (user, counts) in [("u1", [6, 5]), ("u2", [6, 0]), ("u3", [0, 4])] {
        for (server, count) in servers.iter().zip(counts) {
            for _ in 0..count {
                check(server, &json!({"user_id": user, "api_key": SECRET}));
            }
        }
    }
    let row = |user: &str, count| (user.to_owned(), count, count);
    for server in &servers {
        let answer = wait_until("both have published", PATIENCE, || {
            let answer = keys(server, "per-user/keys?window=1h");
            let is_whole =
                answer["instances"].as_array().unwrap().len() == 2 && answer["total"] == 9 + 4 + 2;
            is_whole.then_some(answer)
        });
        assert_eq!(denied(&answer), [row("u1", 9), row("u2", 4), row("u3", 2)]);
        let instances = answer["instances"].as_array().unwrap();
        assert_eq!(instances[0]["age"], 0);
        assert!(
            instances[1]["age"].as_f64().unwrap() < 30.0,
            "{instances:?}"
        );
        assert_eq!(instances[1]["complete"], true);
        let own = keys(server, "per-user/keys?window=1h&scope=instance");
        assert_eq!(own["instances"].as_array().unwrap().len(), 1);
        assert!(own["total"].as_u64().unwrap() < 15);
        let activity = server.ask("GET /v1/activity", "").with_status(200).json();
        let sum = |series: &Value, name: &str| -> u64 {
            let counts = series[name].as_array().unwrap().iter();
            counts.map(|count| count.as_u64().unwrap()).sum()
        };
        assert_eq!(sum(&activity["total"], "denied"), 15);
        assert_eq!(activity["rules"][0]["rule"], "per-user");
        assert_eq!(sum(&activity["rules"][0], "denied"), 15);
        assert_eq!(activity["instances"].as_array().unwrap().len(), 2);
    }
    let by_key = keys(&servers[0], "per-key/keys?sort=used&window=1h");
    assert_eq!(
        by_key["keys"].as_array().unwrap().len(),
        1,
        "both know it by its digest"
    );
    let shown = by_key["keys"][0]["key"]["api_key"].as_str().unwrap();
    assert!(shown.starts_with("sk-l…"), "{shown}");

    has_evidence_of_all(&servers, shown);

    // What is in Redis: small, soon gone, and no secret, not even the beginning of one.
    let mut names: Vec<String> = redis.query(&["KEYS", "tg:{activity}:*"]);
    names.retain(|name| name != SEED);
    assert_eq!(names.len(), 2, "{names:?}");
    for name in &names {
        let value: Vec<u8> = redis.query(&["GET", name]);
        let text = String::from_utf8_lossy(&value);
        assert!(value.len() <= 64 << 10, "{}", value.len());
        assert!(!text.contains(SECRET) && !text.contains("sk-l"), "{text}");
        assert!(text.contains(shown.trim_start_matches("sk-l…")));
        let left: i64 = redis.query(&["PTTL", name]);
        assert!((1..=30_000).contains(&left), "{left}");
    }

    // Anything else there is ignored, or replaced.
    for (name, command) in [("0badbad0", "SET"), ("0badbad1", "LPUSH")] {
        let _: i64 = redis.query(&["ZADD", "tg:{activity}", "9e15", name]);
        let key = format!("tg:{{activity}}:{name}");
        let script = "redis.call(ARGV[1], KEYS[1], ARGV[2]) return 1";
        let _: i64 = redis.query(&["EVAL", script, "1", &key, command, "\u{1}\u{1}garbage"]);
    }
    let _: i64 = redis.query(&["ZADD", "tg:{activity}", "9e15", "../../no instance"]);
    // The age of what another published grows until it is read again.
    let mut age = 0.0;
    wait_until("it was read again", PATIENCE, || {
        let answer = keys(&servers[0], "per-user/keys?window=1h");
        assert_eq!(denied(&answer), [row("u1", 9), row("u2", 4), row("u3", 2)]);
        let before = age;
        age = answer["instances"][1]["age"].as_f64().unwrap();
        (age < before).then_some(())
    });
    let _: i64 = redis.query(&["DEL", "tg:{activity}"]);
    let _: String = redis.query(&["SET", "tg:{activity}", "garbage"]);
    wait_until("the index is a set again", PATIENCE, || {
        let kind: String = redis.query(&["TYPE", "tg:{activity}"]);
        (kind == "zset").then_some(())
    });

    // One that leaves is not in the answer any more, and without Redis a server answers for itself.
    let [first, second] = servers;
    assert!(!second.stop().contains(SECRET));
    wait_until("the other has left", PATIENCE, || {
        let answer = keys(&first, "per-user/keys");
        (answer["instances"].as_array().unwrap().len() == 1).then_some(())
    });
    drop(redis);
    keys(&first, "per-user/keys");
    assert!(!first.stop().contains(SECRET));
}

/// Denies clients on a server: each comes twice, and may once.
fn deny(server: &Server, clients: std::ops::Range<u32>) {
    for client in clients {
        for _ in 0..2 {
            let user = format!("u{client}");
            check(
                server,
                &json!({"user_id": user, "api_key": format!("{SECRET}{client}")}),
            );
        }
    }
}

/// Waits until a server counts so many distinct clients that were denied by each rule, and is sure of it.
fn wait_for_distinct(server: &Server, count: u64) {
    for rule in ["user", "key"] {
        wait_until(&format!("{count} by {rule}"), PATIENCE, || {
            let answer = keys(server, &format!("{rule}/keys?window=1h"));
            (answer["distinct_denied"] == count && answer["distinct_error"] == 0.0).then_some(())
        });
    }
}

#[test]
fn a_client_that_several_servers_denied_is_counted_once() {
    let rules = "
rules:
  - {id: user, per: [user_id], limit: 1/day, algorithm: fixed_window, mode: shadow}
  - {id: key, per: [api_key], limit: 1/day, algorithm: fixed_window, mode: shadow}
";
    let redis = RedisServer::start();
    let folders = [TestFolder::new(), TestFolder::new()];
    let start = |folder: &TestFolder| {
        folder.write("rules.yaml", rules);
        serve(
            folder,
            &redis,
            &["--rules", "rules.yaml", "--log-level", "debug"],
        )
    };
    let first = start(&folders[0]);
    let seed = || redis.query::<Option<String>>(&["GET", SEED]);
    let agreed = wait_until("there is a seed", PATIENCE, seed);
    let left: i64 = redis.query(&["PTTL", SEED]);
    assert!((1..=86_400_000).contains(&left), "{left}");
    let second = start(&folders[1]);
    second.log.wait_for("with the seed of the other servers");
    deny(&first, 0..40);
    deny(&second, 40..80);
    deny(&second, 30..40);
    for server in [&first, &second] {
        wait_for_distinct(server, 80);
    }
    let own = keys(&first, "user/keys?window=1h&scope=instance");
    assert_eq!(own["distinct_denied"], 40);
    // No part of the seed is shown.
    assert!(!own.to_string().contains(&agreed[..8]));

    // An emptied Redis gets the seed again, so that no key is forgotten. Anything else there is replaced.
    let _: String = redis.query(&["FLUSHALL"]);
    assert_eq!(wait_until("there is a seed again", PATIENCE, seed), agreed);
    let _: String = redis.query(&["SET", SEED, "garbage"]);
    wait_until("it was replaced", PATIENCE, || {
        (seed().as_ref() == Some(&agreed)).then_some(())
    });
    wait_for_distinct(&first, 80);

    // Another seed is followed: what was counted before cannot be compared any more, and is forgotten.
    let other = "0123456789abcdef0123456789abcdef";
    let _: String = redis.query(&["SET", SEED, other]);
    for server in [&first, &second] {
        wait_for_distinct(server, 0);
    }
    deny(&first, 0..5);
    deny(&second, 3..8);
    wait_for_distinct(&second, 8);
    assert_eq!(seed().as_deref(), Some(other));
}

#[test]
fn the_part_of_a_killed_server_is_not_counted_twice_after_its_restart() {
    let redis = RedisServer::start();
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    let first = serve(&folder, &redis, &["--rules", "rules.yaml"]);
    let published = || redis.query::<Vec<String>>(&["ZRANGE", "tg:{activity}", "0", "-1"]);
    wait_until("it has published", PATIENCE, || {
        (published().len() == 1).then_some(())
    });
    let parts = published();
    first.stop();
    assert!(published().is_empty());
    // As if it had been killed after it wrote its history.
    let _: i64 = redis.query(&["ZADD", "tg:{activity}", "9e15", &parts[0]]);
    let _second = serve(&folder, &redis, &["--rules", "rules.yaml"]);
    wait_until("its successor has published instead", PATIENCE, || {
        let now = published();
        (now.len() == 1 && now != parts).then_some(())
    });
}

#[test]
fn activity_is_exchanged_over_a_cluster_too() {
    let cluster = Cluster::start();
    let folders = [TestFolder::new(), TestFolder::new()];
    let url = cluster.url();
    let environment = [
        ("TIDEGATE_REDIS_DEADLINE", "5s"),
        ("TIDEGATE_NAMESPACE", "staging"),
    ];
    let servers = folders.each_ref().map(|folder| {
        folder.write("rules.yaml", RULES);
        folder.serve_with(&["--redis", &url, "--rules", "rules.yaml"], &environment)
    });
    for _ in 0..3 {
        check(&servers[0], &json!({"user_id": "u1"}));
    }
    wait_until("the other has published", PATIENCE, || {
        let answer = keys(&servers[1], "per-user/keys");
        (denied(&answer) == [("u1".to_owned(), 1, 1)]).then_some(())
    });
}
