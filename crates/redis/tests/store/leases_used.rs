//! `sync: leased`: how much of a limit is used under saturation, with several servers and uneven demand.
//!
//! Every request is also decided by one store in memory, which shows what the limit had to give.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate_core::algorithm::Form;
use tidegate_core::{Algorithm, Anchor, Limit, MemoryStore, Micros, Outcome, Rate, Scope, Window};
use tidegate_redis::RedisStore;
use tidegate_testkit::redis::RedisServer;

use crate::{Asked, store_within};

/// A limit under demand for `demand` requests a second, spread over the servers by `weights`.
struct Case {
    name: String,
    asked: Asked,
    demand: f64,
    /// What the limit had to give, and what was admitted, in the measured time.
    possible: AtomicU64,
    admitted: AtomicU64,
    failed: AtomicU64,
    outcomes: parking_lot::Mutex<Vec<Outcome>>,
}

impl Case {
    fn new(limit: &Limit, demand: f64, key: &str) -> Self {
        Self {
            name: format!("{limit:?}"),
            asked: Asked::new(Scope::new("used").leased(), limit, key),
            demand,
            possible: AtomicU64::new(0),
            admitted: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            outcomes: parking_lot::Mutex::default(),
        }
    }

    fn counts(&self) -> [u64; 2] {
        [&self.admitted, &self.possible].map(|count| count.load(Ordering::Relaxed))
    }

    fn percent(&self) -> f64 {
        let [admitted, possible] = self.counts();
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let percent = admitted as f64 * 100.0 / (possible as f64).max(1.0);
        percent
    }

    /// Panics if a window was charged more than the limit. Buckets have a test of their own.
    fn never_over(&self) {
        let (limit, mut sums) = (&self.asked.limit, BTreeMap::<u64, u64>::new());
        let mut last = 0;
        for outcome in self.outcomes.lock().iter() {
            let at = match limit.form() {
                Form::FixedWindow(_) => outcome.reset_at.as_micros(),
                Form::SlidingSlots(slots) => outcome.at.as_micros() / slots.slot().get(),
                _ => return,
            };
            *sums.entry(at).or_default() += 1;
            last = last.max(at);
        }
        let counted = match limit.form() {
            Form::SlidingSlots(slots) => slots.counted(),
            _ => 1,
        };
        for start in sums.keys() {
            let sum: u64 = sums.range(start..&(start + counted)).map(|at| at.1).sum();
            assert!(sum <= limit.capacity(), "{}: {sum}", self.name);
        }
    }
}

async fn servers(server: &RedisServer, count: usize) -> Vec<RedisStore> {
    let mut stores = Vec::new();
    for _ in 0..count {
        stores.push(store_within(&server.url(), Duration::from_secs(10)).await);
    }
    stores
}

