#![no_main]

#[path = "../targets/arrow_data.rs"]
mod arrow_data;

libfuzzer_sys::fuzz_target!(|data: &[u8]| arrow_data::run(data));
