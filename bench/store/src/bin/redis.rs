//! CPU time of Redis for one decision with 64 in flight, compared with an ordinary limiter that runs one
//! script call for each: 64 connections, each of which waits for its reply.
//!
//! Redis is a process of its own, started and ended here; the two go in turns. What counts is user
//! and system time of its process. Then `sync: leased` on one hot key: how often Redis is asked, and
//! how much of the limit is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use tidegate_bench::{cpu_micros, median};
use tidegate_core::{Algorithm, Charge, Limit, Rate, Request, Scope, RemoteStore as _};
use tidegate_redis::{RedisSettings, RedisStore};
use tidegate_testkit::redis::RedisServer;

const IN_FLIGHT: usize = 64;
/// Decisions of one turn, over all tasks: enough that a hundredth of a second does not matter.
const DECISIONS: usize = 200_000;
const TURNS: usize = 7;
const KEYS: usize = 1_000;
/// What a decision may cost, as a share of what the ordinary limiter's costs.
const ALLOWED: f64 = 0.5;

/// Leased: how often a second, how long, and what must hold.
const LEASED_RATE: u64 = 10_000;
const LEASED_FOR: Duration = Duration::from_secs(4);
const ALLOWED_CALLS: f64 = 0.05;
const LEAST_USED: f64 = 0.95;

/// What people write: a hash of two fields, tokens as a fraction, time of Redis.
const ORDINARY: &str = r"
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local rate, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(kept[1]) or burst, tonumber(kept[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - at) * rate)
local allowed = tokens >= cost
if allowed then
  tokens = tokens - cost
end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', now)
redis.call('PEXPIRE', KEYS[1], math.ceil((burst - tokens) / rate / 1000) + 1)
return { allowed and 1 or 0, math.floor(tokens) }
";

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let server = RedisServer::start();
    let is_good = runtime.block_on(async {
        let exact = compare(&server).await;
        let leased = lease(&server).await;
        exact && leased
    });
    if !is_good {
        std::process::exit(1);
    }
}

async fn open(server: &RedisServer) -> RedisStore {
    let mut settings = RedisSettings::new(server.url().parse().expect("a URL"));
    settings.deadline = Duration::from_secs(1);
    settings.key_secret = Some(b"bench".to_vec());
    let store = RedisStore::open(settings);
    let patience = Duration::from_secs(10);
    store.connected(patience).await.expect("Redis answers");
    store
}

