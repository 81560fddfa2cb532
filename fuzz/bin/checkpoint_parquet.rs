#![no_main]

#[path = "../targets/checkpoint_parquet.rs"]
mod checkpoint_parquet;

// A decoder that was not written here may panic over damaged pages: it runs on a worker thread, where that becomes an
// error. A panic of its caller's is a finding, and so is one on any other thread, which nothing would catch.
libfuzzer_sys::fuzz_target!(
    init: {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let is_foreign = panic.location().is_some_and(|at| at.file().contains("/registry/src/"));
            if !is_foreign || std::thread::current().name() == Some("main") {
                report(panic);
            }
        }));
    },
    |data: &[u8]| checkpoint_parquet::run(data)
);
