//! What is lost when Redis forgets what it acknowledged: each time it does, a key gets at most one more quota.
//!
//! Clients of three instances use up every limit and go on asking, while Redis is emptied, killed and restarted
//! without its keys, or replaced by a replica that lacks the last writes. A short run here;
//! `scripts/linearizability` sets `TIDEGATE_STATE_LOSSES` for a long one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate_core::{Algorithm, Limit, Micros, Rate, RemoteStore as _, Request, Scope};
use tidegate_redis::RedisStore;
use tidegate_testkit::conformance::limits_of;
use tidegate_testkit::redis::{Cluster, RedisServer, slot_of};

use crate::linearizable::write_result;
use crate::store;

const QUOTA: u64 = 20;
const INSTANCES: usize = 3;
const CLIENTS: usize = 6;
/// An instance remembers denials for a second, and a cluster takes some seconds for an election.
const PATIENCE: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_hours(24);

/// How Redis forgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StateLoss {
    FlushAll,
    KilledAndEmpty,
    FailoverWithoutWrites,
}

impl StateLoss {
    fn title(self) -> &'static str {
        match self {
            Self::FlushAll => "FLUSHALL",
            Self::KilledAndEmpty => "killed (SIGKILL), restarted empty",
            Self::FailoverWithoutWrites => "a replica without the last writes is promoted",
        }
    }
}

fn wanted_losses(usual: u64) -> u64 {
    let wanted = std::env::var("TIDEGATE_STATE_LOSSES");
    wanted.map_or(usual, |losses| losses.parse().unwrap())
}

/// A limit of each kind, none of which gives anything back while a test runs.
fn limits() -> Vec<Limit> {
    let slow = limits_of(QUOTA).into_iter().map(|limit| {
        let algorithm = limit.algorithm();
        if limit.is_concurrency() {
            let lease_ttl = Micros::from_seconds(3_600);
            return Limit::new(limit.rate(), Algorithm::Concurrency { lease_ttl }).unwrap();
        }
        Limit::new(Rate::new(QUOTA, Micros::DAY), algorithm).unwrap()
    });
    slow.collect()
}

/// All limits of one key, which clients ask until they are stopped.
struct Saturation {
    key: String,
    limits: Vec<(Scope, Limit)>,
    admitted: Vec<AtomicU64>,
    denied: AtomicU64,
    is_done: AtomicBool,
    began: SystemTime,
}

impl Saturation {
    fn new(key: String) -> Arc<Self> {
        let limits: Vec<(Scope, Limit)> = limits()
            .into_iter()
            .enumerate()
            .map(|(index, limit)| (Scope::new(&format!("loss-{index}")), limit))
            .collect();
        Arc::new(Self {
            key,
            admitted: limits.iter().map(|_| AtomicU64::new(0)).collect(),
            denied: AtomicU64::new(0),
            limits,
            is_done: AtomicBool::new(false),
            began: SystemTime::now(),
        })
    }

