//! See `crates/fuzzed/src/http1_request.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzzed::http1_request::check(data));
