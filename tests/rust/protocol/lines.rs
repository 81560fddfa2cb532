//! Printed actions in compressed form, and sets of paths as fingerprints.

use std::collections::BTreeSet;

use deltic_protocol::action::lines::{Lines, file_action_of};
use deltic_protocol::action::{Action, Add, DeletionVectorDescriptor, Remove, Txn};
use deltic_protocol::commit::Actions;
use deltic_protocol::replay::paths::PathSet;
use proptest::prelude::*;
use serde_json::json;

fn add(at: usize) -> Action {
    let stats = json!({"numRecords": at, "minValues": {"x": at * 7919}, "maxValues": {"x": at * 104_729}});
    Action::Add(Add {
        path: format!("p={}/part-{at:05}-{:016x}.parquet", at % 31, at.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        partition_values: [("p".to_owned(), Some((at % 31).to_string()))].into(),
        size: i64::try_from(at).unwrap() * 1_000_003,
        data_change: true,
        stats: Some(stats.to_string()),
        ..Add::default()
    })
}

fn remove(path: &str, vector: Option<&str>) -> Action {
    let deletion_vector = vector.map(|id| DeletionVectorDescriptor {
        storage_type: "u".to_owned(),
        path_or_inline_dv: id.to_owned(),
        ..DeletionVectorDescriptor::default()
    });
    Action::Remove(Remove { path: path.to_owned(), deletion_vector, ..Remove::default() })
}

/// Checks that all methods of `lines` agree with the text.
#[track_caller]
fn check(lines: &Lines, text: &[u8]) {
    assert_eq!(lines.len(), text.len() as u64);
    assert_eq!(lines.is_empty(), text.is_empty());
    assert_eq!(lines.to_bytes().unwrap(), text);
    let pieces: Vec<Vec<u8>> = lines.pieces().collect::<Result<_, _>>().unwrap();
    assert!(pieces.iter().all(|piece| piece.ends_with(b"\n")), "a piece does not end at a line end");
    assert_eq!(pieces.concat(), text);
    let mut visited = Vec::new();
    let visit = |line: &[u8]| {
        visited.extend_from_slice(line);
        visited.push(b'\n');
        Ok(())
    };
    lines.each(visit).unwrap();
    assert_eq!(visited, text);
}

#[test]
fn lines_round_trip() {
    let (mut lines, mut text) = (Lines::new(), Vec::new());
    check(&lines, &text);
    for at in 0..20_000 {
        let mut one = Lines::new();
        one.push(&add(at)).unwrap();
        text.extend(one.to_bytes().unwrap());
        if at % 3 == 0 {
            lines.append(one).unwrap()
        } else {
            lines.push(&add(at)).unwrap()
        }
        if at % 4_999 == 0 {
            check(&lines, &text);
        }
    }
    check(&lines, &text);
    check(&Lines::of(&text).unwrap(), &text);
    // Not counting the last piece, which is not compressed yet.
    let held = lines.held().saturating_sub(2 * 1024 * 1024);
    assert!(held * 3 < text.len(), "{held} bytes in memory for {} bytes of text", text.len());
    let txn = Action::Txn(Txn { app_id: "app".to_owned(), version: 1, last_updated: None });
    let mut with_txn = Lines::new();
    with_txn.push(&txn).unwrap();
    let other = with_txn.to_bytes().unwrap();
    with_txn.append(lines).unwrap();
    with_txn.push(&txn).unwrap();
    check(&with_txn, &[&other[..], &text, &other].concat());
    assert_eq!(with_txn.non_file_lines().unwrap(), [&other[..], &other].concat());
}

#[test]
fn file_actions_are_read_back() {
    let actions = [add(3), remove("a b", Some("x")), remove("a", None)];
    let (mut lines, mut read) = (Lines::new(), Vec::new());
    actions.iter().for_each(|action| lines.push(action).unwrap());
    lines.push_line(b"{\"txn\":{\"appId\":\"app\",\"version\":1}}").unwrap();
    lines.each(|line| file_action_of(line).map(|action| read.extend(action))).unwrap();
    assert_eq!(read, actions);
    assert!(file_action_of(b"{\"add\":{\"path\":1}}").is_err());
}

#[test]
fn files_of_actions() {
    let mut actions = Actions::new();
    assert!(actions.is_empty() && actions.only_adds() && !actions.changes_data());
    for action in [add(1), remove("a%20b", None), remove("c", Some("v")), remove("c", Some("w"))] {
        actions.push(action).unwrap();
    }
    assert_eq!((actions.num_added(), actions.num_removed()), (1, 3));
    assert!(actions.removes("a b") && actions.removes("c") && !actions.removes("d"));
    assert!(!actions.only_adds() && actions.changes_data());
    actions.check_duplicates().unwrap();
    // Actions come with their deletion vectors, so that two deletes of rows of one file can be compared.
    let vector = |path: &str| actions.removed_file(path).unwrap().vector.map(DeletionVectorDescriptor::unique_id);
    assert_eq!((vector("a b"), vector("c")), (None, Some("uw".to_owned())));
    assert_eq!((actions.removed_file("d"), actions.added_file("c")), (None, None));
    // The same logical file again, with a vector and without.
    for again in [remove("a b", None), remove("c", Some("v"))] {
        let mut twice = actions.clone();
        twice.append(Actions::of([remove("d", None), again]).unwrap()).unwrap();
        assert_eq!(twice.files().len() > actions.files().len(), twice.check_duplicates().is_err());
    }
    actions.append(Actions::of([remove("d", None), add(2)]).unwrap()).unwrap();
    assert!(actions.removes("d") && actions.check_duplicates().is_ok());
    assert_eq!((actions.num_added(), actions.num_removed()), (2, 4));
}

proptest! {
    /// A set of strings is the oracle.
    #[test]
    fn path_sets_agree_with_sets_of_strings(first in proptest::collection::vec("([a-c]{1,2}(/[a-c])?)?", 0..40),
                                            second in proptest::collection::vec("([a-c]{1,2}(/[a-c])?)?", 0..40)) {
        let (mut set, mut texts) = (PathSet::default(), BTreeSet::new());
        for path in &first {
            prop_assert_eq!(set.insert(path), texts.insert(path.clone()));
        }
        set.extend(second.iter().map(String::as_str).collect());
        texts.extend(second.iter().cloned());
        prop_assert_eq!(set.len(), texts.len());
        prop_assert_eq!(set.is_empty(), texts.is_empty());
        prop_assert!(set == texts.iter().map(String::as_str).collect());
        for path in ["a", "b/c", "", "abc", "cab"] {
            prop_assert_eq!(set.contains(path), texts.contains(path));
        }
    }
}
