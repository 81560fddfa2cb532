#![no_main]

#[path = "../targets/pages.rs"]
mod pages;

// A decoder that was not written here may panic over damaged pages: it runs on a thread of its own. Any other panic is a
// finding.
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
    |data: &[u8]| pages::run(data)
);
