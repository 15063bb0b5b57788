//! `sync: exact` is linearizable: whatever several instances answer at the same time, one after the other they
//! give the same answers, also while Redis hangs, is slow, or loses replies and connections.
//!
//! A short run here; `scripts/linearizability` sets `TIDEGATE_LINEARIZED_CALLS` for a long one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_core::{Limit, Scope, Timestamp};
use tidegate_redis::RedisStore;
use tidegate_testkit::FaultProxy;
use tidegate_testkit::fault_proxy::FaultMode;
use tidegate_testkit::linearizability::{HistoryCall, MOST_OPEN, NotLinearizable, check};
use tidegate_testkit::redis::RedisServer;

use crate::{Asked, store_within};

/// Answered calls of each test, unless more are asked for.
const CALLS: u64 = 3_000;
const INSTANCES: usize = 3;
const CLIENTS: usize = 8;
/// Keys that are in use at the same time, and calls of one key.
const KEYS: u64 = 4;
const CALLS_OF_KEY: u64 = 150;
const DEADLINE: Duration = Duration::from_millis(15);

const LIMITS: [&str; 4] = [
    "40/second burst 60",
    "100/minute",
    "60/hour",
    "50/second burst 30",
];

/// What goes wrong while calls are made. All of it keeps what Redis has acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeepingFault {
    None,
    Hang,
    Slow,
    LostReplies,
    Resets,
    ScriptFlush,
}

/// The time of the clock that Redis reads.
fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap())
}

fn wanted_calls() -> u64 {
    let wanted = std::env::var("TIDEGATE_LINEARIZED_CALLS");
    wanted.map_or(CALLS, |calls| calls.parse().unwrap())
}

/// What the clients of a test share.
struct Work {
    stores: Vec<RedisStore>,
    next: AtomicU64,
    answered: AtomicU64,
    wanted: u64,
}

impl Work {
    /// Makes calls until there are enough. The histories by the number of the key.
    async fn client(self: Arc<Self>, index: usize) -> HashMap<u64, Vec<HistoryCall>> {
        let store = &self.stores[index % INSTANCES];
        let mut histories: HashMap<u64, Vec<HistoryCall>> = HashMap::new();
        while self.answered.load(Ordering::Relaxed) < self.wanted {
            let call = self.next.fetch_add(1, Ordering::Relaxed);
            // So many keys take turns, then the next ones.
            let key = call / (KEYS * CALLS_OF_KEY) * KEYS + call % KEYS;
            let cost = 1 + call / KEYS % 3;
            let asked = asked(key);
            let began = wall_clock();
            let answer = asked.ask(store, cost).await;
            let ended = wall_clock();
            let answer = match answer {
                Ok(outcome) => {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                    Some((ended, outcome))
                }
                Err(error) if error.left_nothing() => {
                    // The breaker is open: wait for Redis, and not in a loop.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                }
                Err(_) => None,
            };
            let call = HistoryCall {
                began,
                answer,
                cost,
            };
            histories.entry(key).or_default().push(call);
        }
        histories
    }
}

fn limit(key: u64) -> Limit {
    let index = usize::try_from(key).unwrap() % LIMITS.len();
    LIMITS[index].parse().unwrap()
}

fn asked(key: u64) -> Asked {
    Asked::new(Scope::new("linear"), &limit(key), &format!("key-{key}"))
}

/// Lets a fault come and go, until the calls are made.
fn disturb(fault: KeepingFault, server: &RedisServer, proxy: &FaultProxy, done: &AtomicBool) {
    let pause = |millis| std::thread::sleep(Duration::from_millis(millis));
    let through_proxy = |mode, millis| {
        proxy.set(mode);
        pause(millis);
        proxy.set(FaultMode::Pass);
    };
    while !done.load(Ordering::Relaxed) {
        match fault {
            KeepingFault::None => {}
            KeepingFault::Hang => {
                server.stop();
                pause(40);
                server.resume();
            }
            KeepingFault::Slow => {
                through_proxy(FaultMode::DelayReplies(Duration::from_millis(10)), 60);
            }
            KeepingFault::LostReplies => through_proxy(FaultMode::LoseReplies, 20),
            KeepingFault::Resets => through_proxy(FaultMode::Cut, 5),
            KeepingFault::ScriptFlush => {
                let _: String = server.query(&["SCRIPT", "FLUSH"]);
            }
        }
        pause(100);
    }
}

async fn is_linearizable(fault: KeepingFault) {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.address());
    let url = format!("redis://{}", proxy.address());
    let mut stores = Vec::new();
    for _ in 0..INSTANCES {
        stores.push(store_within(&url, DEADLINE).await);
    }
    let work = Arc::new(Work {
        stores,
        next: AtomicU64::new(0),
        answered: AtomicU64::new(0),
        wanted: wanted_calls(),
    });
    let done = Arc::new(AtomicBool::new(false));
    let disturbing = {
        let done = Arc::clone(&done);
        std::thread::spawn(move || {
            disturb(fault, &server, &proxy, &done);
            (server, proxy)
        })
    };
    let clients = (0..CLIENTS).map(|index| tokio::spawn(Arc::clone(&work).client(index)));
    let clients: Vec<_> = clients.collect();
    let mut histories: HashMap<u64, Vec<HistoryCall>> = HashMap::new();
    for client in clients {
        for (key, calls) in client.await.unwrap() {
            histories.entry(key).or_default().extend(calls);
        }
    }
    done.store(true, Ordering::Relaxed);
    disturbing.join().unwrap();
    report(fault, &histories);
}

/// Checks all histories, and prints how many calls they have.
fn report(fault: KeepingFault, histories: &HashMap<u64, Vec<HistoryCall>>) {
    let (mut calls, mut open, mut undecided) = (0, 0, 0);
    let mut problems = Vec::new();
    for (key, history) in histories {
        let unanswered = history.iter().filter(|call| call.answer.is_none()).count();
        if unanswered > MOST_OPEN {
            undecided += history.len();
            continue;
        }
        match check(&limit(*key), history) {
            Ok(()) => (calls, open) = (calls + history.len(), open + unanswered),
            Err(NotLinearizable::Undecided) => undecided += history.len(),
            Err(problem) => {
                let limit = limit(*key);
                problems.push(format!(
                    "{fault:?}, key {key} ({limit}): {problem}\n{history:#?}"
                ));
            }
        }
    }
    println!(
        "{fault:?}: {calls} calls accepted, {open} of them without an answer; {undecided} not searched"
    );
    assert_eq!(problems, Vec::<String>::new());
    assert!(undecided * 2 < calls, "too few histories can be searched");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_faults() {
    is_linearizable(KeepingFault::None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_hangs() {
    is_linearizable(KeepingFault::Hang).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_slow() {
    is_linearizable(KeepingFault::Slow).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_replies_are_lost() {
    is_linearizable(KeepingFault::LostReplies).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_connections_are_reset() {
    is_linearizable(KeepingFault::Resets).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_scripts_are_flushed() {
    is_linearizable(KeepingFault::ScriptFlush).await;
}
