//! See `crates/fuzzed/src/model_request.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzzed::model_request::check(data));
