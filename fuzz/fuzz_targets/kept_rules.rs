//! See `crates/fuzzed/src/kept_rules.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzzed::kept_rules::check(data));
