//! Runs a target on the files of its corpus, for the ordinary tests.

use std::path::{Path, PathBuf};

pub(crate) fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

pub(crate) fn replay(target: &str, run: fn(&[u8])) {
    let mut files: Vec<PathBuf> = std::fs::read_dir(corpus(target)).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "the corpus of {target} is empty");
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        assert!(std::panic::catch_unwind(|| run(&bytes)).is_ok(), "found by {}", file.display());
    }
}
