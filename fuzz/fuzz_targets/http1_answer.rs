//! See `crates/fuzzed/src/http1_answer.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzzed::http1_answer::check(data));
