#![no_main]

#[path = "../targets/settings.rs"]
mod settings;

libfuzzer_sys::fuzz_target!(|data: &[u8]| settings::run(data));
