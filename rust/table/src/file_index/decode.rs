//! Decodes columns of files from one row group of a checkpoint.
//!
//! Typed partition values and statistics are used where they are complete; otherwise the map of strings, and the JSON, of which
//! some rows are decoded at a time and only the bounds are kept.
//!
//! Invariant: a typed partition value is used only if it cannot differ from its string, which is what readers get:
//! not for types whose string other readers may understand differently (zones, floats), and never if some may be missing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int64Array, Scalar, StringArray, StructArray, new_null_array};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, NullBuffer};
use arrow_ord::cmp::eq;
use arrow_schema::DataType as ArrowType;
use arrow_select::concat::concat;
use arrow_select::nullif::nullif;
use deltic_pages::decode::FrontCoder;
use deltic_protocol::log_bounds::parse_values;
use deltic_protocol::stats::read::{Leaf, LeafBounds, StatsColumns, bounds_from_json, from_json, from_struct};

use super::column::{IndexColumn, PartitionColumn};
use super::direct::{Direct, Failed};
use super::part_columns::{PATH, has_typed_partition, is_complete, stats_path, typed_partition_path};
use super::values::{Counts, Values};
use crate::checkpoint::action_file::{ActionFile, DecodeOptions, FetchedChunks};
use crate::checkpoint::actions::conform;
use crate::checkpoint::read::can_use_typed_stats;
use crate::error::{Error, Result, corrupt_parquet};

/// How many rows of JSON are decoded at once.
const JSON_BATCH_ROWS: usize = 8 * 1024;

/// The leaf of the statistics as JSON.
pub(super) const STATS: [&str; 2] = ["add", "stats"];

/// Columns that were read in chunks.
#[derive(Default)]
pub(super) struct ChunkedColumns {
    /// Bounds of columns from the JSON statistics.
    pub(super) bounds: Option<Vec<Values>>,
    /// All paths, kept encoded because a query needs few of them.
    pub(super) paths: Option<FrontCoder>,
}

impl ChunkedColumns {
    /// Whether a leaf was read.
    pub(super) fn has(&self, leaf: &[String]) -> bool {
        (self.bounds.is_some() && leaf == STATS) || (self.paths.is_some() && leaf == PATH)
    }
}

