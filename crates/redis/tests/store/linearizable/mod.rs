//! `sync: exact` is linearizable: whatever several instances answer at the same time, one after the other they
//! give the same answers, also while Redis hangs, is slow, loses replies and connections, forgets its scripts, or
//! moves the slots of a cluster. So are reservations, which other instances settle. What is lost when Redis forgets its
//! keys is in `state_loss.rs`.
//!
//! A short run here; `scripts/linearizability` sets `TIDEGATE_LINEARIZED_CALLS` for a long one.

mod disturb;
mod limits;
mod reserving;
mod results;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use disturb::{Disturbed, KeepingFault};
use limits::{HistoryKey, HistoryKeys};
use tidegate_core::{RemoteStore as _, Request, Timestamp};
use tidegate_redis::RedisStore;
use tidegate_testkit::linearizability::{HistoryCall, MOST_OPEN, NotLinearizable, check};

pub(crate) use results::write_result;

use crate::store_within;

/// Answered calls of each test, unless more are asked for.
const CALLS: u64 = 2_500;
const INSTANCES: usize = 3;
const CLIENTS: usize = 8;
/// Keys that are in use at the same time, and when the next one follows.
const LANES: usize = 4;
const CALLS_OF_KEY: u64 = 150;
const OPEN_OF_KEY: usize = 3;
const DEADLINE: Duration = Duration::from_millis(15);

/// The time of the clock that Redis reads.
fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap())
}

fn wanted_calls() -> u64 {
    let wanted = std::env::var("TIDEGATE_LINEARIZED_CALLS");
    wanted.map_or(CALLS, |calls| calls.parse().unwrap())
}

/// Keys that are in use at the same time, each until it has so many calls, or so many without an answer.
struct Lane {
    key: Arc<HistoryKey>,
    calls: u64,
    open: usize,
}

/// What the clients of a test share.
struct Work {
    stores: Vec<RedisStore>,
    keys: Mutex<HistoryKeys>,
    lanes: Vec<Mutex<Lane>>,
    next: AtomicU64,
    answered: AtomicU64,
    wanted: u64,
}

/// What a client has recorded, by the number of the key.
type Histories = HashMap<u64, (Arc<HistoryKey>, Vec<HistoryCall>)>;

impl Work {
    fn new(stores: Vec<RedisStore>, mut keys: HistoryKeys) -> Self {
        let lanes = (0..LANES).map(|_| {
            Mutex::new(Lane {
                key: keys.next(),
                calls: 0,
                open: 0,
            })
        });
        Self {
            lanes: lanes.collect(),
            stores,
            keys: Mutex::new(keys),
            next: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            wanted: wanted_calls(),
        }
    }

    /// The key of the next call, and its number among the calls of that key.
    fn next_call(&self) -> (usize, Arc<HistoryKey>, u64) {
        let index = usize::try_from(self.next.fetch_add(1, Ordering::Relaxed)).unwrap() % LANES;
        let mut lane = self.lanes[index].lock().unwrap();
        if lane.calls >= CALLS_OF_KEY || lane.open >= OPEN_OF_KEY {
            let key = self.keys.lock().unwrap().next();
            (lane.key, lane.calls, lane.open) = (key, 0, 0);
        }
        lane.calls += 1;
        (index, Arc::clone(&lane.key), lane.calls)
    }

