#![no_main]

#[path = "../targets/predicate.rs"]
mod predicate;

libfuzzer_sys::fuzz_target!(|data: &[u8]| predicate::run(data));
