//! `CL.THROTTLE` on a Redis that servers share, and without it.

use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::wait_until;

use super::client::command;
use super::{Client, Value};
use crate::Server;
use tidegate_testkit_server::{PATIENCE, TestFolder};

fn serve(folder: &TestFolder, redis: &RedisServer, on_failure: &str) -> Server {
    let url = redis.url();
    // Many tests run at once, and this is not about how fast Redis is.
    let environment = [
        ("TIDEGATE_REDIS_DEADLINE", "5s"),
        ("TIDEGATE_THROTTLE_ON_STORE_FAILURE", on_failure),
    ];
    folder.serve_with(&["--resp", "127.0.0.1:0", "--redis", &url], &environment)
}

#[test]
fn servers_share_a_key_and_answer_in_order() {
    let redis = RedisServer::start();
    let folders = [TestFolder::new(), TestFolder::new()];
    let servers = folders
        .each_ref()
        .map(|folder| serve(folder, &redis, "local"));
    let mut clients = servers.each_ref().map(Client::to);
    let mut remaining = Vec::new();
    for client in &mut clients {
        // Among others, some of which do not ask Redis at all.
        let batch = [
            command("CL.THROTTLE k 999 1 86400"),
            command("CL.THROTTLE k 999 1 x"),
            command("TG.CHECK ip 203.0.113.7"),
            command("CL.THROTTLE k 999 7 6100"),
            command("PING"),
        ];
        client.send(&batch.concat().repeat(50));
        for _ in 0..50 {
            for index in 0..5 {
                match (index, client.reply()) {
                    (0 | 3, Value::Array(reply)) => remaining.push(reply[2].clone()),
                    (1, Value::Error(error)) => assert!(error.starts_with("ERR period"), "{error}"),
                    (2, Value::Array(reply)) => assert_eq!(reply[1], Value::Integer(1)),
                    (4, reply) => assert_eq!(reply, Value::text("PONG")),
                    (index, reply) => panic!("{index}: {reply:?}"),
                }
            }
        }
    }
    // A little flows back in the meantime, but never a whole request of those that are left.
    let wanted: Vec<Value> = (800..1_000).rev().map(Value::Integer).collect();
    assert_eq!(remaining, wanted);
}

#[test]
fn without_redis_it_does_what_it_is_set_to() {
    let redis = RedisServer::start();
    for (on_failure, wanted) in [("deny", "UNAVAILABLE "), ("local", ""), ("allow", "")] {
        let folder = TestFolder::new();
        let server = serve(&folder, &redis, on_failure);
        let mut client = Client::to(&server);
        let throttle = format!("CL.THROTTLE {on_failure} 1 1 86400");
        let of = |reply: Value| match reply {
            Value::Array(reply) => Ok(reply[0] == Value::Integer(0)),
            Value::Error(error) => Err(error),
            other => panic!("{other:?}"),
        };
        assert_eq!(of(client.ask(&throttle)), Ok(true));
        redis.kill();
        match on_failure {
            "deny" => {
                let error = wait_until("an error", PATIENCE, || of(client.ask(&throttle)).err());
                assert!(error.starts_with(wanted), "{error}");
            }
            // One was used when Redis last answered, so one is left.
            "local" => {
                assert_eq!(of(client.ask(&throttle)), Ok(true));
                assert_eq!(of(client.ask(&throttle)), Ok(false));
            }
            _ => {
                for _ in 0..5 {
                    assert_eq!(of(client.ask(&throttle)), Ok(true));
                }
            }
        }
        redis.restart();
    }
}
