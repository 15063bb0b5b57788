//! See `crates/fuzzed/src/descriptors.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzzed::descriptors::check(data));
