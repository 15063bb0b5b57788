//! Runs seeds: `tidegate-simulation [FIRST [COUNT]]`. Prints figures, and for a seed that breaks a promise what it
//! broke and how to run it again. `tidegate-simulation reservations [FIRST [COUNT]]` runs seeds with reservations, and
//! `tidegate-simulation planted` looks for planted bugs instead.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use tidegate_simulation::seeds::{
    PLANTED_BUGS, RESERVATION_BUGS, SeedReport, run_reservations, run_seed,
};

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
    /// The least use, and the seed that had it.
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
        let used = match self.least_used {
            Some((used, seed)) => format!(
                "at least {}.{:02} % of the limit used in {} without faults (seed {seed})",
                used / 100,
                used % 100,
                self.measured
            ),
            None => "none without faults".to_owned(),
        };
        println!(
            "{} seeds: {} requests, {} admitted, {} decided without Redis; {used}; {} broke a promise",
            self.seeds, self.answers, self.admitted, self.degraded, self.broken
        );
    }
}

fn run_seeds(first: u64, count: u64) -> ExitCode {
    let mut figures = SeedFigures::default();
    for seed in first..first.saturating_add(count) {
        let report = run_seed(seed, &[]);
        figures.add(&report);
        for broken in &report.broken {
            println!("seed {seed}: {broken}\nrun it again: ./scripts/long seeds {seed} 1");
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

fn run_with_reservations(first: u64, count: u64) -> ExitCode {
    let [mut asked, mut made, mut settled, mut unanswered, mut broken] = [0; 5];
    for seed in first..first.saturating_add(count) {
        let report = run_reservations(seed, &[]);
        asked += report.asked;
        made += report.made;
        settled += report.settled;
        unanswered += report.unanswered;
        broken += u64::from(!report.broken.is_empty());
        for promise in &report.broken {
            println!("seed {seed}: {promise}\nrun it again: ./scripts/long reservations {seed} 1");
        }
        if count == 1 {
            println!("{}\ntrace {:016x}", report.plan, report.trace);
        }
    }
    println!(
        "{count} seeds: {asked} reservations asked for, {made} made, {settled} settled, {unanswered} calls not answered; {broken} broke a promise"
    );
    if broken > 0 {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn look_for_planted() -> ExitCode {
    let bugs = PLANTED_BUGS.iter();
    let of_limits = bugs.map(|bug| (bug.name, bug.find()));
    let bugs = RESERVATION_BUGS.iter();
    let of_reservations = bugs.map(|bug| (bug.name, bug.find()));
    let mut code = ExitCode::SUCCESS;
    for (name, found) in of_limits.chain(of_reservations) {
        if let Some((seed, broken)) = found {
            println!("{name}: found by seed {seed}: {broken}");
        } else {
            println!("{name}: not found");
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["planted"] {
        return look_for_planted();
    }
    let has_reservations = arguments.first().is_some_and(|word| word == "reservations");
    arguments.drain(..usize::from(has_reservations));
    let number = |index: usize, default: u64| {
        let text = arguments.get(index);
        text.map_or(Ok(default), |text| text.parse())
    };
    let usual = if has_reservations { 2_000 } else { 10_000 };
    let (Ok(first), Ok(count)) = (number(0, 1), number(1, usual)) else {
        eprintln!("usage: tidegate-simulation [reservations] [FIRST [COUNT]] | planted");
        return ExitCode::FAILURE;
    };
    if has_reservations {
        run_with_reservations(first, count)
    } else {
        run_seeds(first, count)
    }
}
