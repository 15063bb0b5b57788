//! A cluster deals its slots out, moves them on demand and gives them to a replica in need.

#![expect(clippy::unwrap_used, reason = "a test may")]

use redis::{ErrorKind, ServerErrorKind};
use tidegate_testkit::redis::{Cluster, Program, RedisServer, SLOTS, slot_of, tag_of};

fn kind_of(reply: redis::RedisResult<()>) -> ErrorKind {
    reply.unwrap_err().kind()
}

#[test]
fn slots_are_what_the_server_says() {
    let server = RedisServer::options().line("cluster-enabled yes").start();
    for key in [
        "", "a", "{a}b", "{}b", "x{y}z{w}", "{{a}b}", "no}tag{", "ключ",
    ] {
        let slot: u16 = server.query(&["CLUSTER", "KEYSLOT", key]);
        assert_eq!(slot_of(key), slot, "{key}");
    }
    for slot in [0, 1, 8_191, SLOTS - 1] {
        assert_eq!(slot_of(&tag_of(slot)), slot);
    }
}

#[test]
fn a_slot_moves_a_step_at_a_time() {
    let cluster = Cluster::start();
    let slot = 100;
    let tag = tag_of(slot);
    let (one, two) = (format!("{{{tag}}}one"), format!("{{{tag}}}two"));
    let (from, to) = (cluster.master_of(slot), cluster.master_of(SLOTS - 1));
    let _: () = from.query(&["MSET", &one, "1", &two, "2"]);
    let moved = ErrorKind::Server(ServerErrorKind::Moved);
    assert_eq!(kind_of(to.try_query(&["GET", &one])), moved);

    let migration = cluster.migrate(slot, to);
    migration.move_key(&one);
    assert_eq!(migration.keys(), [two.as_str()]);
    let ask = ErrorKind::Server(ServerErrorKind::Ask);
    assert_eq!(kind_of(from.try_query(&["GET", &one])), ask);
    let again = ErrorKind::Server(ServerErrorKind::TryAgain);
    assert_eq!(kind_of(from.try_query(&["MGET", &one, &two])), again);

    migration.finish();
    assert_eq!(kind_of(from.try_query(&["GET", &one])), moved);
    let values: Vec<String> = to.query(&["MGET", &one, &two]);
    assert_eq!(values, ["1", "2"]);
    assert_eq!(cluster.master_of(slot).address(), to.address());
}

#[test]
fn a_replica_takes_the_place_of_a_killed_master() {
    let options = RedisServer::options()
        .program(Program::Valkey)
        .password("secret");
    let cluster = Cluster::start_with(1, &options);
    let slot = 100;
    let key = tag_of(slot);
    let master = cluster.master_of(slot);
    let replica = cluster.replicas_of(master)[0].address();
    let _: () = master.query(&["SET", &key, "value"]);
    cluster.wait_for_replicas();

    let old = cluster.kill_master_of(slot);
    let promotion = cluster.wait_for_promotion(slot, old);
    assert_eq!(promotion.address, replica);
    let new = cluster.node_at(replica);
    assert_eq!(new.query::<String>(&["GET", &key]), "value");
    old.restart();
    cluster.wait_until_ok();
}
