//! Action reconciliation. The oracle is a map to which commits are applied from the oldest to the newest.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray, StructArray};
use arrow_schema::{DataType, Field, Fields};
use deltic_protocol::action::Cdc;
use deltic_protocol::action::batch::{AddBatch, KeyBatch, Origin};
use deltic_protocol::action::json::{CommitActions, Wanted, parse_commit};
use deltic_protocol::deletion_vector::{DeletionVectorPath, encode_path};
use deltic_protocol::replay::logical::LogicalFiles;
use deltic_protocol::replay::retention::{KeptFile, Retention, is_before_cutoff};
use deltic_protocol::replay::{Replay, canonical_path};
use proptest::prelude::*;
use serde_json::json;

/// Storage type, path and offset.
type Vector = (&'static str, &'static str, Option<i32>);

fn keys(files: &[(String, Option<Vector>)]) -> KeyBatch {
    let path: StringArray = files.iter().map(|(path, _)| Some(path.as_str())).collect();
    let members: Vec<ArrayRef> = vec![
        Arc::new(files.iter().map(|(_, v)| v.map(|v| v.0)).collect::<StringArray>()),
        Arc::new(files.iter().map(|(_, v)| v.map(|v| v.1)).collect::<StringArray>()),
        Arc::new(files.iter().map(|(_, v)| v.and_then(|v| v.2)).collect::<Int32Array>()),
    ];
    let fields = Fields::from(vec![
        Field::new("storageType", DataType::Utf8, true),
        Field::new("pathOrInlineDv", DataType::Utf8, true),
        Field::new("offset", DataType::Int32, true),
    ]);
    let columns: [(&str, ArrayRef); 2] =
        [("path", Arc::new(path)), ("deletionVector", Arc::new(StructArray::new(fields, members, None)))];
    KeyBatch::new(&RecordBatch::try_from_iter(columns).unwrap()).unwrap()
}

fn plain(paths: &[&str]) -> KeyBatch {
    keys(&paths.iter().map(|p| ((*p).to_owned(), None)).collect::<Vec<_>>())
}

fn bits(buffer: arrow_buffer::BooleanBuffer) -> Vec<bool> {
    buffer.iter().collect()
}

