//! See `crates/fuzzed/src/condition.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzzed::condition::check(data));
