//! See `crates/fuzzed/src/forwarded.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzzed::forwarded::check(data));
