//! Chooses the files that are rewritten together.
//!
//! Compaction packs files below the target size, and files with many deleted rows, in the order in which they
//! were written, so that rows that were written together stay together. A Z-order takes all files of a partition. Clustering is
//! incremental, by delta-spark's rules: files that were clustered together are a cube, by their tags; cubes
//! that are large enough stay, and so does a cube if there are no new files.
//!
//! PROTOCOL.md: "Clustered Table".

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use deltic_protocol::action::PartitionValues;
use serde::{Deserialize, Serialize};

use super::files::Candidate;
use super::options::Limits;

/// The `clusteringProvider` of a file.
pub(super) const PROVIDER: &str = "liquid";

/// The tag with a cube's id.
pub(super) const CUBE_ID: &str = "ZCUBE_ID";

/// The tag with the columns that a cube is clustered by, a JSON array of names.
pub(super) const CUBE_COLUMNS: &str = "ZCUBE_ZORDER_BY";

/// Files of one partition that are rewritten together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Bin {
    pub(super) partition: PartitionValues,
    pub(super) files: Vec<Candidate>,
}

impl Bin {
    /// Bytes of its files.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(Candidate::bytes).fold(0, u64::saturating_add)
    }

    /// Live rows in its files, if the statistics have the row counts.
    pub(super) fn rows(&self) -> Option<u64> {
        let count =
            |file: &Candidate| file.physical_rows.map(|physical_rows| physical_rows.saturating_sub(file.deleted()));
        self.files.iter().map(count).try_fold(0_u64, |rows, more| rows.checked_add(more?))
    }

    /// Number of files that replace it, at this target size.
    pub(super) fn expected(&self, target: u64) -> u64 {
        (self.bytes() / target.max(1)).max(1)
    }
}

/// Whether compaction may rewrite a file: it is small, or too many of its rows are deleted. A file with a deletion vector
/// and no number of rows in its statistics counts as having too many.
pub(super) fn is_worth_compacting(file: &Candidate, target: u64) -> bool {
    file.bytes() < target || exceeds_max_deleted_rows_ratio(file)
}

/// Whether more than a twentieth of the rows are deleted, as by the default of delta-spark's
/// `optimize.maxDeletedRowsRatio`.
fn exceeds_max_deleted_rows_ratio(file: &Candidate) -> bool {
    file.add.deletion_vector.is_some()
        && file.physical_rows.is_none_or(|physical_rows| file.deleted().saturating_mul(20) > physical_rows)
}

/// Bins of files that compaction may rewrite.
pub(super) fn compact(files: Vec<Candidate>, target: u64) -> Vec<Bin> {
    let mut bins = all(files, target);
    bins.retain(|bin| bin.files.len() > 1 || bin.files.iter().any(exceeds_max_deleted_rows_ratio));
    bins
}

/// Bins of files that are all rewritten.
pub(super) fn all(files: Vec<Candidate>, target: u64) -> Vec<Bin> {
    let mut bins = Vec::new();
    for (partition, mut files) in by_partition(files) {
        files.sort_by(as_written);
        bins.extend(fill(files, target).map(|files| Bin { partition: partition.clone(), files }));
    }
    bins
}

/// One bin for each partition.
pub(super) fn z_order(files: Vec<Candidate>) -> Vec<Bin> {
    let bin = |(partition, mut files): (PartitionValues, Vec<Candidate>)| {
        files.sort_by(as_written);
        Bin { partition, files }
    };
    by_partition(files).into_iter().map(bin).collect()
}

/// Bins of files to be clustered by columns, which are given in the form of the tag.
pub(super) fn cluster(mut files: Vec<Candidate>, columns: &str, full: bool, limits: &Limits) -> Vec<Bin> {
    if !full {
        let mut cubes: BTreeMap<String, u64> = BTreeMap::new();
        for file in &files {
            if let Some(cube) = file.tag(CUBE_ID) {
                let bytes = cubes.entry(cube.to_owned()).or_default();
                *bytes = bytes.saturating_add(file.bytes());
            }
        }
        let is_large = |cube: &str| cubes.get(cube).is_some_and(|bytes| *bytes >= limits.min_cube_bytes);
        files.retain(|file| {
            let is_ours = file.add.clustering_provider.as_deref().is_none_or(|provider| provider == PROVIDER);
            let is_same = file.tag(CUBE_COLUMNS).is_none_or(|by| by == columns);
            is_ours && is_same && !file.tag(CUBE_ID).is_some_and(is_large)
        });
        let left: BTreeSet<Option<&str>> = files.iter().map(|file| file.tag(CUBE_ID)).collect();
        if left.len() <= 1 && !left.contains(&None) {
            return Vec::new();
        }
    }
    // Files without a cube first, then cube by cube.
    files.sort_by(|a, b| a.tag(CUBE_ID).cmp(&b.tag(CUBE_ID)).then_with(|| as_written(a, b)));
    let most = limits.max_cube_bytes.max(limits.min_cube_bytes);
    fill(files, most).map(|files| Bin { partition: PartitionValues::new(), files }).collect()
}

