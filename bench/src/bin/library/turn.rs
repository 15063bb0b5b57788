//! One turn: how long it took, the CPU time that it used, and how long a few of the checks took.

use std::hint::black_box;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use tidegate_bench::contenders::Contender;

/// One check of so many is timed by itself.
const TIMED: usize = 64;

/// What a turn measured.
pub struct Turn {
    checks: usize,
    seconds: f64,
    /// User and system time of the process, all of its threads.
    cpu_seconds: f64,
    /// Nanoseconds of timed checks, sorted.
    latencies: Vec<u64>,
}

impl Turn {
    pub fn to_json(&self) -> String {
        format!(
            "{{\"checks\":{},\"seconds\":{},\"cpu_seconds\":{},\"p50\":{},\"p99\":{}}}",
            self.checks,
            self.seconds,
            self.cpu_seconds,
            self.quantile(0.5),
            self.quantile(0.99)
        )
    }

    /// In seconds.
    fn quantile(&self, share: f64) -> f64 {
        let index = (self.latencies.len() as f64 * share) as usize;
        let nanos = self
            .latencies
            .get(index.min(self.latencies.len().saturating_sub(1)));
        nanos.map_or(0.0, |nanos| *nanos as f64 / 1e9)
    }
}

/// Charges the keys of each stream on a thread.
pub fn run(contender: &dyn Contender, streams: &[Vec<u32>]) -> Turn {
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let mut latencies: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = streams
            .iter()
            .map(|stream| scope.spawn(|| drive(contender, stream)))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.flat_map(|part| part.expect("no panic")).collect()
    });
    let seconds = started.elapsed().as_secs_f64();
    let cpu_seconds = cpu_seconds() - cpu;
    latencies.sort_unstable();
    Turn {
        checks: streams.iter().map(Vec::len).sum(),
        seconds,
        cpu_seconds,
        latencies,
    }
}

fn drive(contender: &dyn Contender, stream: &[u32]) -> Vec<u64> {
    let mut key = String::new();
    let mut latencies = Vec::with_capacity(stream.len() / TIMED + 1);
    for (index, number) in stream.iter().enumerate() {
        let number = u64::from(*number);
        if index % TIMED == 0 {
            let started = Instant::now();
            black_box(contender.check_number(number, &mut key));
            latencies.push(started.elapsed().as_nanos() as u64);
        } else {
            black_box(contender.check_number(number, &mut key));
        }
    }
    latencies
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
