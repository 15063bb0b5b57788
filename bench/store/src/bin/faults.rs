//! How long a decision takes while Redis is away, and how soon all is well again when it is back.
//!
//! Eight tasks ask once a millisecond each, so that the machine is at most half busy. Redis is broken for two
//! seconds in each way; every decision of that time counts.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tidegate_core::{Charge, Limit, Request, Scope, RemoteStore as _};
use tidegate_redis::{RedisSettings, RedisStore};
use tidegate_testkit::FaultProxy;
use tidegate_testkit::fault_proxy::FaultMode;
use tidegate_testkit::redis::{Cluster, RedisServer, Sentinel, slot_of};

const DEADLINE: Duration = Duration::from_millis(15);
const TASKS: usize = 8;
const BROKEN_FOR: Duration = Duration::from_secs(2);

/// What a decision was and how long it took.
struct Decision {
    at: Instant,
    took: Duration,
    is_answered: bool,
}

/// Sends requests until stopped.
struct Load {
    is_over: Arc<AtomicU8>,
    tasks: Vec<tokio::task::JoinHandle<Vec<Decision>>>,
}

impl Load {
    fn start(store: &RedisStore, key: &str) -> Self {
        let is_over = Arc::new(AtomicU8::new(0));
        let tasks = (0..TASKS).map(|_| {
            let (store, is_over, key) = (store.clone(), Arc::clone(&is_over), key.to_owned());
            tokio::spawn(async move {
                let scope = Scope::new("faults");
                let limit: Limit = "1000000000/23h".parse().expect("a limit");
                let charges = [Charge {
                    scope: &scope,
                    limit: &limit,
                    key: &key,
                    cost: 1,
                }];
                let mut decisions = Vec::new();
                while is_over.load(Ordering::Relaxed) == 0 {
                    let at = Instant::now();
                    let answer = store.charge(&Request::new(&charges)).await;
                    decisions.push(Decision {
                        at,
                        took: at.elapsed(),
                        is_answered: answer.is_ok(),
                    });
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                decisions
            })
        });
        Self {
            is_over: Arc::clone(&is_over),
            tasks: tasks.collect(),
        }
    }

    async fn stop(self) -> Vec<Decision> {
        self.is_over.store(1, Ordering::Relaxed);
        let mut all = Vec::new();
        for task in self.tasks {
            all.extend(task.await.expect("a task that asks"));
        }
        all.sort_by_key(|decision| decision.at);
        all
    }
}

async fn open(url: &str) -> RedisStore {
    let mut settings = RedisSettings::new(url.parse().expect("a URL"));
    settings.deadline = DEADLINE;
    let store = RedisStore::open(settings);
    store
        .connected(Duration::from_secs(10))
        .await
        .expect("Redis answers");
    store
}

/// The first instant after `since` from which on every decision was answered, for a quarter of a second.
fn healed(decisions: &[Decision], since: Instant) -> Option<Duration> {
    let after: Vec<&Decision> = decisions.iter().filter(|one| one.at >= since).collect();
    let last_failure = after.iter().rposition(|one| !one.is_answered);
    let first_good = last_failure.map_or(0, |at| at + 1);
    after.get(first_good).map(|one| one.at - since)
}

fn print(name: &str, decisions: &[Decision], broken: Instant, repaired: Instant) {
    let during = decisions
        .iter()
        .filter(|one| one.at >= broken && one.at < repaired);
    let mut took: Vec<Duration> = during.map(|one| one.took).collect();
    took.sort();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let healed = healed(decisions, repaired).map_or(f64::NAN, |after| after.as_secs_f64() * 1e3);
    println!(
        "{name:<26} {:>7} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {healed:>10.0}",
        took.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
    );
}

/// Breaks Redis, repairs it, and prints how long decisions took.
async fn measure<B: Future<Output = ()>, M: Future<Output = Instant>>(
    (name, url, key): (&str, &str, &str),
    break_it: impl FnOnce() -> B,
    repair: impl FnOnce() -> M,
) {
    let store = open(url).await;
    let load = Load::start(&store, key);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let broken = Instant::now();
    break_it().await;
    let repaired = repair().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    print(name, &load.stop().await, broken, repaired);
}

async fn fault(name: &str, mode: FaultMode) {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.address());
    let url = format!("redis://{}", proxy.address());
    let repair = async || {
        tokio::time::sleep(BROKEN_FOR).await;
        proxy.set(FaultMode::Pass);
        Instant::now()
    };
    measure((name, &url, "key"), async || proxy.set(mode), repair).await;
}

async fn stopped() {
    let server = RedisServer::start();
    let repair = async || {
        tokio::time::sleep(BROKEN_FOR).await;
        server.resume();
        Instant::now()
    };
    let url = server.url();
    measure(("stopped", &url, "key"), async || server.stop(), repair).await;
}

async fn restarted() {
    let server = RedisServer::start();
    let repair = async || {
        tokio::time::sleep(BROKEN_FOR).await;
        server.restart();
        Instant::now()
    };
    let url = server.url();
    measure(
        ("killed and restarted", &url, "key"),
        async || server.kill(),
        repair,
    )
    .await;
}

async fn sentinel() {
    let sentinel = Sentinel::start();
    sentinel.wait_for_replicas();
    let url = sentinel.url();
    let old = sentinel.master();
    let repair = async || tokio::task::block_in_place(|| sentinel.wait_for_new_master(old)).at;
    measure(
        ("sentinel, master killed", &url, "key"),
        async || old.kill(),
        repair,
    )
    .await;
}

async fn cluster() {
    let cluster = Cluster::with_replicas();
    cluster.wait_for_replicas();
    let url = cluster.url();
    let slot = slot_of("{key}");
    let old = cluster.master_of(slot);
    let repair = async || tokio::task::block_in_place(|| cluster.wait_for_promotion(slot, old)).at;
    measure(
        ("cluster, master killed", &url, "key"),
        async || old.kill(),
        repair,
    )
    .await;
}

#[tokio::main]
async fn main() {
    println!(
        "deadline {DEADLINE:?}; times in milliseconds; healed: after the return, or the election"
    );
    println!(
        "{:<26} {:>7} {:>8} {:>8} {:>8} {:>8} {:>10}",
        "Redis is", "asked", "p50", "p99", "p99.9", "max", "healed"
    );
    fault("refusing connections", FaultMode::Cut).await;
    fault("swallowing everything", FaultMode::BlackHole).await;
    fault(
        "slow, 60 ms a reply",
        FaultMode::DelayReplies(Duration::from_millis(60)),
    )
    .await;
    fault("losing replies", FaultMode::LoseReplies).await;
    stopped().await;
    restarted().await;
    sentinel().await;
    cluster().await;
}