fn as_written(one: &Candidate, other: &Candidate) -> Ordering {
    let key = |file: &Candidate| (file.add.modification_time, file.add.base_row_id);
    key(one).cmp(&key(other)).then_with(|| one.add.path.cmp(&other.add.path))
}

fn by_partition(files: Vec<Candidate>) -> BTreeMap<PartitionValues, Vec<Candidate>> {
    let mut partitions: BTreeMap<PartitionValues, Vec<Candidate>> = BTreeMap::new();
    for file in files {
        partitions.entry(file.add.partition_values.clone()).or_default().push(file);
    }
    partitions
}

/// Divides files, in their order, into groups of at most `most` bytes; a larger file is a group of its own.
fn fill(files: Vec<Candidate>, most: u64) -> impl Iterator<Item = Vec<Candidate>> {
    let mut groups: Vec<Vec<Candidate>> = Vec::new();
    let mut bytes = 0_u64;
    for file in files {
        let more = file.bytes();
        match groups.last_mut() {
            Some(group) if bytes.saturating_add(more) <= most => group.push(file),
            Some(_) | None => {
                groups.push(vec![file]);
                bytes = 0;
            }
        }
        bytes = bytes.saturating_add(more);
    }
    groups.into_iter()
}

#[cfg(test)]
mod tests {
    use deltic_protocol::action::{Add, DeletionVectorDescriptor};

    use super::*;

    fn file(path: &str, size: i64, time: i64) -> Candidate {
        let add = Add { path: path.to_owned(), size, modification_time: time, ..Add::default() };
        Candidate { add, physical_rows: Some(100) }
    }

    fn in_cube(mut file: Candidate, cube: &str, columns: &str) -> Candidate {
        let tags = [(CUBE_ID, cube), (CUBE_COLUMNS, columns)];
        file.add.tags = Some(tags.map(|(key, value)| (key.to_owned(), Some(value.to_owned()))).into());
        file.add.clustering_provider = Some(PROVIDER.to_owned());
        file
    }

    fn paths(bins: &[Bin]) -> Vec<Vec<&str>> {
        bins.iter().map(|bin| bin.files.iter().map(|file| file.add.path.as_str()).collect()).collect()
    }

    #[test]
    fn files_are_packed_in_the_order_in_which_they_were_written() {
        let files = vec![file("d", 60, 4), file("a", 50, 1), file("c", 30, 3), file("b", 50, 2), file("e", 90, 5)];
        assert_eq!(paths(&compact(files, 100)), [vec!["a", "b"], vec!["c", "d"]]);
    }

    #[test]
    fn a_file_is_compacted_alone_if_many_of_its_rows_are_deleted() {
        let deleted = |cardinality| {
            let vector = DeletionVectorDescriptor { cardinality, ..DeletionVectorDescriptor::default() };
            let mut file = file("a", 500, 1);
            file.add.deletion_vector = Some(vector);
            file
        };
        assert!(!is_worth_compacting(&deleted(5), 100));
        assert!(is_worth_compacting(&deleted(6), 100));
        assert!(is_worth_compacting(&Candidate { physical_rows: None, ..deleted(1) }, 100));
        assert_eq!(paths(&compact(vec![deleted(6)], 100)), [vec!["a"]]);
        assert!(compact(vec![file("b", 5, 1)], 100).is_empty());
    }

    #[test]
    fn partitions_are_packed_apart() {
        let within = |path: &str, part: Option<&str>| {
            let mut file = file(path, 10, 1);
            file.add.partition_values = [("p".to_owned(), part.map(str::to_owned))].into();
            file
        };
        let files = vec![within("a", Some("1")), within("b", None), within("c", Some("1")), within("d", None)];
        assert_eq!(paths(&compact(files.clone(), 100)), [vec!["b", "d"], vec!["a", "c"]]);
        assert_eq!(paths(&z_order(files)), [vec!["b", "d"], vec!["a", "c"]]);
    }

    #[test]
    fn clustering_leaves_large_cubes_and_those_that_nothing_was_added_to() {
        let limits = Limits { min_cube_bytes: 100, max_cube_bytes: 150, ..Limits::default() };
        let clustered = |files: &[&Candidate], full| {
            let files = files.iter().map(|file| (*file).clone()).collect();
            cluster(files, "[\"a\"]", full, &limits)
        };
        let small = in_cube(file("small", 90, 1), "1", "[\"a\"]");
        let large = in_cube(file("large", 100, 1), "2", "[\"a\"]");
        let others = in_cube(file("others", 10, 1), "3", "[\"b\"]");
        let new = file("new", 10, 2);
        assert!(clustered(&[&small], false).is_empty());
        assert_eq!(paths(&clustered(&[&small], true)), [vec!["small"]]);
        assert!(clustered(&[&large, &small, &others], false).is_empty());
        let all = [&large, &small, &others, &new];
        assert_eq!(paths(&clustered(&all, false)), [vec!["new", "small"]]);
        assert_eq!(paths(&clustered(&all, true)), [vec!["new", "small"], vec!["large", "others"]]);
    }
}
