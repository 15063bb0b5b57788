//! See `crates/fuzzed/src/snapshot.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzzed::snapshot::check(data));