/// Columns to decode together, and the leaves that each is decoded from.
pub(super) struct ColumnPlan {
    columns: Vec<IndexColumn>,
    sources: Vec<Source>,
    rows: usize,
    /// A leaf that is decoded if a member is not in the file: it shows which rows have an `add`.
    anchor: Option<Vec<String>>,
    /// Members of `add` in the file.
    members: HashSet<String>,
    /// Typed statistics to read, by column, and whether counts are among them.
    typed: HashMap<Vec<String>, bool>,
    /// Whether path, size and modification time of all files are kept encoded, because a query needs those of few files.
    keeps_encoded: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Source {
    Presence,
    Member(&'static str),
    TypedPartition,
    PartitionStrings,
    TypedStats { with_counts: bool },
    StatsJson,
}

impl ColumnPlan {
    pub(super) fn of(part: &ActionFile, group: usize, columns: Vec<IndexColumn>) -> Self {
        let stats = columns.iter().filter_map(|c| match c {
            IndexColumn::Bounds { leaf, .. } => Some(leaf.path.clone()),
            _ => None,
        });
        let is_typed = can_use_typed_stats(part, &stats.collect::<Vec<_>>());
        let source = |column: &IndexColumn| match column {
            IndexColumn::Presence => Source::Presence,
            IndexColumn::Path => Source::Member("path"),
            IndexColumn::Size => Source::Member("size"),
            IndexColumn::ModificationTime => Source::Member("modificationTime"),
            IndexColumn::DeletionVector => Source::Member("deletionVector"),
            IndexColumn::Partition(column) if has_typed_partition(part, group, &column.leaf) => Source::TypedPartition,
            IndexColumn::Partition(_) => Source::PartitionStrings,
            IndexColumn::Bounds { leaf, with_counts } if is_typed => {
                let complete = |bound| is_complete(part, group, &stats_path(bound, leaf));
                Source::TypedStats { with_counts: *with_counts || !complete("minValues") || !complete("maxValues") }
            }
            IndexColumn::Bounds { .. } => Source::StatsJson,
        };
        let sources: Vec<Source> = columns.iter().map(source).collect();
        let mut typed = HashMap::new();
        for of in sources.iter().zip(&columns) {
            if let (Source::TypedStats { with_counts }, IndexColumn::Bounds { leaf, .. }) = of {
                *typed.entry(leaf.path.clone()).or_default() |= *with_counts;
            }
        }
        let members = part.leaves().filter(|leaf| leaf.first().is_some_and(|root| root == "add"));
        let members = members.filter_map(|leaf| leaf.get(1).cloned()).collect();
        let anchor = part.smallest_leaf(group, "add").and_then(|leaf| part.leaves().nth(leaf)).map(<[String]>::to_vec);
        Self { columns, sources, rows: part.rows(group), anchor, members, typed, keeps_encoded: false }
    }

    pub(super) fn columns(&self) -> &[IndexColumn] {
        &self.columns
    }

    /// Keeps path, size and modification time of all files encoded.
    pub(super) fn keep_encoded(&mut self) {
        self.keeps_encoded = true;
    }

    /// Whether a leaf is needed.
    pub(super) fn wants(&self, leaf: &[String]) -> bool {
        let Some((root, [member, rest @ ..])) = leaf.split_first() else { return false };
        let member = member.as_str();
        let is_anchor = self.anchor.as_deref() == Some(leaf);
        let or_anchor = |wanted: &str| match self.members.contains(wanted) {
            true => member == wanted,
            false => is_anchor,
        };
        let needs = |(source, column): (&Source, &IndexColumn)| match (source, column) {
            (Source::Presence, _) => is_anchor,
            (Source::Member(name), _) => or_anchor(name),
            (Source::TypedPartition, IndexColumn::Partition(PartitionColumn { leaf, .. })) => {
                member == "partitionValues_parsed" && rest == leaf.path
            }
            (Source::PartitionStrings, _) => member == "partitionValues",
            (Source::StatsJson, _) => or_anchor("stats"),
            _ => false,
        };
        let of_stats = || match rest.split_first() {
            Some((bound, [])) => bound == "numRecords" && self.typed.values().any(|with_counts| *with_counts),
            Some((bound, column)) => self.typed.get(column).is_some_and(|with_counts| {
                matches!(bound.as_str(), "minValues" | "maxValues") || (*with_counts && bound == "nullCount")
            }),
            None => false,
        };
        match (root.as_str(), member) {
            ("add", "stats_parsed") => is_anchor && self.sources.iter().zip(&self.columns).any(needs) || of_stats(),
            ("add", _) => self.sources.iter().zip(&self.columns).any(needs),
            _ => false,
        }
    }

    /// Decodes all columns except those read `before`. With `rows`, the values of other rows may be missing. Also returns
    /// whether the pages were decoded directly.
    pub(super) fn decode(
        &self,
        part: &ActionFile,
        fetched: FetchedChunks,
        rows: Option<&BooleanBuffer>,
        before: ChunkedColumns,
    ) -> Result<(Vec<Values>, bool)> {
        let direct = Direct { part, fetched: &fetched, rows };
        let mut read_before = vec![None; self.columns.len()];
        let json_columns =
            read_before.iter_mut().zip(&self.sources).filter(|(_, source)| **source == Source::StatsJson);
        json_columns
            .zip(before.bounds.into_iter().flatten())
            .for_each(|((read_before, _), read)| *read_before = Some(read));
        let encoded = self.read_encoded(direct, before.paths, &mut read_before);
        match encoded.and_then(|()| self.direct(direct, &read_before)) {
            Ok(values) => Ok((values, true)),
            Err(Failed::Error(error)) => Err(error),
            Err(Failed::Unsupported) => Ok((self.general(part, fetched, read_before)?, false)),
        }
    }

    /// Reads path, size and modification time encoded, if they are kept so; the paths may have been read already.
    fn read_encoded(
        &self,
        direct: Direct<'_>,
        read: Option<FrontCoder>,
        read_before: &mut [Option<Values>],
    ) -> Result<(), Failed> {
        if !self.keeps_paths_encoded(direct.part) {
            return Ok(());
        }
        let [size, time] = ["size", "modificationTime"].map(|name| self.position_of(name));
        let encoded = direct.encoded(read, size.is_some() && time.is_some())?;
        for (position, values) in [self.position_of("path"), size, time].into_iter().zip(encoded) {
            if let Some(read_before) = position.and_then(|position| read_before.get_mut(position)) {
                *read_before = values;
            }
        }
        Ok(())
    }

    /// The index of the column of a member of `add`.
    fn position_of(&self, member: &'static str) -> Option<usize> {
        self.sources.iter().position(|source| *source == Source::Member(member))
    }

    /// Whether all paths are read and kept encoded.
    pub(super) fn keeps_paths_encoded(&self, part: &ActionFile) -> bool {
        self.keeps_encoded && self.position_of("path").is_some() && part.arrow_type(&PATH) == Some(&ArrowType::Utf8)
    }

    /// All columns; those that were not read before are decoded directly from their pages.
    fn direct<'s>(&'s self, direct: Direct<'_>, read_before: &[Option<Values>]) -> Result<Vec<Values>, Failed> {
        let from_json_stats =
            if self.needs_json_stats(read_before) { self.direct_json_stats(direct)? } else { Vec::new() };
        let mut from_json_stats = from_json_stats.into_iter();
        let of_partition = |(source, column): (&Source, &'s IndexColumn)| match (source, column) {
            (Source::PartitionStrings, IndexColumn::Partition(column)) => Some(column),
            _ => None,
        };
        let partitions: Vec<_> = self.sources.iter().zip(&self.columns).filter_map(of_partition).collect();
        let mut partitions = direct.partitions(&partitions)?.into_iter();
        let mut column = |(source, column): (&Source, &IndexColumn)| match (source, column) {
            (Source::Member("deletionVector"), _) => match direct.vectors()? {
                Some(vectors) => Ok(Values::Array(conformed("deletionVector", &vectors)?)),
                None => Err(Failed::Unsupported),
            },
            (Source::Member(name), _) => match direct.leaf(&["add", name])? {
                Some(values) => Ok(Values::Array(conformed(name, &values)?)),
                None if *name == "path" => Err(Failed::Unsupported),
                None => Ok(Values::Array(direct.nothing(&ArrowType::Int64))),
            },
            (Source::TypedPartition, IndexColumn::Partition(PartitionColumn { leaf, .. })) => {
                let values = direct.leaf(&typed_partition_path(leaf))?;
                Ok(Values::Array(without_empty(values.ok_or(Failed::Unsupported)?)?))
            }
            (Source::PartitionStrings, _) => partitions.next().map(Values::Array).ok_or(Failed::Unsupported),
            (Source::TypedStats { with_counts }, IndexColumn::Bounds { leaf, .. }) => {
                let (bounds, records) = direct.typed(leaf, *with_counts)?;
                let counts = with_counts.then_some(Counts { nulls: bounds.null_count, records });
                Ok(Values::Bounds { min: bounds.min, max: bounds.max, counts })
            }
            (Source::StatsJson, _) => from_json_stats.next().ok_or(Failed::Unsupported),
            _ => Ok(Values::Rows(direct.presence()?)),
        };
        let all = self.sources.iter().zip(&self.columns).zip(read_before);
        all.map(|(of, read_before)| read_before.clone().map_or_else(|| column(of), Ok)).collect()
    }

    /// Whether JSON statistics have to be read.
    fn needs_json_stats(&self, read_before: &[Option<Values>]) -> bool {
        self.sources
            .iter()
            .zip(read_before)
            .any(|(source, read_before)| *source == Source::StatsJson && read_before.is_none())
    }

    /// All columns whose bounds come from JSON, read in one pass.
    fn direct_json_stats(&self, direct: Direct<'_>) -> Result<Vec<Values>, Failed> {
        Ok(self.join_json_stats(
            direct.json_stats(|stats| self.read_json_stats(stats))?.into_iter().collect::<Result<_>>()?,
        )?)
    }

    /// Whether some bounds come from JSON.
    pub(super) fn reads_json_stats(&self) -> bool {
        self.sources.contains(&Source::StatsJson)
    }

    /// The bounds that come from JSON, of the files that have these statistics.
    pub(super) fn read_json_stats(&self, stats: &[Option<&str>]) -> Result<Vec<Values>> {
        let (leaves, needs_counts) = self.json_leaves();
        read_json_bounds(stats.iter().copied(), &leaves, needs_counts)
    }

    /// Joins the columns that were read from pieces of the JSON statistics.
    pub(super) fn join_json_stats(&self, pieces: Vec<Vec<Values>>) -> Result<Vec<Values>> {
        let columns = self.sources.iter().filter(|source| **source == Source::StatsJson).count();
        let column = |at: usize| pieces.iter().filter_map(|piece| piece.get(at).cloned()).collect();
        (0..columns).map(|at| joined(column(at), self.rows)).collect()
    }

    /// All columns; those that were not read before are decoded by the parquet crate, which reads any file.
    fn general(
        &self,
        part: &ActionFile,
        fetched: FetchedChunks,
        read_before: Vec<Option<Values>>,
    ) -> Result<Vec<Values>> {
        let needs_json_stats = self.needs_json_stats(&read_before);
        let how = DecodeOptions {
            views: true,
            batch_rows: needs_json_stats.then_some(JSON_BATCH_ROWS),
            ..DecodeOptions::default()
        };
        let all = self.sources.iter().zip(&self.columns).zip(&read_before);
        let unknown: Vec<_> = all.filter(|(_, read_before)| read_before.is_none()).map(|(of, _)| of).collect();
        let mut pieces: Vec<Vec<Values>> = vec![Vec::new(); unknown.len()];
        for batch in part.decode(fetched, how)? {
            let batch = batch.map_err(|e| corrupt_parquet(part.path(), e.into()))?;
            let add = batch.column_by_name("add").and_then(|c| c.as_struct_opt());
            let add = add.ok_or_else(|| Error::corrupt("`add` is not a struct"))?;
            for (values, pieces) in self.batch(add, &unknown, needs_json_stats)?.into_iter().zip(&mut pieces) {
                pieces.push(values);
            }
        }
        let mut decoded = pieces.into_iter().map(|pieces| joined(pieces, self.rows));
        let missing = || Error::internal("a column was not decoded");
        read_before
            .into_iter()
            .map(|read_before| read_before.map_or_else(|| decoded.next().ok_or_else(missing)?, Ok))
            .collect()
    }

    /// Some columns of a batch of files.
    fn batch(
        &self,
        add: &StructArray,
        columns: &[(&Source, &IndexColumn)],
        needs_json_stats: bool,
    ) -> Result<Vec<Values>> {
        let from_json_stats = if needs_json_stats { self.json_bounds(add)? } else { Vec::new() };
        let mut from_json_stats = from_json_stats.into_iter();
        let column = |(source, column): (&Source, &IndexColumn)| match (source, column) {
            (Source::Member(name @ ("size" | "modificationTime")), _) if add.column_by_name(name).is_none() => {
                Ok(Values::Array(new_null_array(&ArrowType::Int64, add.len())))
            }
            (Source::Member(name), _) => Ok(Values::Array(conformed(name, &member(add, name)?)?)),
            (Source::TypedPartition, IndexColumn::Partition(PartitionColumn { leaf, .. })) => {
                let typed = member(add, "partitionValues_parsed")?;
                let name = leaf.path.first().map(String::as_str).unwrap_or_default();
                let values = typed.as_struct_opt().map(|typed| member(typed, name)).transpose()?;
                let values = values.ok_or_else(|| Error::corrupt("`add.partitionValues_parsed` is not a struct"))?;
                Ok(Values::Array(without_empty(values)?))
            }
            (Source::PartitionStrings, IndexColumn::Partition(column)) => {
                let values = member(add, "partitionValues")?;
                let map = values.as_map_opt().ok_or_else(|| Error::corrupt("`add.partitionValues` is not a map"))?;
                Ok(Values::Array(parse_values(map, column.keys(), &column.name, &column.leaf.data_type)?))
            }
            (Source::TypedStats { with_counts }, IndexColumn::Bounds { leaf, .. }) => {
                let stats = member(add, "stats_parsed")?;
                let stats =
                    stats.as_struct_opt().ok_or_else(|| Error::corrupt("`add.stats_parsed` is not a struct"))?;
                let read = from_struct(stats, std::slice::from_ref(leaf))?;
                let records = read.num_records;
                let bounds = read.leaves.into_iter().next().ok_or_else(|| Error::internal("a leaf was not read"))?;
                let counts = with_counts.then_some(Counts { nulls: bounds.null_count, records });
                Ok(Values::Bounds { min: bounds.min, max: bounds.max, counts })
            }
            (Source::StatsJson, _) => from_json_stats.next().ok_or_else(|| Error::internal("a leaf was not read")),
            _ => Ok(Values::Rows(match add.nulls() {
                Some(nulls) => nulls.inner().clone(),
                None => BooleanBuffer::new_set(add.len()),
            })),
        };
        columns.iter().copied().map(column).collect()
    }

    /// All columns whose bounds come from JSON, read in one pass.
    fn json_bounds(&self, add: &StructArray) -> Result<Vec<Values>> {
        let (leaves, needs_counts) = self.json_leaves();
        match add.column_by_name("stats").filter(|_| !leaves.is_empty()) {
            Some(stats) => {
                let stats = stats.as_string_view_opt().ok_or_else(|| Error::corrupt("`add.stats` is not a string"))?;
                read_json_bounds(stats, &leaves, needs_counts)
            }
            None => read_json_bounds((0..add.len()).map(|_| None), &leaves, needs_counts),
        }
    }

    /// The leaves to read from the JSON, and whether counts are needed too, which come after the bounds in it.
    fn json_leaves(&self) -> (Vec<Leaf>, bool) {
        let mut needs_counts = false;
        let leaf = |(source, column): (&Source, &IndexColumn)| match (source, column) {
            (Source::StatsJson, IndexColumn::Bounds { leaf, with_counts }) => {
                needs_counts |= *with_counts;
                Some(leaf.clone())
            }
            _ => None,
        };
        let leaves = self.sources.iter().zip(&self.columns).filter_map(leaf).collect();
        (leaves, needs_counts)
    }
}

/// Reads the bounds of `leaves` from JSON statistics.
fn read_json_bounds<'t>(
    stats: impl IntoIterator<Item = Option<&'t str>>,
    leaves: &[Leaf],
    needs_counts: bool,
) -> Result<Vec<Values>> {
    let StatsColumns { num_records, leaves, .. } =
        if needs_counts { from_json(stats, leaves)? } else { bounds_from_json(stats, leaves)? };
    let bounds = |bounds: LeafBounds| {
        // Counts are of use where a file has no bounds but a count; files without statistics have neither.
        let has_bound = NullBuffer::union(bounds.min.nulls(), bounds.max.nulls());
        let counted = bounds.null_count.nulls();
        let counts_help = has_bound.is_some_and(|has_bound| match counted {
            Some(counted) => (&!has_bound.inner() & counted.inner()).count_set_bits() > 0,
            None => has_bound.null_count() > 0,
        });
        let counts = Counts { nulls: bounds.null_count, records: num_records.clone() };
        Values::Bounds { min: bounds.min, max: bounds.max, counts: (needs_counts || counts_help).then_some(counts) }
    };
    Ok(leaves.into_iter().map(bounds).collect())
}

