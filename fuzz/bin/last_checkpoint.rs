#![no_main]

#[path = "../targets/last_checkpoint.rs"]
mod last_checkpoint;

libfuzzer_sys::fuzz_target!(|data: &[u8]| last_checkpoint::run(data));
