//! See `crates/fuzzed/src/path.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzzed::path::check(data));
