//! See `crates/fuzzed/src/redis_replies.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzzed::redis_replies::check(data));
