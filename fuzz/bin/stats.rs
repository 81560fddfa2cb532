#![no_main]

#[path = "../targets/stats.rs"]
mod stats;

libfuzzer_sys::fuzz_target!(|data: &[u8]| stats::run(data));
