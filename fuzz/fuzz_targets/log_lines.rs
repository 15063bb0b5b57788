//! See `crates/fuzzed/src/log_lines.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzzed::log_lines::check(data));
