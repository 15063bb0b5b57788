//! See `crates/fuzzed/src/resp.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzzed::resp::check(data));