/// A member in the type that it has in actions read from JSON.
fn conformed(name: &str, column: &ArrayRef) -> Result<ArrayRef> {
    let unreadable = |e| Error::corrupt(format!("`add.{name}` in the checkpoint cannot be read")).caused_by(e);
    conform(name, column).map_err(unreadable)
}

/// A member of a struct.
fn member(parent: &StructArray, name: &str) -> Result<ArrayRef> {
    let found = parent.column_by_name(name);
    found.cloned().ok_or_else(|| Error::corrupt(format!("the column `{name}` is missing in the checkpoint")))
}

/// Replaces empty strings by null: the empty string is not a partition value.
fn without_empty(values: ArrayRef) -> Result<ArrayRef> {
    if values.data_type() != &ArrowType::Utf8 {
        return Ok(values);
    }
    let empty = eq(&values, &Scalar::new(StringArray::from(vec![""])))?;
    if empty.true_count() == 0 { Ok(values) } else { Ok(nullif(&values, &empty)?) }
}

/// Joins the pieces of a column.
fn joined(pieces: Vec<Values>, rows: usize) -> Result<Values> {
    let found: usize = pieces.iter().map(Values::rows).sum();
    if found != rows {
        return Err(Error::corrupt(format!("the row group has {found} rows and the footer says {rows}")));
    }
    let arrays = |pick: &dyn Fn(&Values) -> Option<ArrayRef>| -> Result<ArrayRef> {
        let arrays: Vec<ArrayRef> = pieces.iter().filter_map(pick).collect();
        Ok(concat(&arrays.iter().map(AsRef::as_ref).collect::<Vec<_>>())?)
    };
    match pieces.as_slice() {
        [] => Err(Error::corrupt("the row group has no rows")),
        [one] => Ok(one.clone()),
        [Values::Rows(_), ..] => {
            let mut all = BooleanBufferBuilder::new(rows);
            pieces.iter().for_each(|piece| {
                if let Values::Rows(rows) = piece {
                    all.append_buffer(rows);
                }
            });
            Ok(Values::Rows(all.finish()))
        }
        [Values::Array(_), ..] => Ok(Values::Array(arrays(&|v| match v {
            Values::Array(array) => Some(array.clone()),
            _ => None,
        })?)),
        [Values::Encoded(_), ..] => Err(Error::internal("encoded columns are read in one piece")),
        [Values::Bounds { .. }, ..] => {
            let counted = pieces.iter().any(|p| matches!(p, Values::Bounds { counts: Some(_), .. }));
            let count = |of: &dyn Fn(&Counts) -> &Int64Array| -> Result<Int64Array> {
                let unknown = |v: &Values| Int64Array::new_null(v.rows());
                let array = arrays(&|v| match v {
                    Values::Bounds { counts: Some(counts), .. } => Some(Arc::new(of(counts).clone()) as _),
                    _ => Some(Arc::new(unknown(v)) as _),
                })?;
                Ok(array.as_primitive().clone())
            };
            let counts = match counted {
                true => Some(Counts { nulls: count(&|c| &c.nulls)?, records: count(&|c| &c.records)? }),
                false => None,
            };
            let bound = |upper: bool| {
                arrays(&|v| match v {
                    Values::Bounds { min, max, .. } => Some(if upper { max.clone() } else { min.clone() }),
                    _ => None,
                })
            };
            Ok(Values::Bounds { min: bound(false)?, max: bound(true)?, counts })
        }
    }
}
