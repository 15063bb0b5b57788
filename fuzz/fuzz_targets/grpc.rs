//! See `crates/fuzzed/src/grpc.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzzed::grpc::check(data));
