//! Masters that are replaced: sentinels and clusters.

use std::time::{Duration, Instant};

use tidegate_core::RemoteStore as _;
use tidegate_core::{Limit, Scope};
use tidegate_redis::RedisStore;
use tidegate_testkit::redis::{Cluster, RedisServer, Sentinel, slot_of, tag_of};

use crate::{Asked, store, store_within};

/// How long a busy machine may take to recover after an election.
const HEALED: Duration = Duration::from_secs(30);

fn asked(key: &str) -> Asked {
    let limit: Limit = "1000/23h".parse().unwrap();
    Asked::new(Scope::new("failover"), &limit, key)
}

async fn wait_until_healed(store: &RedisStore, key: &str, since: Instant) {
    while asked(key).ask(store, 1).await.is_err() {
        let waited = Instant::now().saturating_duration_since(since);
        assert!(waited < HEALED, "{:?}", store.problem());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn writes(server: &RedisServer) -> Vec<String> {
    server.query(&["KEYS", "tg:{*}:failover:*"])
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_name_another_master_when_theirs_is_killed() {
    let sentinel = Sentinel::start();
    let store = store_within(&sentinel.url(), Duration::from_millis(50)).await;
    wait_until_healed(&store, "before", Instant::now()).await;
    sentinel.wait_for_replicas();
    let old = sentinel.kill_master();
    let promoted = sentinel.wait_for_new_master(old);
    wait_until_healed(&store, "after", promoted.at).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_was_hung_and_replaced_is_not_written_to() {
    let sentinel = Sentinel::start();
    let store = store_within(&sentinel.url(), Duration::from_millis(50)).await;
    wait_until_healed(&store, "before", Instant::now()).await;
    sentinel.wait_for_replicas();
    let old = sentinel.stop_master();
    // Some calls reach it before the failover is noticed.
    let _ = asked("lost").ask(&store, 1).await;
    let promoted = sentinel.wait_for_new_master(old);
    wait_until_healed(&store, "after", promoted.at).await;
    old.resume();
    for number in 0..200 {
        let _ = asked(&format!("later-{number}")).ask(&store, 1).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let written = writes(sentinel.server_at(promoted.address));
    assert!(written.len() > 150, "{}", written.len());
    let info: String = old.query(&["INFO", "commandstats"]);
    let scripts = info
        .lines()
        .find(|line| line.starts_with("cmdstat_evalsha:"));
    let calls = |line: &str| {
        line.split(['=', ','])
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    // What it was asked while it was the master, and nothing since: the probe and two or three more.
    assert!(scripts.map_or(0, calls) < 50, "{scripts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_that_was_asked_for_is_followed() {
    let sentinel = Sentinel::start();
    let store = store_within(&sentinel.url(), Duration::from_millis(50)).await;
    wait_until_healed(&store, "before", Instant::now()).await;
    sentinel.wait_for_replicas();
    let old = sentinel.fail_over();
    let promoted = sentinel.wait_for_new_master(old);
    wait_until_healed(&store, "after", promoted.at).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_goes_on_where_it_can_and_heals_where_it_could_not() {
    let cluster = Cluster::with_replicas();
    let store = store_within(&cluster.url(), Duration::from_millis(50)).await;
    let patient = crate::store(&cluster.url()).await;
    let (here, there) = ("here", "there");
    let owner = |key: &str| cluster.master_of(slot_of(&format!("{{{key}}}"))).address();
    let other = [there, "a", "b", "c", "d", "e"]
        .into_iter()
        .find(|key| owner(key) != owner(here))
        .unwrap();
    wait_until_healed(&store, here, Instant::now()).await;
    asked(other).ask(&patient, 1).await.unwrap();
    cluster.wait_for_replicas();
    let slot = slot_of(&format!("{{{here}}}"));
    let old = cluster.kill_master_of(slot);
    assert!(
        asked(here).ask(&store, 1).await.is_err(),
        "its master is unreachable"
    );
    for _ in 0..20 {
        asked(other).ask(&patient, 1).await.unwrap();
    }
    let promoted = cluster.wait_for_promotion(slot, old);
    wait_until_healed(&store, here, promoted.at).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_moves_is_followed_at_every_step() {
    let cluster = Cluster::start();
    let store = store(&cluster.url()).await;
    let slot = 4_242;
    let key = tag_of(slot);
    let asked = asked(&key);
    asked.ask(&store, 1).await.unwrap();
    let from = cluster.master_of(slot).address();
    let to = cluster
        .nodes()
        .iter()
        .find(|node| node.address() != from)
        .unwrap();
    let migration = cluster.migrate(slot, to);
    asked.ask(&store, 1).await.unwrap();
    migration.move_keys();
    asked.ask(&store, 1).await.unwrap();
    asked.ask(&store, 1).await.unwrap();
    migration.finish();
    asked.ask(&store, 1).await.unwrap();
    assert_eq!(asked.remaining(&store).await, 1_000 - 5);
    assert!(store.is_up());
}
