//! `_last_checkpoint`: a parsed hint is printed with a correct checksum, and is the same after parsing that.

use deltic_protocol::log::hint::{LastCheckpoint, canonical, checksum};

pub(crate) fn run(data: &[u8]) {
    let read = LastCheckpoint::parse(data);
    if let Ok(text) = std::str::from_utf8(data) {
        assert_eq!(canonical(text).is_some(), checksum(text).is_some());
        assert_eq!(canonical(text), canonical(&format!(" {text}\n")));
        assert!(checksum(text).is_none_or(|sum| sum.len() == 32));
    }
    let Ok(read) = read else { return };
    let printed = read.to_json();
    let again = LastCheckpoint::parse(printed.as_bytes()).unwrap();
    assert_eq!(again.checksum, checksum(&printed));
    assert!(again.checksum.is_some());
    let without = |hint: &LastCheckpoint| LastCheckpoint { checksum: None, ..hint.clone() };
    assert_eq!(without(&again), without(&read));
    // The checksum guards what it says.
    let other = LastCheckpoint { version: read.version ^ 1, ..again.clone() };
    let forged =
        printed.replacen(&format!("\"version\":{}", read.version), &format!("\"version\":{}", other.version), 1);
    assert_eq!(LastCheckpoint::parse(forged.as_bytes()).ok(), None);
}
