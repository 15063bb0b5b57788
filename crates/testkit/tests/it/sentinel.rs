//! Three Sentinels notice that a master is gone, and agree on another.

use std::net::SocketAddr;

use tidegate_testkit::now;
use tidegate_testkit::redis::{Program, RedisServer, Sentinel};

fn set(server: &RedisServer, value: &str) {
    let _: () = server.query(&["SET", "name", value]);
}

#[test]
fn a_killed_master_is_replaced_and_comes_back_as_a_replica() {
    let options = RedisServer::options().user("gate", "secret");
    let group = Sentinel::start_with(2, &options);
    assert_eq!(group.master().address(), group.servers()[0].address());
    set(group.master(), "before");
    group.wait_for_replicas();

    let start = now();
    let old = group.kill_master();
    let promotion = group.wait_for_new_master(old);
    assert!(promotion.at > start && promotion.address != old.address());
    let new = group.server_at(promotion.address);
    assert_eq!(new.query::<String>(&["GET", "name"]), "before");

    old.restart();
    group.wait_for_replicas();
    assert!(old.try_query::<()>(&["SET", "name", "after"]).is_err());
}

#[test]
fn a_stopped_master_is_replaced() {
    let group = Sentinel::start();
    let old = group.stop_master();
    let promotion = group.wait_for_new_master(old);
    set(group.server_at(promotion.address), "after");
}

#[test]
fn a_failover_can_be_asked_for() {
    let options = RedisServer::options().program(Program::Valkey);
    let group = Sentinel::start_with(1, &options);
    let old = group.fail_over();
    let promotion = group.wait_for_new_master(old);
    assert_eq!(group.master().address(), promotion.address);
    group.wait_for_replicas();
}

#[test]
fn its_url_names_every_sentinel() {
    let group = Sentinel::start();
    let url = group.url();
    let (addresses, name) = url
        .strip_prefix("redis+sentinel://")
        .and_then(|rest| rest.split_once('/'))
        .unwrap();
    assert_eq!(name, Sentinel::NAME);
    let addresses: Vec<SocketAddr> = addresses
        .split(',')
        .map(|text| text.parse().unwrap())
        .collect();
    let sentinels = group.sentinels().iter().map(RedisServer::address);
    assert!(addresses.into_iter().eq(sentinels));
}
