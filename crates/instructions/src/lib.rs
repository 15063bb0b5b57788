//! How many instructions a decision may take. The benchmarks are in `benches`, one file for each area;
//! `instructions.json` has what each may take. `./scripts/instructions` counts and compares,
//! `./scripts/instructions --record` writes the file anew.
//!
//! A new benchmark is a function in one of the files, or a new file with a `[[bench]]` section in `Cargo.toml`. It repeats
//! what it measures, so that entering and leaving it does not count. Its input is the same in every run.

#![forbid(unsafe_code)]
