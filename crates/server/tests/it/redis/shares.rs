//! Servers that go on without Redis: all together grant no more than the limit, whatever happened before.

use std::fs;

use serde_json::json;
use tidegate_testkit::FaultProxy;
use tidegate_testkit::fault_proxy::FaultMode;
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::wait_until;

use crate::Server;
use crate::redis::shared::{check, serve};
use tidegate_testkit_server::{PATIENCE, TestFolder};

const RULES: &str = "rules:\n  - {id: a, per: [user_id], missing: deny, limit: 100/day, algorithm: fixed_window, anchor: first_request}\n";
const WITH_RULES: [&str; 2] = ["--rules", "rules.yaml"];

fn folders() -> [TestFolder; 3] {
    std::array::from_fn(|_| {
        let folder = TestFolder::new();
        folder.write("rules.yaml", RULES);
        folder
    })
}

/// Three servers that know of each other, and have kept it.
fn three(folders: &[TestFolder], redis: &RedisServer) -> Vec<Server> {
    let serve = |folder| serve(folder, redis, &WITH_RULES);
    let servers: Vec<Server> = folders.iter().map(serve).collect();
    know_each_other(folders, &servers);
    servers
}

fn know_each_other(folders: &[TestFolder], servers: &[Server]) {
    for (folder, server) in folders.iter().zip(servers) {
        wait_for_instances(server, 3);
        wait_for_kept(folder, 3, 0);
    }
}

/// Waits until a server has kept that there are so many, of which so many are missing.
fn wait_for_kept(folder: &TestFolder, all: usize, missing: usize) {
    wait_until("it is kept", PATIENCE, || {
        let kept = fs::read_to_string(folder.path("data/instances")).unwrap_or_default();
        let lines = kept.lines().filter(|line| line.starts_with("instance "));
        let is_missing: Vec<bool> = lines.map(|line| !line.ends_with(" -")).collect();
        let found = is_missing.iter().filter(|is_missing| **is_missing).count();
        (is_missing.len() == all && found == missing).then_some(())
    });
}

fn wait_for_instances(server: &Server, count: u32) {
    wait_until(&format!("{count} instances"), PATIENCE, || {
        let metrics = server.ask("GET /metrics", "").body;
        let line = format!("\ntidegate_instances {count}\n");
        metrics.contains(&line).then_some(())
    });
}

/// How many requests of a new user all servers admit together, without Redis.
fn admitted(servers: &[Server], user: &str) -> u32 {
    let mut admitted = 0;
    for server in servers {
        for _ in 0..60 {
            let reply = check(server, &json!({ "user_id": user }));
            assert_eq!(reply.json()["degraded"], true, "{reply:?}");
            admitted += u32::from(reply.status == 200);
        }
    }
    admitted
}

/// Kills Redis and waits until all servers know.
fn kill(redis: &RedisServer, servers: &[Server]) {
    redis.kill();
    for server in servers {
        wait_until("it is degraded", PATIENCE, || {
            let reply = check(server, &json!({"user_id": "probe"}));
            (reply.json()["degraded"] == true).then_some(())
        });
    }
}

#[test]
fn servers_that_restart_while_redis_is_unavailable_grant_their_share_only() {
    let redis = RedisServer::start();
    let folders = folders();
    let servers = three(&folders, &redis);
    kill(&redis, &servers);
    let restart = |(folder, server): (&TestFolder, Server)| {
        server.kill();
        let server = serve(folder, &redis, &WITH_RULES);
        let log = server.log.wait_for("Redis does not answer");
        assert!(log.contains("servers=3"), "{log}");
        server
    };
    let servers: Vec<Server> = folders.iter().zip(servers).map(restart).collect();
    assert_eq!(admitted(&servers, "u"), 99);
}

#[test]
fn servers_keep_their_shares_when_redis_forgets_them_and_dies() {
    let redis = RedisServer::start();
    let servers = three(&folders(), &redis);
    let () = redis.query(&["FLUSHALL"]);
    // At least one has announced itself again, and perhaps not all of them.
    wait_until("one is back", PATIENCE, || {
        let present: u32 = redis.query(&["ZCARD", "tg:{instances}"]);
        (present > 0).then_some(())
    });
    kill(&redis, &servers);
    assert_eq!(admitted(&servers, "u"), 99);
}

#[test]
fn servers_keep_their_shares_when_one_was_cut_off_before_redis_died() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::before(redis.address());
    let folders = folders();
    let through = format!("redis://{}", proxy.address());
    let first = folders[0].serve(&[&["--redis", through.as_str()], &WITH_RULES[..]].concat());
    let mut servers = vec![first];
    servers.extend(
        folders[1..]
            .iter()
            .map(|folder| serve(folder, &redis, &WITH_RULES)),
    );
    know_each_other(&folders, &servers);
    proxy.set(FaultMode::Cut);
    for folder in &folders[1..] {
        wait_for_kept(folder, 3, 1);
    }
    kill(&redis, &servers);
    assert_eq!(admitted(&servers, "u"), 99);
}

#[test]
fn a_rolling_restart_leaves_the_number_of_servers_as_it_was() {
    let redis = RedisServer::start();
    let folders = folders();
    let servers: [Server; 3] = three(&folders, &redis).try_into().ok().unwrap();
    let [first, second, third] = servers;
    third.stop();
    for server in [&first, &second] {
        wait_for_instances(server, 2);
    }
    // One that ended and one that was killed are the same when they are back.
    let third = serve(&folders[2], &redis, &WITH_RULES);
    second.kill();
    let second = serve(&folders[1], &redis, &WITH_RULES);
    wait_until("the killed one has lapsed", PATIENCE, || {
        let present: u32 = redis.query(&["ZCARD", "tg:{instances}"]);
        (present == 3).then_some(())
    });
    for server in [&first, &second, &third] {
        wait_for_instances(server, 3);
    }
}
