//! The leaves of a checkpoint's file: their names, found by hash, and which row groups may have values in them.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use arrow_schema::{DataType, Fields};
use hashbrown::HashTable;
use parquet::file::metadata::{FileMetaData, RowGroupMetaData};
use parquet::schema::types::ColumnDescPtr;

use crate::footer::calendar::Calendars;

/// The leaves of a file, in its order. A table with thousands of columns has as many statistics of each kind.
#[derive(Debug)]
pub(super) struct Leaves {
    /// The path of each leaf; empty if the leaf is hidden.
    names: Vec<Vec<String>>,
    /// If several leaves have the same path, the first.
    by_path: HashTable<usize>,
    hasher: RandomState,
    /// Their types; empty if the schema does not have all of them.
    types: Vec<DataType>,
}

impl Leaves {
    /// The leaves of a file with this Arrow schema.
    pub(super) fn of(file: &FileMetaData, schema: &Fields) -> Self {
        let mut leaves = Self::named(leaf_names(file));
        schema.iter().for_each(|field| add_types(field.data_type(), &mut leaves.types));
        if leaves.types.len() != leaves.names.len() {
            leaves.types.clear();
        }
        leaves
    }

    fn named(names: Vec<Vec<String>>) -> Self {
        let mut leaves = Self {
            by_path: HashTable::with_capacity(names.len()),
            names,
            hasher: RandomState::new(),
            types: Vec::new(),
        };
        for (leaf, name) in leaves.names.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let hash = hash_of(&leaves.hasher, name);
            if leaves.by_path.find(hash, |other| leaves.names.get(*other) == Some(name)).is_none() {
                let hash_of = |leaf: &usize| leaves.names.get(*leaf).map_or(0, |name| hash_of(&leaves.hasher, name));
                leaves.by_path.insert_unique(hash, leaf, hash_of);
            }
        }
        leaves
    }

    /// The paths of all leaves; that of a hidden leaf is empty.
    pub(super) fn names(&self) -> &[Vec<String>] {
        &self.names
    }

    /// The Arrow type of a leaf.
    pub(super) fn arrow_type(&self, leaf: usize) -> Option<&DataType> {
        self.types.get(leaf)
    }

    /// The position of a leaf.
    pub(super) fn position<S: AsRef<str>>(&self, path: &[S]) -> Option<usize> {
        let is_it = |leaf: &usize| {
            #[cfg(test)]
            tests::COMPARED.set(tests::COMPARED.get() + 1);
            let names = self.names.get(*leaf).into_iter().flatten();
            names.map(String::as_str).eq(path.iter().map(AsRef::as_ref))
        };
        self.by_path.find(hash_of(&self.hasher, path), is_it).copied()
    }
}

/// Adds the types of the leaves of a type, in the order of the file.
fn add_types(data_type: &DataType, types: &mut Vec<DataType>) {
    match data_type {
        DataType::Struct(members) => members.iter().for_each(|member| add_types(member.data_type(), types)),
        DataType::List(inner) | DataType::LargeList(inner) | DataType::Map(inner, _) => {
            add_types(inner.data_type(), types);
        }
        leaf => types.push(leaf.clone()),
    }
}

fn hash_of<S: AsRef<str>>(hasher: &RandomState, path: &[S]) -> u64 {
    hasher.hash_one(path.iter().map(AsRef::as_ref).collect::<Vec<&str>>())
}

/// The paths of a file's leaves. A hidden leaf has an empty path: typed values of `add` that a writer stored in another
/// calendar, and other statistics of their columns. The strings beside them have the same values in the table's calendar.
fn leaf_names(file: &FileMetaData) -> Vec<Vec<String>> {
    let (calendars, leaves) = (Calendars::of(file), file.schema_descr().columns());
    let bounded = |leaf: &ColumnDescPtr| match leaf.path().parts() {
        [_, member, _, column @ ..] if member == "stats_parsed" && calendars.may_differ(leaf) => Some(column.to_vec()),
        _ => None,
    };
    let differing: HashSet<Vec<String>> = leaves.iter().filter_map(bounded).collect();
    let name = |leaf: &ColumnDescPtr| match leaf.path().parts() {
        [_, member, rest @ ..]
            if (member == "partitionValues_parsed" && calendars.may_differ(leaf))
                || (member == "stats_parsed" && rest.get(1..).is_some_and(|column| differing.contains(column))) =>
        {
            Vec::new()
        }
        path => path.to_vec(),
    };
    leaves.iter().map(name).collect()
}

/// Whether a row group may hold a non-null value in a leaf, by its statistics.
pub(super) fn may_hold(group: &RowGroupMetaData, leaf: usize) -> bool {
    let nulls = group.columns().get(leaf).and_then(|c| c.statistics()).and_then(|s| s.null_count_opt());
    nulls.is_none_or(|nulls| u64::try_from(group.num_rows()).is_ok_and(|rows| nulls < rows))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        pub(super) static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn a_leaf_is_found_without_a_look_at_the_others() {
        let name = |column: usize| vec!["add".to_owned(), "stats_parsed".to_owned(), format!("c{column}")];
        let names: Vec<Vec<String>> = (0..4_000).map(name).chain([name(7)]).collect();
        let leaves = Leaves::named(names.clone());
        let before = COMPARED.get();
        for (place, name) in names.iter().enumerate() {
            assert_eq!(leaves.position(name), Some(if place == 4_000 { 7 } else { place }));
        }
        assert_eq!(leaves.position(&["add", "stats_parsed"]), None);
        assert_eq!(leaves.position(&["add", "stats_parsed", "c7", "x"]), None);
        // Few hashes are alike in the bits that are looked at first.
        assert!(COMPARED.get() - before < 2 * names.len());
    }
}