    async fn client(self: Arc<Self>, store: RedisStore) {
        while !self.is_done.load(Ordering::Relaxed) {
            let mut is_admitted = false;
            for ((scope, limit), admitted) in self.limits.iter().zip(&self.admitted) {
                let charges = [tidegate_core::Charge {
                    scope,
                    limit,
                    key: &self.key,
                    cost: 1,
                }];
                let permit = store.permit_for(&charges);
                // With `on_store_failure: deny`, an error admits nothing.
                let answer = store.charge(&Request::new(&charges).under(permit)).await;
                match answer {
                    Ok(outcomes) if outcomes[0].allowed => {
                        admitted.fetch_add(1, Ordering::Relaxed);
                        is_admitted = true;
                    }
                    Ok(_) => {
                        self.denied.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(_) => {}
                }
            }
            if !is_admitted {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    fn admitted(&self) -> Vec<u64> {
        let counts = self.admitted.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Waits until each limit has admitted so much.
    async fn reach(&self, count: u64) {
        let start = Instant::now();
        while self.admitted().iter().any(|admitted| *admitted < count) {
            let admitted = self.admitted();
            assert!(start.elapsed() < PATIENCE, "{admitted:?} of {count} each");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// How many days have begun since: windows by the clock then begin anew.
    fn midnights(&self) -> u64 {
        let day = |time: SystemTime| {
            let since = time.duration_since(UNIX_EPOCH).unwrap();
            since.as_secs() / DAY.as_secs()
        };
        day(SystemTime::now()) - day(self.began)
    }
}

/// The most that any limit admitted beyond its quota, after Redis has forgotten so often.
async fn excess(
    stores: &[RedisStore],
    key: String,
    losses: u64,
    mut lose: impl AsyncFnMut(),
) -> (u64, u64) {
    let saturation = Saturation::new(key);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|index| {
            tokio::spawn(Arc::clone(&saturation).client(stores[index % INSTANCES].clone()))
        })
        .collect();
    for loss in 0..losses {
        saturation.reach(QUOTA * (loss + 1)).await;
        lose().await;
    }
    saturation.reach(QUOTA * (losses + 1)).await;
    // Longer than any instance remembers a denial: more would be admitted by now.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    saturation.is_done.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    let most = saturation.admitted().into_iter().max().unwrap();
    let quotas = 1 + losses + saturation.midnights();
    assert!(
        most <= QUOTA * quotas,
        "{most} of {QUOTA} were admitted, {losses} losses: {:?}",
        saturation.admitted()
    );
    (most - QUOTA, saturation.denied.load(Ordering::Relaxed))
}

async fn stores(url: &str) -> Vec<RedisStore> {
    let mut stores = Vec::new();
    for _ in 0..INSTANCES {
        stores.push(store(url).await);
    }
    stores
}

fn report(loss: StateLoss, losses: u64, excess: u64, denied: u64) {
    println!(
        "{loss:?}: {losses} events, at most {excess} above a quota of {QUOTA} ({denied} denied)"
    );
    let figures = [
        ("events", losses),
        ("limits", limits().len() as u64),
        ("quota", QUOTA),
        ("excess", excess),
        ("denied", denied),
    ];
    write_result("losses", loss.title(), &figures);
    assert!(excess > 0, "nothing was lost, so nothing was tested");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_redis_grants_one_more_quota() {
    let server = RedisServer::start();
    let losses = wanted_losses(2);
    let stores = stores(&server.url()).await;
    let lose = async || {
        let _: String = server.query(&["FLUSHALL"]);
    };
    let (excess, denied) = excess(&stores, "flushed".to_owned(), losses, lose).await;
    report(StateLoss::FlushAll, losses, excess, denied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_was_killed_and_is_empty_grants_one_more_quota() {
    let server = RedisServer::start();
    let losses = wanted_losses(2);
    let stores = stores(&server.url()).await;
    let lose = async || tokio::task::block_in_place(|| server.restart());
    let (excess, denied) = excess(&stores, "killed".to_owned(), losses, lose).await;
    report(StateLoss::KilledAndEmpty, losses, excess, denied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_that_loses_writes_grants_one_more_quota() {
    let cluster = Cluster::start_with(1, &RedisServer::options().password("secret"));
    let losses = wanted_losses(1);
    let stores = stores(&cluster.url()).await;
    let (mut most, mut denials) = (0, 0);
    for round in 0..losses {
        // A key of its own: what is full already has nothing to lose.
        let key = format!("failover-{round}");
        let slot = slot_of(&format!("{{{key}}}"));
        tokio::task::block_in_place(|| {
            cluster.wait_until_ok();
            cluster.wait_for_replicas();
            stop_replication(&cluster, slot);
        });
        let lose = async || {
            tokio::task::block_in_place(|| {
                let old = cluster.kill_master_of(slot);
                cluster.wait_for_promotion(slot, old);
                old.restart();
                let password = ["CONFIG", "SET", "masterauth", "secret"];
                for node in cluster.nodes() {
                    let _: String = node.query(&password);
                }
            });
        };
        let (excess, denied) = excess(&stores, key, 1, lose).await;
        (most, denials) = (most.max(excess), denials + denied);
    }
    report(StateLoss::FailoverWithoutWrites, losses, most, denials);
}

/// Lets the replicas of a slot's master know no more of what is written to it.
fn stop_replication(cluster: &Cluster, slot: u16) {
    let master = cluster.master_of(slot);
    for replica in cluster.replicas_of(master) {
        let _: String = replica.query(&["CONFIG", "SET", "masterauth", "wrong"]);
    }
    let _: u64 = master.query(&["CLIENT", "KILL", "TYPE", "replica"]);
}
