//! See `crates/fuzzed/src/import.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzzed::import::check(data));