/// All servers ask for all cases; what happens after `warm` counts.
async fn saturate(
    stores: &[RedisStore],
    cases: &[Arc<Case>],
    weights: &[f64],
    (warm, measured): (Duration, Duration),
) {
    let memory = Arc::new(MemoryStore::new());
    let (begin, counts) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let mut tasks = tokio::task::JoinSet::new();
    let whole: f64 = weights.iter().sum();
    for (store, weight) in stores.iter().zip(weights) {
        for case in cases {
            let rate = case.demand * weight / whole;
            let (store, case) = (store.clone(), Arc::clone(case));
            let (memory, counts) = (Arc::clone(&memory), Arc::clone(&counts));
            tasks.spawn(async move {
                let mut sent = 0_u32;
                while begin.elapsed() < warm + measured {
                    if begin.elapsed().as_secs_f64() * rate < f64::from(sent) {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        continue;
                    }
                    sent += 1;
                    let counts = counts.load(Ordering::Relaxed);
                    let possible = memory.charge_one(&case.asked.charge(1)).allowed;
                    case.possible
                        .fetch_add(u64::from(counts && possible), Ordering::Relaxed);
                    match case.asked.ask(&store, 1).await {
                        Ok(outcome) if outcome.allowed => {
                            case.admitted
                                .fetch_add(u64::from(counts), Ordering::Relaxed);
                            case.outcomes.lock().push(outcome);
                        }
                        Ok(_) => {}
                        Err(_) => {
                            case.failed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    }
    tokio::time::sleep(warm).await;
    counts.store(true, Ordering::Relaxed);
    tasks.join_all().await;
}

fn slots(count: u64, window: u64, slots: u32) -> Limit {
    let algorithm = Algorithm::SlidingWindowSlots {
        slots: Some(slots),
        strict: false,
    };
    Limit::new(Rate::new(count, Micros::from_millis(window)), algorithm).unwrap()
}

fn limit(count: u64, window: u64, algorithm: Algorithm) -> Limit {
    Limit::new(Rate::new(count, Micros::from_millis(window)), algorithm).unwrap()
}

/// Rows of the table: a name, the limit, and the demand as a multiple of it.
fn rows() -> Vec<(String, Limit, f64)> {
    let mut rows = Vec::new();
    let mut row = |name: &str, limit: Limit, times: f64| rows.push((name.to_owned(), limit, times));
    row("slots 100/1s of 20 ms", slots(100, 1_000, 50), 2.5);
    row("slots 100/1s of 100 ms", slots(100, 1_000, 10), 2.5);
    row("slots 100/1s of 100 ms, x20", slots(100, 1_000, 10), 20.0);
    row("slots 2000/1s of 100 ms", slots(2_000, 1_000, 10), 1.5);
    row("slots 100/10s of 200 ms", slots(100, 10_000, 50), 3.0);
    row("slots 2000/2s of 200 ms", slots(2_000, 2_000, 10), 1.5);
    row("slots 200/2s of 500 ms", slots(200, 2_000, 4), 2.5);
    row("slots 600/6s of 1 s", slots(600, 6_000, 6), 2.0);
    let fixed = Algorithm::FIXED_WINDOW;
    row("fixed 20/100ms", limit(20, 100, fixed), 2.0);
    row("fixed 200/200ms", limit(200, 200, fixed), 2.0);
    row("fixed 200/2s", limit(200, 2_000, fixed), 2.5);
    row("fixed 1/1s", limit(1, 1_000, fixed), 20.0);
    row("fixed 3/6s", limit(3, 6_000, fixed), 20.0);
    let first = Algorithm::FixedWindow {
        anchor: Anchor::FirstRequest,
    };
    row("first_request 200/500ms", limit(200, 500, first), 2.0);
    let counter = Algorithm::SlidingWindowCounter;
    row("counter 20/100ms", limit(20, 100, counter), 2.0);
    row("counter 100/1s", limit(100, 1_000, counter), 2.5);
    row("counter 2000/1s", limit(2_000, 1_000, counter), 1.5);
    row("counter 200/2s", limit(200, 2_000, counter), 2.5);
    row("counter 3/6s", limit(3, 6_000, counter), 20.0);
    let token = Algorithm::TOKEN_BUCKET;
    row("token 1/1s", limit(1, 1_000, token), 20.0);
    row("token 3/6s", limit(3, 6_000, token), 20.0);
    row("token 100/1s", limit(100, 1_000, token), 2.5);
    row("token 2000/1s", limit(2_000, 1_000, token), 1.5);
    let small = Rate::new(1_000, Micros::SECOND).burst(10);
    row(
        "token 1000/1s burst 10",
        Limit::new(small, token).unwrap(),
        2.0,
    );
    let leaky = Algorithm::LeakyBucket { shape: false };
    row("leaky 100/1s", limit(100, 1_000, leaky), 2.5);
    rows
}

fn rate_of(limit: &Limit) -> f64 {
    let window = limit
        .rate()
        .window
        .map_or(1, |window| window.longest().get());
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let rate = limit.rate().count as f64 * 1e6 / window as f64;
    rate
}

#[tokio::test(flavor = "multi_thread")]
async fn under_saturation_leased_slots_and_windows_use_nearly_all_of_their_limit() {
    let server = RedisServer::start();
    let stores = servers(&server, 4).await;
    let limits = [
        slots(100, 1_000, 50),
        slots(100, 1_000, 10),
        slots(200, 1_000, 5),
        slots(200, 1_000, 2),
        limit(100, 200, Algorithm::FIXED_WINDOW),
        limit(100, 1_000, Algorithm::SlidingWindowCounter),
        limit(100, 1_000, Algorithm::TOKEN_BUCKET),
        limit(1, 500, Algorithm::TOKEN_BUCKET),
    ];
    let cases = limits.map(|limit| {
        let demand = (rate_of(&limit) * 2.5).max(50.0);
        Arc::new(Case::new(&limit, demand, "hot"))
    });
    // One server has nearly all of the demand.
    let weights = [1.0, 0.1, 0.01, 0.01];
    let spans = (Duration::from_millis(1_500), Duration::from_secs(3));
    saturate(&stores, &cases, &weights, spans).await;
    for case in &cases {
        case.never_over();
        // Of a quiet machine all are above 98: `scripts/long leases`. Of few, each is many percent.
        let percent = case.percent();
        let [admitted, possible] = case.counts();
        assert!(
            percent >= 90.0 || admitted + 2 >= possible,
            "{}: {admitted} of {possible}",
            case.name
        );
        assert_eq!(case.failed.load(Ordering::Relaxed), 0, "{}", case.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_that_are_shorter_than_a_tenth_of_a_second_are_decided_exactly() {
    let server = RedisServer::start();
    let stores = servers(&server, 1).await;
    let limit = slots(1_000, 1_000, 20);
    let case = Arc::new(Case::new(&limit, 500.0, "hot"));
    let spans = (Duration::ZERO, Duration::from_millis(300));
    while case.admitted.load(Ordering::Relaxed) == 0 {
        saturate(&stores, std::slice::from_ref(&case), &[1.0], spans).await;
    }
    let leased = stores[0].stats().leased_decisions.load(Ordering::Relaxed);
    assert_eq!((leased, stores[0].units_on_lease()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "prints a table for several minutes: scripts/long leases"]
async fn table_of_what_is_used() {
    let only = std::env::var("LEASES_ONLY").unwrap_or_default();
    println!(
        "{:30} {:>14} {:>8} {:>8} {:>7} {:>6} {:>6}",
        "limit", "servers", "possible", "admitted", "%", "calls", "failed"
    );
    for (name, limit, times) in rows() {
        if !name.contains(&only) {
            continue;
        }
        let uneven = |count: usize| {
            let mut weights = vec![0.01; count];
            weights[0] = 1.0;
            weights
        };
        for weights in [vec![1.0], vec![1.0; 2], vec![1.0; 8], uneven(2), uneven(8)] {
            let server = RedisServer::start();
            let stores = servers(&server, weights.len()).await;
            tokio::time::sleep(Duration::from_millis(400)).await;
            let case = Arc::new(Case::new(&limit, rate_of(&limit) * times, "hot"));
            let before = calls(&stores);
            let window = limit.rate().window.map_or(Micros::ZERO, Window::longest);
            let measured = Duration::from_secs(6).max(Duration::from(window) * 2);
            let spans = (Duration::from_secs(5), measured);
            saturate(&stores, std::slice::from_ref(&case), &weights, spans).await;
            case.never_over();
            let [admitted, possible] = case.counts();
            let shape = if weights.len() > 1 && weights[1] < 1.0 {
                "100:1"
            } else {
                "even"
            };
            let calls = calls(&stores) - before;
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let calls = calls as f64 / case.outcomes.lock().len() as f64;
            println!(
                "{name:30} {:>8} {shape:5} {possible:8} {admitted:8} {:6.1}% {calls:6.2} {:6}",
                weights.len(),
                case.percent(),
                case.failed.load(Ordering::Relaxed),
            );
        }
    }
}

fn calls(stores: &[RedisStore]) -> u64 {
    let calls = |store: &RedisStore| store.stats().steps.load(Ordering::Relaxed);
    stores.iter().map(calls).sum()
}
