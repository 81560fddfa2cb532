#![no_main]

#[path = "../targets/deletion_vector.rs"]
mod deletion_vector;

libfuzzer_sys::fuzz_target!(|data: &[u8]| deletion_vector::run(data));
