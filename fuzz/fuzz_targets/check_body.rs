//! See `crates/fuzzed/src/check_body.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzzed::check_body::check(data));
