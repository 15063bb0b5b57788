//! How many instructions a decision may take. The benchmarks are in `benches`, one file for each area;
//! `instructions.json` has what each may take. `./scripts/instructions` counts and compares,
//! `./scripts/instructions --record` writes the file anew.
//!
//! A new benchmark is a function in one of the files and a line in its `main`, or a new file with a `[[bench]]` section in
//! `Cargo.toml`. It repeats what it measures, so that entering and leaving it does not count. Its input is the same in every run.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::process::exit;

/// The `main` of a file of benchmarks: runs the one that the first argument names. Without an argument, as `cargo bench`
/// calls it, prints the names of all.
pub fn run(benchmarks: &[(&str, fn())]) {
    let names = || benchmarks.iter().map(|(name, _)| *name);
    let wanted = std::env::args().nth(1).filter(|word| word != "--bench");
    let Some(wanted) = wanted else {
        return names().for_each(|name| println!("{name}"));
    };
    let Some((_, benchmark)) = benchmarks.iter().find(|(name, _)| *name == wanted) else {
        let all: Vec<&str> = names().collect();
        eprintln!("no benchmark `{wanted}`; there are {}", all.join(", "));
        exit(2);
    };
    benchmark();
}

/// Counts `benchmark` with its input. Making the input and dropping the output do not count.
pub fn count<I, O>(input: I, benchmark: impl FnOnce(I) -> O) {
    drop(counted(input, benchmark));
}

/// The script counts the instructions of this function and of what it calls, so it is never inlined.
#[inline(never)]
fn counted<I, O>(input: I, benchmark: impl FnOnce(I) -> O) -> O {
    black_box(benchmark(black_box(input)))
}
