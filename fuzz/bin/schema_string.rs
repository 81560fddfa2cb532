#![no_main]

#[path = "../targets/schema_string.rs"]
mod schema_string;

libfuzzer_sys::fuzz_target!(|data: &[u8]| schema_string::run(data));