#[test]
fn canonical_paths() {
    let cases: &[(&str, &str)] = &[
        ("a/b.parquet", "a/b.parquet"),
        ("a%2Fb", "a/b"),
        ("p=x%20y/f%25.parquet", "p=x y/f%.parquet"),
        ("%C3%A9", "é"),
        ("%c3%a9", "é"),
        // Invalid escapes and escapes of invalid UTF-8 stay.
        ("100%", "100%"),
        ("%zz", "%zz"),
        ("%ff", "%ff"),
        ("a+b", "a+b"),
        ("p=12:30/f", "p=12:30/f"),
        ("p=12%3A30/f", "p=12:30/f"),
        ("/t/a", "/t/a"),
        ("file:/t/a", "/t/a"),
        ("file:///t/a", "/t/a"),
        ("file:///t/a%20b", "/t/a b"),
        // A name, not a scheme.
        ("file:a", "file:a"),
        ("file%3A/t/a", "file:/t/a"),
        ("s3://bucket/a%20b", "s3://bucket/a b"),
        ("s3a://bucket/a", "s3a://bucket/a"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/a/../b//c", "s3://bucket/b/c"),
        ("1://a/../b", "1:/b"),
        // Segments as the store resolves them, before or after they are decoded.
        ("./a", "a"),
        (".a", ".a"),
        ("x/.a", "x/.a"),
        ("x//a", "x/a"),
        ("x/a/", "x/a"),
        ("x/./a", "x/a"),
        ("x/../a", "a"),
        ("x/y/../../a", "a"),
        ("x/%2E%2E/a", "a"),
        ("../a", "../a"),
        ("x/../../a", "../a"),
        ("%2Fa", "a"),
        ("//t/a", "/t/a"),
        ("/t/../a", "/a"),
        ("file:///t/./a", "/t/a"),
        ("", ""),
    ];
    for (path, expected) in cases {
        assert_eq!(canonical_path(path), *expected, "{path}");
    }
}

#[test]
fn plain_paths_are_not_copied() {
    for path in ["part-00000-87fccaa9.c000.snappy.parquet", "p=1/q=é/f.parquet", "/t/a"] {
        assert!(matches!(canonical_path(path), Cow::Borrowed(same) if same == path), "{path}");
    }
}

#[test]
fn the_newest_action_of_a_file_counts() {
    let mut replay = Replay::new();
    assert!(replay.is_empty());
    assert_eq!(bits(replay.not_contained(&plain(&["a", "a"]))), [true, true]);
    assert_eq!(bits(replay.insert(&plain(&["a", "b", "a"]))), [true, true, false]);
    assert!(!replay.is_empty());
    assert_eq!(bits(replay.insert(&plain(&["c", "%62", "file:/a"]))), [true, false, true]);
    assert_eq!(bits(replay.not_contained(&plain(&["a", "d", "/a", "%63", "d"]))), [false, true, false, false, true]);
    // `not_contained` inserts nothing.
    assert_eq!(bits(replay.not_contained(&plain(&["d"]))), [true]);
    assert_eq!(bits(replay.not_contained(&plain(&[]))), [false; 0]);
}

#[test]
fn files_with_different_vectors_are_different_files() {
    let file = |vector: Option<Vector>| ("a".to_owned(), vector);
    let mut replay = Replay::new();
    let all = [
        None,
        Some(("u", "x", None)),
        Some(("u", "x", Some(0))),
        Some(("u", "x", Some(1))),
        Some(("p", "x", Some(1))),
        Some(("u", "y", Some(1))),
    ];
    assert_eq!(bits(replay.insert(&keys(&all.map(file)))), [true; 6]);
    assert_eq!(bits(replay.not_contained(&keys(&all.map(file)))), [false; 6]);
    assert_eq!(bits(replay.not_contained(&keys(&[file(Some(("u", "x", Some(2))))]))), [true]);
    // A batch without deletion vectors has no such column.
    assert_eq!(bits(replay.not_contained(&plain(&["a"]))), [false]);
}

#[test]
fn many_files_are_replayed() {
    let commit = |from: usize| {
        let paths: Vec<String> = (from..from + 50_000).map(|i| format!("part-{i:05}-c000.snappy.parquet")).collect();
        plain(&paths.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let mut replay = Replay::new();
    for half in 0..4 {
        let new = replay.insert(&commit(half * 25_000)).count_set_bits();
        assert_eq!(new, if half == 0 { 50_000 } else { 25_000 });
    }
    assert_eq!(replay.not_contained(&commit(100_000)).count_set_bits(), 25_000);
}

mod properties {
    use super::*;

    const NAMES: [&str; 6] = ["a.parquet", "p=x y/b.parquet", "p=é/c", "100%", "/t/abs 1", "p=12:30/d"];
    const VECTORS: [Option<Vector>; 4] =
        [None, Some(("u", "ab", Some(1))), Some(("u", "ab", Some(2))), Some(("i", "zz", None))];

    /// One action: index of the name, spelling, index of the vector, and whether it is an add.
    type Step = (usize, u64, usize, bool);

    /// Percent-encodes the bytes whose bit in `spelling` is set, and those that must be encoded.
    fn spelled(name: &str, spelling: u64) -> String {
        let mut text = String::new();
        for (i, byte) in name.bytes().enumerate() {
            let must = !byte.is_ascii() || byte == b'%';
            match must || (byte != b'/' && spelling >> (i % 60) & 1 == 1) {
                true if spelling >> 61 & 1 == 1 => text.push_str(&format!("%{byte:02x}")),
                true => text.push_str(&format!("%{byte:02X}")),
                false => text.push(char::from(byte)),
            }
        }
        match (name.starts_with('/'), spelling >> 62) {
            (true, 1) => format!("file:{text}"),
            (true, 2) => format!("file://{text}"),
            _ => text,
        }
    }

    fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
        let step = (0..NAMES.len(), any::<u64>(), 0..VECTORS.len(), any::<bool>());
        // A commit has at most one action of each file.
        let commit = proptest::collection::vec(step, 0..8).prop_map(|steps| {
            let mut seen = std::collections::BTreeSet::new();
            steps.into_iter().filter(|(name, _, vector, _)| seen.insert((*name, *vector))).collect()
        });
        proptest::collection::vec(commit, 0..8)
    }

    fn batch(steps: &[&Step]) -> KeyBatch {
        keys(
            &steps
                .iter()
                .map(|(name, how, vector, _)| (spelled(NAMES[*name], *how), VECTORS[*vector]))
                .collect::<Vec<_>>(),
        )
    }

    proptest! {
        #[test]
        fn replay_agrees_with_applying_commits_in_order(commits in steps(), checkpoint in any::<prop::sample::Index>()) {
            // The oracle: name and vector, and the commit that added the file.
            let mut model: BTreeMap<(usize, usize), usize> = BTreeMap::new();
            let checkpoint = checkpoint.index(commits.len() + 1);
            let mut held = BTreeMap::new();
            for (version, commit) in commits.iter().enumerate() {
                if version == checkpoint {
                    held = model.clone();
                }
                for (name, _, vector, is_add) in commit {
                    if *is_add {
                        model.insert((*name, *vector), version);
                    } else {
                        model.remove(&(*name, *vector));
                    }
                }
            }
            if checkpoint == commits.len() {
                held = model.clone();
            }

            let mut replay = Replay::new();
            let mut live = BTreeMap::new();
            for (version, commit) in commits.iter().enumerate().skip(checkpoint).rev() {
                for is_add in [true, false] {
                    let steps: Vec<&Step> = commit.iter().filter(|step| step.3 == is_add).collect();
                    let newest = replay.insert(&batch(&steps));
                    for (step, _) in steps.iter().zip(&newest).filter(|(_, is_new)| is_add && *is_new) {
                        live.insert((step.0, step.2), version);
                    }
                }
            }
            // The checkpoint may spell paths differently.
            let files: Vec<Step> = held.keys().map(|(name, vector)| (*name, (*name as u64) << 61, *vector, true)).collect();
            let unseen = replay.not_contained(&batch(&files.iter().collect::<Vec<_>>()));
            for ((key, version), _) in held.iter().zip(&unseen).filter(|(_, is_unseen)| *is_unseen) {
                live.insert(*key, *version);
            }
            prop_assert_eq!(live, model);
        }
    }
}

/// A commit of files, each a path, the first byte of the UUID of its deletion vector file, if any, and a base row id.
fn files(kind: &str, of: &[(&str, Option<u8>, Option<i64>)]) -> CommitActions {
    let line = |(path, vector, id): &(&str, Option<u8>, Option<i64>)| {
        let vector = vector.map(|first| {
            let mut uuid = [0; 16];
            uuid[0] = first;
            json!({"storageType": "u", "pathOrInlineDv": encode_path("", &uuid), "offset": 1, "sizeInBytes": 40, "cardinality": 1})
        });
        let file = json!({"path": path, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": true,
            "deletionVector": vector, "baseRowId": id});
        json!({ kind: file }).to_string()
    };
    let lines = of.iter().map(line).collect::<Vec<_>>().join("\n");
    parse_commit(&lines.into(), Origin::Commit(0), Wanted::All).unwrap()
}

#[test]
fn versions_differ_in_paths_and_vectors() {
    let mut now = LogicalFiles::default();
    now.extend(&files("add", &[("a", None, Some(7)), ("b", Some(1), None), ("c%20d", None, None)]).adds).unwrap();
    now.insert("e", None);
    let then = files(
        "add",
        &[("a", None, Some(7)), ("b", Some(2), None), ("b", Some(1), None), ("c d", None, None), ("f", None, None)],
    );
    assert_eq!(now.missing(&then.adds).unwrap(), [1, 4]);
    assert!(now.contains("e", None) && !now.contains("b", None));
    assert_eq!(now.find_row_id_mismatch(&then.adds).unwrap(), None);
    let other = files("add", &[("g", None, Some(1)), ("a", None, Some(8))]);
    assert_eq!(now.find_row_id_mismatch(&other.adds).unwrap(), Some("a"));
}

#[test]
fn a_vacuum_keeps_files_of_versions_within_its_retention() {
    let retention = Retention { cutoff_ms: 100, current: Some(3), newest: 6 };
    assert_eq!((retention.first_commit(), retention.tombstones_after_ms()), (4, 99));
    assert!(is_before_cutoff(99, retention.cutoff_ms) && !is_before_cutoff(100, retention.cutoff_ms));
    assert_eq!(Retention { current: None, ..retention }.first_commit(), 0);
    let kept = |version: Option<u64>| {
        let mut kept = Vec::new();
        let mut keep = |needed: KeptFile<'_>| {
            kept.push(match needed {
                KeptFile::Data(path) => path.to_owned(),
                KeptFile::Vectors(DeletionVectorPath::Relative(path)) => path[..18].to_owned(),
                KeptFile::Vectors(path) => panic!("{path:?}"),
            });
            Ok(())
        };
        let adds = files("add", &[("new", Some(9), None)]).adds;
        let removes = files("remove", &[("old", Some(1), None)]).remove_rows;
        let removes = AddBatch::new(Origin::Commit(4), removes).unwrap();
        let cdc = Cdc { path: "change".to_owned(), ..Cdc::default() };
        match version {
            Some(version) => retention.keep_files_of_commit(version, &adds, &removes, [&cdc], &mut keep).unwrap(),
            None => retention.keep_files(&adds, &mut keep).unwrap(),
        }
        kept
    };
    assert_eq!(kept(None), ["new", "deletion_vector_09"]);
    assert_eq!(kept(Some(4)), ["old", "deletion_vector_01", "change"]);
    assert_eq!(kept(Some(7)), ["new", "deletion_vector_09", "old", "deletion_vector_01", "change"]);
}
