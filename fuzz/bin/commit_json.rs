#![no_main]

#[path = "../targets/commit_json.rs"]
mod commit_json;

libfuzzer_sys::fuzz_target!(|data: &[u8]| commit_json::run(data));
