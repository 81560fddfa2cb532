#![no_main]

#[path = "../targets/crc.rs"]
mod crc;

libfuzzer_sys::fuzz_target!(|data: &[u8]| crc::run(data));