async fn compare(server: &RedisServer) -> bool {
    let ours = Arc::new(Ours::new(server).await);
    let ordinary = Ordinary::new(server).await;
    ours.turn(DECISIONS / 10).await;
    ordinary.turn(DECISIONS / 10).await;

    let mut costs = [Vec::new(), Vec::new()];
    let (mut ratios, mut client, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let (calls, steps) = ours.sent();
    for turn in 0..TURNS {
        let mut micros = [0.0; 2];
        // The order alternates from turn to turn.
        for place in [turn % 2, (turn + 1) % 2] {
            let started = Instant::now();
            let (redis, own) = (cpu_micros(server.pid()), cpu_micros(std::process::id()));
            match place {
                0 => ours.turn(DECISIONS).await,
                _ => ordinary.turn(DECISIONS).await,
            }
            let each = |total: f64| total / DECISIONS as f64;
            micros[place] = each(cpu_micros(server.pid()) - redis);
            costs[place].push(micros[place]);
            if place == 0 {
                client.push(each(cpu_micros(std::process::id()) - own));
                rates.push(DECISIONS as f64 / started.elapsed().as_secs_f64());
            }
        }
        ratios.push(micros[0] / micros[1]);
    }
    let (calls, steps) = (ours.sent().0 - calls, ours.sent().1 - steps);
    let [tidegate, script] = costs.map(median);
    let ratio = median(ratios);
    println!(
        "CPU time of Redis per decision, {IN_FLIGHT} in flight, token bucket, {KEYS} keys, median of {TURNS} turns of {DECISIONS}:"
    );
    println!("  tidegate {tidegate:.2} us, a script call each {script:.2} us, ratio {ratio:.2}");
    println!(
        "  calls per decision {:.4}, {:.1} decisions a call, {:.0} decisions a second, CPU time of the client {:.2} us",
        calls as f64 / (TURNS * DECISIONS) as f64,
        steps as f64 / calls as f64,
        median(rates),
        median(client),
    );
    if ratio > ALLOWED {
        eprintln!("more than {ALLOWED} of a script call for each decision");
    }
    ratio <= ALLOWED
}

/// Tidegate's store, asked by 64 tasks at once.
struct Ours {
    store: RedisStore,
    scope: Scope,
    limit: Limit,
}

impl Ours {
    async fn new(server: &RedisServer) -> Self {
        Self {
            store: open(server).await,
            scope: Scope::new("bench"),
            limit: Limit::new(Rate::per_minute(10_000), Algorithm::TOKEN_BUCKET)
                .expect("a sound limit"),
        }
    }

    /// Calls, and decisions that went with them.
    fn sent(&self) -> (u64, u64) {
        let stats = self.store.stats();
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (of(&stats.calls), of(&stats.steps))
    }

    async fn turn(self: &Arc<Self>, decisions: usize) {
        let tasks = (0..IN_FLIGHT).map(|task| {
            let ours = Arc::clone(self);
            tokio::spawn(async move {
                for number in 0..decisions / IN_FLIGHT {
                    let key = key(task, number);
                    let charges = [Charge {
                        scope: &ours.scope,
                        limit: &ours.limit,
                        key: &key,
                        cost: 1,
                    }];
                    let answer = ours.store.charge(&Request::new(&charges)).await;
                    assert!(answer.expect("an answer")[0].allowed);
                }
            })
        });
        all(tasks.collect()).await;
    }
}

/// The ordinary limiter: a connection for each task.
struct Ordinary {
    connections: Vec<MultiplexedConnection>,
    sha1: String,
}

impl Ordinary {
    async fn new(server: &RedisServer) -> Self {
        let client = server.client();
        let mut connections = Vec::new();
        for _ in 0..IN_FLIGHT {
            let connection = client.get_multiplexed_async_connection().await;
            connections.push(connection.expect("a connection"));
        }
        let sha1 = server.query(&["SCRIPT", "LOAD", ORDINARY]);
        Self { connections, sha1 }
    }

    async fn turn(&self, decisions: usize) {
        let tasks = self
            .connections
            .iter()
            .cloned()
            .enumerate()
            .map(|(task, mut connection)| {
                let sha1 = self.sha1.clone();
                tokio::spawn(async move {
                    for number in 0..decisions / IN_FLIGHT {
                        let mut call = redis::cmd("EVALSHA");
                        call.arg(&sha1)
                            .arg(1)
                            .arg(format!("bucket:{}", key(task, number)))
                            .arg("0.000166666666666667")
                            .arg(10_000)
                            .arg(1);
                        let answer: (u64, u64) =
                            call.query_async(&mut connection).await.expect("an answer");
                        assert_eq!(answer.0, 1);
                    }
                })
            });
        all(tasks.collect()).await;
    }
}

/// The key of a task's n-th decision.
fn key(task: usize, number: usize) -> String {
    format!("user:{}", (task * 617 + number * 7_919) % KEYS)
}

async fn all(tasks: Vec<tokio::task::JoinHandle<()>>) {
    for task in tasks {
        task.await.expect("no task fails");
    }
}

/// One hot key under a leased limit, with more demand than it allows.
async fn lease(server: &RedisServer) -> bool {
    let store = open(server).await;
    let scope = Scope::new("hot").leased();
    let rate = Rate::per_second(LEASED_RATE);
    let limit = Limit::new(rate, Algorithm::TOKEN_BUCKET).expect("a sound limit");
    let admitted = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let tasks = (0..IN_FLIGHT).map(|_| {
        let (store, scope, limit) = (store.clone(), scope.clone(), limit.clone());
        let admitted = Arc::clone(&admitted);
        tokio::spawn(async move {
            while started.elapsed() < LEASED_FOR {
                let charges = [Charge {
                    scope: &scope,
                    limit: &limit,
                    key: "hot",
                    cost: 1,
                }];
                let answer = store.charge(&Request::new(&charges)).await;
                if answer.expect("an answer")[0].allowed {
                    admitted.fetch_add(1, Ordering::Relaxed);
                } else {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        })
    });
    all(tasks.collect()).await;
    let granted = limit.capacity() as f64 + LEASED_RATE as f64 * started.elapsed().as_secs_f64();
    let admitted = admitted.load(Ordering::Relaxed) as f64;
    let calls = store.stats().calls.load(Ordering::Relaxed) as f64 / admitted;
    let used = admitted / granted;
    println!("sync: leased, one key of {LEASED_RATE} a second with more demand than that:");
    println!(
        "  calls per decision that was admitted {calls:.4}, {:.1} % of the limit used",
        used * 100.0
    );
    if calls > ALLOWED_CALLS {
        eprintln!("more than {ALLOWED_CALLS} calls per decision");
    }
    if used < LEAST_USED {
        eprintln!("less than {LEAST_USED} of the limit used");
    }
    calls <= ALLOWED_CALLS && used >= LEAST_USED
}
