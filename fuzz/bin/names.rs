#![no_main]

#[path = "../targets/names.rs"]
mod names;

libfuzzer_sys::fuzz_target!(|data: &[u8]| names::run(data));
