//! Locations and paths: the first line of the input is a table's location, each other line is a path of a log.
//!
//! A location and its normal form are the same location. A relative path stays inside the table, and a percent-encoded
//! path decodes to the original.

use std::collections::HashMap;

use deltic_store::{Storage, decode_path};

/// Paths read at most.
const PATHS: usize = 8;

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.split('\n');
    let open = |uri: &str| Storage::open(uri, &HashMap::new());
    let Ok(storage) = open(lines.next().unwrap_or_default()) else { return };
    let again = open(storage.location()).expect("a normal form is a location");
    assert_eq!(again.location(), storage.location());
    let root = storage.resolve_path("").unwrap();
    assert_eq!(again.resolve_path("").unwrap(), root);
    let below = if root.is_empty() || root == "/" { root.clone() } else { format!("{root}/") };
    for path in lines.take(PATHS) {
        let encoded: String = path.bytes().map(|byte| format!("%{byte:02X}")).collect();
        if let Ok(decoded) = decode_path(&encoded) {
            assert!(decoded == path || decoded == format!("./{path}"), "{path:?} became {decoded:?}");
            // However it looks, it is no absolute one.
            if let Ok(place) = storage.resolve_path(&decoded) {
                assert!(place == root || place.starts_with(&below), "{place:?} is not below {root:?}");
            }
        }
        let Ok(literal) = decode_path(path) else { continue };
        let Ok(place) = storage.resolve_path(&literal) else { continue };
        assert_eq!(again.resolve_path(&literal).unwrap(), place);
        let is_absolute = literal.starts_with('/') || literal.contains(":/");
        assert!(is_absolute || place == root || place.starts_with(&below), "{place:?} is not below {root:?}");
    }
}
