//! Snapshots of a million keys: time to write one to a file and to load it, and what decisions notice of it.

use std::fs::File;
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidegate_bench::keys::Spread;
use tidegate_bench::median;
use tidegate_core::{Algorithm, Charge, Limit, MemoryStore, Micros, Rate, Scope};

const KEYS: u32 = 1_000_000;
const TURNS: usize = 7;

fn main() {
    let folder = std::env::temp_dir().join(format!("tidegate-bench-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    println!(
        "{KEYS} keys, medians of {TURNS}; written with fsync, in {}",
        folder.display()
    );
    println!(
        "{:<28}{:>10}{:>10}{:>10}{:>14}{:>14}{:>14}{:>14}",
        "state",
        "MB",
        "write ms",
        "load ms",
        "99.99 % us",
        "while writing",
        "slowest us",
        "while writing"
    );
    let rate = Rate::new(100, Micros::DAY);
    for (name, algorithm, charges) in [
        ("token_bucket", Algorithm::TOKEN_BUCKET, 1),
        ("sliding_window_log of 5", Algorithm::SlidingWindowLog, 5),
    ] {
        let limit = Limit::new(rate, algorithm).expect("a limit");
        measure(name, &limit, charges, &folder.join("counters"));
    }
    let _ = std::fs::remove_dir_all(&folder);
}

fn measure(name: &str, limit: &Limit, charges: u32, file: &Path) {
    let (store, scope) = (MemoryStore::new(), Scope::new("bench"));
    let keys: Vec<String> = (0..KEYS).map(|number| format!("user:{number}")).collect();
    let charge = |key: u32| {
        black_box(store.charge_one(&Charge {
            scope: &scope,
            limit,
            key: &keys[key as usize],
            cost: 1,
        }));
    };
    for _ in 0..charges {
        (0..KEYS).for_each(charge);
    }
    let (mut writes, mut loads) = (Vec::new(), Vec::new());
    let (mut calm, mut busy) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    for turn in 0..TURNS {
        let is_over = AtomicBool::new(false);
        let mut write = Duration::ZERO;
        busy.push(std::thread::scope(|threads| {
            let deciding = threads.spawn(|| decide(&is_over, None, turn, charge));
            let start = Instant::now();
            let mut to = File::create(file).expect("a file");
            bytes = store.snapshot(&mut to).expect("a snapshot").bytes;
            to.sync_all().expect("a disk");
            write = start.elapsed();
            is_over.store(true, Ordering::Relaxed);
            deciding.join().expect("decisions")
        }));
        // The same for as long, without a snapshot.
        calm.push(decide(&AtomicBool::new(false), Some(write), turn, charge));
        writes.push(write.as_secs_f64() * 1e3);
        let start = Instant::now();
        let from = File::open(file).expect("the file");
        let restored = MemoryStore::builder().restore(from).expect("a store");
        loads.push(start.elapsed().as_secs_f64() * 1e3);
        assert_eq!(restored.1.keys, u64::from(KEYS));
    }
    let middle =
        |of: &[[f64; 2]], index: usize| median(of.iter().map(|turn| turn[index]).collect());
    println!(
        "{name:<28}{:>10.1}{:>10.0}{:>10.0}{:>14.1}{:>14.1}{:>14.0}{:>14.0}",
        bytes as f64 / 1e6,
        median(writes),
        median(loads),
        middle(&calm, 0),
        middle(&busy, 0),
        middle(&calm, 1),
        middle(&busy, 1),
    );
}

/// Decides until it is over, or for so long: what all but one in 10,000 decisions took at the most, and
/// the slowest, in microseconds.
fn decide(
    is_over: &AtomicBool,
    span: Option<Duration>,
    seed: usize,
    charge: impl Fn(u32),
) -> [f64; 2] {
    let stream = Spread::Uniform(KEYS).stream(1 << 16, seed as u64 + 1);
    let mut took = Vec::with_capacity(1 << 24);
    let begin = Instant::now();
    for key in stream.iter().cycle() {
        let start = Instant::now();
        charge(*key);
        took.push(start.elapsed().as_nanos() as u32);
        let is_long_enough = span.is_some_and(|span| start - begin >= span);
        if is_over.load(Ordering::Relaxed) || is_long_enough || took.len() == took.capacity() {
            break;
        }
    }
    took.sort_unstable();
    let at = |part: f64| f64::from(took[((took.len() - 1) as f64 * part) as usize]) / 1e3;
    [at(0.9999), at(1.0)]
}