    /// Makes calls until there are enough.
    async fn client(self: Arc<Self>, index: usize) -> Histories {
        let store = &self.stores[index % INSTANCES];
        let mut histories = Histories::new();
        while self.answered.load(Ordering::Relaxed) < self.wanted {
            let (lane, key, call) = self.next_call();
            let charges = key.charges(call);
            let asked: Vec<_> = charges.iter().map(|charge| key.charge(*charge)).collect();
            let began = wall_clock();
            let answer = if key.is_reserved() {
                reserving::reserve(store, &asked).await
            } else {
                let permit = store.permit_for(&asked);
                let request = Request::new(&asked).under(permit);
                let outcomes = store.charge(&request).await;
                outcomes.map(|outcomes| (outcomes.to_vec(), None))
            };
            let ended = wall_clock();
            let mut made = None;
            let answer = match answer {
                Ok((outcomes, id)) => {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                    made = id;
                    Some((ended, outcomes))
                }
                Err(error) if error.left_nothing() => {
                    // The breaker is open: wait for Redis, and not in a loop.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                }
                Err(_) => {
                    let mut lane = self.lanes[lane].lock().unwrap();
                    lane.open += usize::from(lane.key.number == key.number);
                    None
                }
            };
            drop(asked);
            let mut settlement = None;
            if let (Some(id), Some(actual)) = (made, key.settled(call)) {
                // Others go on meanwhile.
                tokio::time::sleep(Duration::from_millis(call % 8)).await;
                let other = &self.stores[(index + 1) % INSTANCES];
                settlement = Some(reserving::settle(other, id, actual).await);
                self.answered.fetch_add(1, Ordering::Relaxed);
            }
            let call = HistoryCall {
                began,
                answer,
                charges,
                settlement,
            };
            let history = histories.entry(key.number);
            history.or_insert((key, Vec::new())).1.push(call);
        }
        histories
    }
}

async fn is_linearizable(fault: KeepingFault) {
    let disturbed = Disturbed::start(fault);
    let deadline = match fault {
        KeepingFault::None => Duration::from_secs(2),
        _ => DEADLINE,
    };
    let mut stores = Vec::new();
    for _ in 0..INSTANCES {
        stores.push(store_within(&disturbed.url(), deadline).await);
    }
    let work = Arc::new(Work::new(stores, HistoryKeys::new(disturbed.slots())));
    let done = Arc::new(AtomicBool::new(false));
    let disturbing = {
        let done = Arc::clone(&done);
        std::thread::spawn(move || disturbed.until(&done))
    };
    let clients = (0..CLIENTS).map(|index| tokio::spawn(Arc::clone(&work).client(index)));
    let clients: Vec<_> = clients.collect();
    let mut histories = Histories::new();
    for client in clients {
        for (number, (key, calls)) in client.await.unwrap() {
            let history = histories.entry(number).or_insert((key, Vec::new()));
            history.1.extend(calls);
        }
    }
    done.store(true, Ordering::Relaxed);
    let events = disturbing.join().unwrap();
    report(fault, events, &histories);
}

/// Checks all histories, and prints how many calls they have.
fn report(fault: KeepingFault, events: u64, histories: &Histories) {
    let (mut accepted, mut calls, mut open, mut undecided) = (0_u64, 0, 0, 0);
    let (mut several, mut denied, mut settled) = (0, 0, 0);
    let mut problems = Vec::new();
    for (key, history) in histories.values() {
        let limits = key.limits();
        let unanswered = history.iter().filter(|call| call.answer.is_none()).count();
        if unanswered > MOST_OPEN {
            undecided += history.len();
            continue;
        }
        match check(limits, history) {
            Ok(()) => {
                accepted += 1;
                (calls, open) = (calls + history.len(), open + unanswered);
                several += history.iter().filter(|call| call.charges.len() > 1).count();
                denied += history.iter().filter(|call| is_denied(call)).count();
                let settlements = history.iter().filter(|call| call.settlement.is_some());
                settled += settlements.count();
            }
            Err(NotLinearizable::Undecided) => undecided += history.len(),
            Err(problem) => {
                problems.push(format!("{fault:?} ({limits:?}): {problem}\n{history:#?}"));
            }
        }
    }
    println!(
        "{fault:?}: {calls} calls accepted, {open} of them without an answer, {denied} denied, {several} of several limits, {settled} settled; \
         {events} faults; {undecided} not searched; {} rejected",
        problems.len()
    );
    let figures = [
        ("faults", events),
        ("histories", accepted),
        ("calls", calls as u64),
        ("denied", denied as u64),
        ("several", several as u64),
        ("settled", settled as u64),
        ("open", open as u64),
        ("not_searched", undecided as u64),
        ("rejected", problems.len() as u64),
    ];
    write_result("linearizable", fault.title(), &figures);
    assert_eq!(problems, Vec::<String>::new());
    assert!(undecided * 2 < calls, "too few histories can be searched");
    assert!(settled * 40 > calls, "too few are settled");
}

fn is_denied(call: &HistoryCall) -> bool {
    let answer = call.answer.as_ref();
    answer.is_some_and(|(_, outcomes)| outcomes.iter().any(|outcome| !outcome.allowed))
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

#[tokio::test(flavor = "multi_thread")]
async fn while_slots_move_between_the_nodes_of_a_cluster() {
    is_linearizable(KeepingFault::Resharding).await;
}
