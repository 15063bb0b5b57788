//! See `crates/fuzzed/src/model_answer.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzzed::model_answer::check(data));
