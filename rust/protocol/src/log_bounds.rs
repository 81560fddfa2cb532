//! Bounds of data files as the log states them: partition values (exact) and statistics.
//!
//! They connect columns of `add` with the skipping algorithm. Column mapping is applied here, since the log names columns by
//! their physical names. Invariant: an unknown bound is null, never a guess.
//!
//! PROTOCOL.md: "Per-file Statistics", "Partition Value Serialization", "Column Mapping".

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int64Array, MapArray, StringArrayType, UInt32Array, new_null_array};
use arrow_schema::DataType as ArrowType;
use arrow_select::take::take;

use crate::action::batch::AddBatch;
use crate::error::{Error, Result};
use crate::predicate::Column;
use crate::prune::Bounds;
use crate::scalar::Scalar;
use crate::schema::arrow::to_arrow_type;
use crate::schema::mapping::ColumnMapping;
use crate::schema::{DataType, PrimitiveType, StructField, TableSchema};
use crate::stats::read::{JsonReader, Leaf, LeafBounds, StatsColumns, from_struct, was_float};

/// How the table names its columns, and which ones partition it.
#[derive(Debug, Clone, PartialEq)]
pub struct TableShape {
    /// Logical schema.
    pub schema: TableSchema,
    /// Logical names of the partition columns.
    pub partition_columns: Vec<String>,
    /// How the log and the files name columns.
    pub mapping: ColumnMapping,
}

impl TableShape {
    /// Whether the top-level column partitions the table.
    pub fn is_partition_column(&self, name: &str) -> bool {
        self.partition_columns.iter().any(|p| p == name)
    }

