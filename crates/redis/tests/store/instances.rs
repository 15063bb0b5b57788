//! Instances know how many they are.

use std::time::{Duration, Instant};

use tidegate_core::RemoteStore as _;
use tidegate_redis::{RedisSettings, RedisStore};
use tidegate_testkit::redis::{Cluster, RedisServer};

use crate::store;

async fn wait_for(store: &RedisStore, count: u64) -> Duration {
    let begin = Instant::now();
    while store.instances() != Some(count) {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "{:?}",
            store.instances()
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    begin.elapsed()
}

/// Waits until Redis has answered so many more announcements of a store. All stores announce themselves equally often.
async fn wait_for_answers(store: &RedisStore, more: u64) {
    let wanted = store.known_instances().1 + more;
    wait_until(|| store.known_instances().1 >= wanted).await;
}

/// Waits until a store has found Redis to be down: from then on it announces nothing.
async fn wait_for_problem(store: &RedisStore) {
    wait_until(|| store.problem().is_some() && !store.is_slow()).await;
}

async fn wait_until(mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_one_is_counted_and_one_that_leaves_is_not() {
    let server = RedisServer::start();
    let first = store(&server.url()).await;
    wait_for(&first, 1).await;
    let second = store(&server.url()).await;
    wait_for(&first, 2).await;
    wait_for(&second, 2).await;
    second.leave().await;
    drop(second);
    wait_for(&first, 1).await;
    let third = store(&server.url()).await;
    wait_for(&first, 2).await;
    third.leave().await;
    wait_for(&first, 1).await;
    // It goes on working, and does not announce itself again.
    wait_for_answers(&first, 3).await;
    assert_eq!(first.instances(), Some(1));
    assert_eq!(present(&server), 1);
}

/// How many have announced themselves, as Redis says.
fn present(server: &RedisServer) -> u64 {
    server.query(&["ZCARD", "tg:{instances}"])
}

async fn three(server: &RedisServer) -> [RedisStore; 3] {
    let mut stores = Vec::new();
    for _ in 0..3 {
        stores.push(store(&server.url()).await);
    }
    for store in &stores {
        wait_for(store, 3).await;
    }
    stores.try_into().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_vanishes_without_leaving_goes_on_counting() {
    let server = RedisServer::start();
    let [first, second, third] = three(&server).await;
    drop(third);
    wait_until(|| present(&server) == 2).await;
    wait_for_answers(&first, 3).await;
    for store in [&first, &second] {
        assert_eq!(store.instances(), Some(3));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_redis_forgets_them_they_count_as_before() {
    let server = RedisServer::start();
    let stores = three(&server).await;
    let () = server.query(&["FLUSHALL"]);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(1) {
        for store in &stores {
            assert_eq!(store.instances(), Some(3));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    server.kill();
    for store in &stores {
        wait_for_problem(store).await;
        assert_eq!(store.instances(), Some(3));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_another_type_is_replaced_and_they_go_on_counting() {
    let server = RedisServer::start();
    let stores = three(&server).await;
    for key in ["tg:{instances}", "tg:{instances}:left"] {
        let _: u64 = server.query(&["DEL", key]);
        let _: String = server.query(&["SET", key, "foreign"]);
    }
    let fourth = store(&server.url()).await;
    wait_for(&fourth, 4).await;
    for store in &stores {
        wait_for(store, 4).await;
    }
    fourth.leave().await;
    wait_for(&stores[0], 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_restarted_knows_the_others_and_is_the_same_one() {
    let server = RedisServer::start();
    let [first, second, third] = three(&server).await;
    let (known, _) = third.known_instances();
    drop(third);
    let restarted = || {
        let mut settings = RedisSettings::new(server.url().parse().unwrap());
        settings.known_instances = known.clone();
        settings.deadline = Duration::from_secs(2);
        RedisStore::open(settings)
    };
    let fourth = restarted();
    assert_eq!(fourth.instances(), Some(3), "before Redis was asked");
    // The run that has ended is missing after two seconds, and was replaced.
    for store in [&first, &second, &fourth] {
        wait_for(store, 3).await;
    }
    wait_until(|| present(&server) == 3 && first.instances() == Some(3)).await;
    drop(fourth);
    server.kill();
    let fifth = restarted();
    wait_for_problem(&fifth).await;
    assert_eq!(fifth.instances(), Some(3), "without Redis");
}

#[tokio::test(flavor = "multi_thread")]
async fn those_of_the_release_before_count_and_count_the_others() {
    const ANNOUNCE: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('PEXPIREAT', KEYS[1], now + ARGV[2] + 1)
return redis.call('ZCARD', KEYS[1])
";
    let server = RedisServer::start();
    let first = store(&server.url()).await;
    wait_for(&first, 1).await;
    let name = "0123456789abcdef0123456789abcdef";
    let announce = ["EVAL", ANNOUNCE, "1", "tg:{instances}", name, "2000"];
    let counted: u64 = server.query(&announce);
    assert_eq!(counted, 2);
    wait_for(&first, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_counts_them_too() {
    let cluster = Cluster::start();
    let (first, _second) = (store(&cluster.url()).await, store(&cluster.url()).await);
    wait_for(&first, 2).await;
}
