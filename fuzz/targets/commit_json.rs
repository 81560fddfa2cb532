//! The lines of a commit: `parse_commit`; the parsed actions are printed and parsed again, and must be the same.

use std::collections::BTreeMap;

use bytes::Bytes;
use deltic_protocol::action::Action;
use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{CommitActions, Wanted, parse_commit, serialize_commit};
use serde::de::IgnoredAny;

pub(crate) fn run(data: &[u8]) {
    let origin = Origin::Commit(7);
    let commit = Bytes::copy_from_slice(data);
    let read = parse_commit(&commit, origin, Wanted::All);
    // Lines of the ordinary shape are read in place; what the full parser accepts, it must find there too.
    let other = parse_commit(&spaced(data).into(), origin, Wanted::All);
    let read = match (read, other) {
        (Ok(read), Ok(other)) => {
            assert_eq!(files(&read), files(&other));
            assert_eq!(read.adds.rows().schema().fields().len(), other.adds.rows().schema().fields().len());
            assert_eq!(read.remove_rows, other.remove_rows);
            assert_eq!(rest(&read), rest(&other));
            read
        }
        // A value that nobody asked for was stepped over and is no JSON.
        (Ok(read), Err(_)) => read,
        (Err(error), Ok(_)) => panic!("only in place: {error}"),
        (Err(_), Err(_)) => return,
    };

    assert_eq!(read.adds.keys().unwrap().len(), read.adds.len());
    assert_eq!(read.removes.len(), read.remove_rows.num_rows());

    // Which actions are there does not depend on whether the files are wanted, as long as a line holds one action.
    if data.split(|byte| *byte == b'\n').all(holds_one_action) {
        let state = parse_commit(&commit, origin, Wanted::NoFiles).unwrap();
        assert!(state.adds.is_empty() && state.removes.is_empty() && state.cdc.is_empty());
        assert_eq!(rest(&state), rest(&read));
        assert_eq!(state.sidecars, read.sidecars);
        assert_eq!(state.checkpoint_metadata, read.checkpoint_metadata);
    }

    let mut actions = rest(&read);
    actions.extend(read.cdc.iter().cloned().map(Action::Cdc));
    let adds = files(&read);
    actions.extend(adds.iter().cloned());
    let printed = serialize_commit(&actions).unwrap();
    if actions.is_empty() {
        return;
    }
    let again = parse_commit(&printed.into(), origin, Wanted::All).unwrap();
    assert_eq!(rest(&again), rest(&read));
    assert_eq!(again.cdc, read.cdc);
    assert_eq!(files(&again), adds);
}

fn files(read: &CommitActions) -> Vec<Action> {
    (0..read.adds.len()).map(|row| Action::Add(read.adds.add(row).unwrap())).collect()
}

/// The same actions, none of them in the ordinary shape.
fn spaced(data: &[u8]) -> Vec<u8> {
    let space = |line: &[u8]| match line.trim_ascii_start().strip_prefix(b"{") {
        Some(rest) => [b"{ ", rest].concat(),
        None => line.to_vec(),
    };
    data.split(|byte| *byte == b'\n').map(space).collect::<Vec<_>>().join(&b'\n')
}

/// Everything but files and what only checkpoints hold.
fn rest(read: &CommitActions) -> Vec<Action> {
    let mut actions: Vec<Action> = Vec::new();
    actions.extend(read.commit_info.clone().map(Action::CommitInfo));
    actions.extend(read.protocol.clone().map(Action::Protocol));
    actions.extend(read.metadata.clone().map(Action::Metadata));
    actions.extend(read.txns.iter().cloned().map(Action::Txn));
    actions.extend(read.domains.iter().cloned().map(Action::DomainMetadata));
    actions
}

fn holds_one_action(line: &[u8]) -> bool {
    line.trim_ascii().is_empty()
        || serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(line).is_ok_and(|members| members.len() <= 1)
}
