//! Runs seeds: `tidegate-simulation [FIRST [COUNT]]`. Prints figures, and for a seed that breaks a promise what it
//! broke and how to run it again.

use std::process::ExitCode;

use tidegate_simulation::seeds::{SeedReport, run_seed};

/// How often progress is printed.
const PROGRESS: u64 = 1_000;

/// What all seeds have in common.
#[derive(Default)]
struct SeedFigures {
    seeds: u64,
    answers: u64,
    admitted: u64,
    degraded: u64,
    measured: u64,
    least_used: Option<(u64, u64)>,
    broken: u64,
}

impl SeedFigures {
    fn add(&mut self, report: &SeedReport) {
        self.seeds += 1;
        self.answers += report.answers;
        self.admitted += report.admitted;
        self.degraded += report.degraded;
        if let Some(used) = report.used {
            self.measured += 1;
            let least = self.least_used.get_or_insert((used, report.seed));
            *least = (*least).min((used, report.seed));
        }
        self.broken += u64::from(!report.broken.is_empty());
    }

    fn print(&self) {
        let [whole, part, seed] = self
            .least_used
            .map_or([0; 3], |(used, seed)| [used / 100, used % 100, seed]);
        println!(
            "{} seeds: {} requests, {} admitted, {} decided without Redis; use measured in {} seeds, at least {whole}.{part:02} % (seed {seed}); {} seeds broke a promise",
            self.seeds, self.answers, self.admitted, self.degraded, self.measured, self.broken
        );
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (Ok(first), Ok(count)) = (number(1), number(10_000)) else {
        eprintln!("usage: tidegate-simulation [FIRST [COUNT]]");
        return ExitCode::FAILURE;
    };
    let mut figures = SeedFigures::default();
    for seed in first..first.saturating_add(count) {
        let report = run_seed(seed, &[]);
        figures.add(&report);
        if !report.broken.is_empty() {
            for broken in &report.broken {
                println!("seed {seed}: {broken}");
            }
            println!("run it again: ./scripts/seeds {seed} 1");
        }
        if count == 1 {
            println!("{}\ntrace {:016x}", report.plan, report.trace);
        } else if figures.seeds.is_multiple_of(PROGRESS) && figures.seeds < count {
            figures.print();
        }
    }
    figures.print();
    if figures.broken > 0 {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