    /// The leaf of the statistics for the column at a logical path; `None` if it has no statistics.
    pub fn leaf(&self, path: &[String]) -> Result<Option<Leaf>> {
        let (mut level, mut physical) = (&*self.schema, Vec::with_capacity(path.len()));
        for (depth, name) in path.iter().enumerate() {
            let Some(field) = level.field(name) else { return Ok(None) };
            physical.push(self.mapping.physical_name(field)?.to_owned());
            match &field.data_type {
                DataType::Struct(inner) => level = inner,
                DataType::Primitive(primitive) if depth + 1 == path.len() => {
                    let (data_type, was_float) = (primitive.clone(), is_widened(field));
                    return Ok(Some(Leaf { path: physical, data_type, was_float }));
                }
                DataType::Primitive(_)
                | DataType::Array(_)
                | DataType::Map(_)
                | DataType::Variant
                | DataType::Foreign(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// All columns that can have statistics, without partition columns, by their logical paths.
    ///
    /// # Errors
    /// Those of [`ColumnMapping::physical_name`].
    pub fn leaves(&self) -> Result<Vec<(Vec<String>, Leaf)>> {
        let mut leaves = Vec::new();
        let mut fields = self.schema.fields.iter().filter(|field| !self.is_partition_column(&field.name));
        fields.try_for_each(|field| self.add_leaves(field, &[], &[], &mut leaves))?;
        Ok(leaves)
    }

    /// Adds the leaves below a field of the struct at a logical and a physical path.
    fn add_leaves(
        &self,
        field: &StructField,
        logical: &[String],
        physical: &[String],
        leaves: &mut Vec<(Vec<String>, Leaf)>,
    ) -> Result<()> {
        if !matches!(field.data_type, DataType::Struct(_) | DataType::Primitive(_)) {
            return Ok(());
        }
        let name = self.mapping.physical_name(field)?.to_owned();
        let (logical, path) = ([logical, std::slice::from_ref(&field.name)].concat(), [physical, &[name]].concat());
        match &field.data_type {
            DataType::Struct(inner) => {
                inner.fields.iter().try_for_each(|field| self.add_leaves(field, &logical, &path, leaves))?;
            }
            DataType::Primitive(primitive) => {
                leaves.push((logical, Leaf { path, data_type: primitive.clone(), was_float: is_widened(field) }));
            }
            DataType::Array(_) | DataType::Map(_) | DataType::Variant | DataType::Foreign(_) => {}
        }
        Ok(())
    }

    /// The values of a partition column, one for each file, in the column's Arrow type.
    ///
    /// # Errors
    /// `Corrupt` if a value is not of the column's type.
    pub fn partition_values(&self, adds: &AddBatch, name: &str) -> Result<ArrayRef> {
        let field = self.schema.field(name).ok_or_else(|| Error::internal(format!("`{name}` is not a column")))?;
        let primitive = field
            .data_type
            .as_primitive()
            .ok_or_else(|| Error::corrupt(format!("the partition column `{name}` has the type {}", field.data_type)))?;
        match adds.partition_values() {
            Some(map) => parse_values(map, self.mapping.partition_keys(&self.schema, field)?, name, primitive),
            None => Ok(new_null_array(&to_arrow_type(&field.data_type), adds.len())),
        }
    }

    /// The physical name and the type of a partition column.
    ///
    /// # Errors
    /// `Corrupt` if it has no type that partition values can have.
    pub fn partition_leaf(&self, name: &str) -> Result<Leaf> {
        let field = self.schema.field(name).ok_or_else(|| Error::internal(format!("`{name}` is not a column")))?;
        let primitive = field.data_type.as_primitive();
        let data_type = primitive
            .ok_or_else(|| Error::corrupt(format!("the partition column `{name}` has the type {}", field.data_type)))?
            .clone();
        Ok(Leaf { path: vec![self.mapping.physical_name(field)?.to_owned()], data_type, was_float: false })
    }
}

/// Whether a column of doubles was widened from floats.
fn is_widened(field: &StructField) -> bool {
    field.data_type == DataType::DOUBLE && was_float(field)
}

/// The values of the first of two keys that a row has. Each distinct string is parsed once. Keys and values are strings of any
/// Arrow layout. `logical`: the column's name, for errors.
pub fn parse_values(map: &MapArray, wanted: [&str; 2], logical: &str, data_type: &PrimitiveType) -> Result<ArrayRef> {
    match (map.keys().data_type(), map.values().data_type()) {
        (ArrowType::Utf8, ArrowType::Utf8) => {
            let (keys, values) = (map.keys().as_string::<i32>(), map.values().as_string::<i32>());
            distinct_values(map, keys, values, wanted, logical, data_type)
        }
        (ArrowType::Utf8View, ArrowType::Utf8View) => {
            let (keys, values) = (map.keys().as_string_view(), map.values().as_string_view());
            distinct_values(map, keys, values, wanted, logical, data_type)
        }
        _ => Err(Error::corrupt("partition values are not strings")),
    }
}

fn distinct_values<'a, T: StringArrayType<'a>>(
    map: &MapArray,
    keys: T,
    values: T,
    [first, second]: [&str; 2],
    logical: &str,
    data_type: &PrimitiveType,
) -> Result<ArrayRef> {
    let offsets = map.value_offsets();
    let position = |entry: &i32| usize::try_from(*entry).unwrap_or_default();
    // With random state: the strings are untrusted.
    let mut distinct: HashMap<&str, u32, ahash::RandomState> = HashMap::default();
    let mut parsed = Vec::new();
    let mut indices = Vec::with_capacity(map.len());
    let mut before = ("", None);
    for (row, bounds) in offsets.windows(2).enumerate() {
        let [start, end] = bounds else { continue };
        let entries = if map.is_null(row) { 0..0 } else { position(start)..position(end) };
        // If a key is there twice, the last entry counts, as in the struct that a reader gets.
        let last = |name: &str| entries.clone().rfind(|i| keys.value(*i) == name);
        let entry = last(first).or_else(|| last(second));
        let text = entry.filter(|i| values.is_valid(*i)).map(|i| values.value(i)).unwrap_or_default();
        let known = if before.0 == text { before.1 } else { distinct.get(text).copied() };
        let index = match known {
            Some(index) => index,
            None => {
                let value = parse_value(text, logical, data_type)?;
                let index = u32::try_from(parsed.len()).unwrap_or(u32::MAX);
                parsed.push(value);
                distinct.insert(text, index);
                index
            }
        };
        before = (text, Some(index));
        indices.push(index);
    }
    Ok(take(&Scalar::to_column(&parsed, data_type)?, &UInt32Array::from(indices), None)?)
}

/// A partition column's values from their strings; the empty string is null.
pub fn parse_strings<'a>(
    texts: impl IntoIterator<Item = &'a str>,
    logical: &str,
    data_type: &PrimitiveType,
) -> Result<ArrayRef> {
    let values = texts.into_iter().map(|text| parse_value(text, logical, data_type));
    Scalar::to_column(&values.collect::<Result<Vec<_>>>()?, data_type)
}

fn parse_value(text: &str, logical: &str, data_type: &PrimitiveType) -> Result<Scalar> {
    let value = Scalar::parse_partition(Some(text), data_type);
    value.map_err(|e| Error::corrupt(format!("partition column `{logical}`: {}", e.message())))
}

/// The statistics of `leaves`: from typed columns if the batch has them, or else from JSON, or else unknown.
pub fn statistics(adds: &AddBatch, leaves: &[Leaf]) -> Result<StatsColumns> {
    read_statistics(adds, leaves, true)
}

fn read_statistics(adds: &AddBatch, leaves: &[Leaf], counted: bool) -> Result<StatsColumns> {
    if let Some(stats) = adds.structure("stats_parsed") {
        return from_struct(stats, leaves);
    }
    let mut reader = JsonReader::for_skipping(leaves, counted, adds.len());
    let texts = adds.rows().column_by_name("stats");
    match texts.map(|texts| (texts.data_type(), texts)) {
        // Statistics of a commit are read from the commit's text.
        Some((ArrowType::BinaryView, texts)) => {
            let broken = || Error::internal("kept statistics are not a JSON string");
            texts.as_binary_view().iter().try_for_each(|quoted| reader.read_quoted(quoted).ok_or_else(broken))?;
        }
        Some((ArrowType::Utf8View, texts)) => texts.as_string_view().iter().for_each(|text| reader.read(text)),
        Some((ArrowType::Utf8, texts)) => texts.as_string::<i32>().iter().for_each(|text| reader.read(text)),
        Some(_) | None => (0..adds.len()).for_each(|_| reader.read(None)),
    }
    reader.finish(leaves)
}

/// Bounds of the files of one batch, for the columns of one predicate.
#[derive(Debug)]
pub struct LogBounds {
    files: usize,
    row_count: Int64Array,
    columns: HashMap<Vec<String>, LeafBounds>,
    partition_columns: Vec<String>,
}

impl LogBounds {
    /// For a predicate over partition columns alone: needs no statistics.
    pub fn of_partitions(adds: &AddBatch, shape: &TableShape, columns: &[&Column]) -> Result<Self> {
        // Every row of a file has the same value, so one row stands for all.
        let row_count = Int64Array::from_value(1, adds.len());
        let partition_columns = shape.partition_columns.clone();
        let mut bounds = Self { files: adds.len(), row_count, columns: HashMap::new(), partition_columns };
        columns.iter().try_for_each(|column| bounds.insert_partition(adds, shape, column))?;
        Ok(bounds)
    }

    /// For any predicate. Counts of nulls and rows may be left unknown where both bounds are known, unless `counted`.
    pub fn of_statistics(adds: &AddBatch, shape: &TableShape, columns: &[&Column], counted: bool) -> Result<Self> {
        let (partition, data): (Vec<&Column>, Vec<&Column>) =
            columns.iter().partition(|c| c.path.first().is_some_and(|name| shape.is_partition_column(name)));
        let mut known = Vec::new();
        for column in data {
            if let Some(leaf) = shape.leaf(&column.path)? {
                known.push((column.path.clone(), leaf));
            }
        }
        let (paths, leaves): (Vec<_>, Vec<_>) = known.into_iter().unzip();
        let stats = read_statistics(adds, &leaves, counted)?;
        let columns = paths.into_iter().zip(stats.leaves).collect();
        let partition_columns = shape.partition_columns.clone();
        let mut bounds = Self { files: adds.len(), row_count: stats.num_records, columns, partition_columns };
        partition.iter().try_for_each(|column| bounds.insert_partition(adds, shape, column))?;
        Ok(bounds)
    }

    fn insert_partition(&mut self, adds: &AddBatch, shape: &TableShape, column: &Column) -> Result<()> {
        let Some(name) = column.path.first() else { return Ok(()) };
        let values = shape.partition_values(adds, name)?;
        self.columns.insert(column.path.clone(), LeafBounds::of_values(values, &self.row_count));
        Ok(())
    }
}

impl Bounds for LogBounds {
    fn containers(&self) -> usize {
        self.files
    }

    fn min(&self, column: &Column) -> Result<Option<ArrayRef>> {
        Ok(self.columns.get(&column.path).map(|c| c.min.clone()))
    }

    fn max(&self, column: &Column) -> Result<Option<ArrayRef>> {
        Ok(self.columns.get(&column.path).map(|c| c.max.clone()))
    }

    fn null_count(&self, column: &Column) -> Result<Option<Int64Array>> {
        Ok(self.columns.get(&column.path).map(|c| c.null_count.clone()))
    }

    fn row_count(&self) -> Result<Option<Int64Array>> {
        Ok(Some(self.row_count.clone()))
    }

    /// A partition value is the value itself, neither shortened nor blind to NaN.
    fn is_exact(&self, column: &Column) -> bool {
        column.path.first().is_some_and(|name| self.partition_columns.contains(name))
    }
}
