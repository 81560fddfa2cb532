//! Statistics in columns, for the columns that a query asks about and no others.
//!
//! Whatever is missing, malformed or of another type is null, which means unknown: such a file is kept. The bounds
//! handed out are wide enough for every known imprecision of writers: timestamps cut to milliseconds, zone offsets cut
//! to minutes, decimals that went through a double, floats that were widened to doubles. String bounds are as stored;
//! skipping treats them as prefixes.
//!
//! PROTOCOL.md: "Per-file Statistics".

use std::fmt;
use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder, Int64Builder, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, StringArray, StructArray, new_null_array};
use arrow_cast::cast;
use arrow_schema::{DataType as ArrowType, TimeUnit};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::Result;
use crate::scalar::{Scalar, parse_decimal, parse_timestamp, parse_timestamp_ntz};
use crate::schema::arrow::to_arrow_type;
use crate::schema::{DataType, PrimitiveType, StructField};

/// A column whose statistics are wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct Leaf {
    /// Physical names from the top level down.
    pub path: Vec<String>,
    /// Its type in the table now.
    pub data_type: PrimitiveType,
    /// Whether it was a `float` once: old bounds are the short text of a float, which is not the double's value.
    pub was_float: bool,
}

/// Bounds of one column, one row for each file, in the column's Arrow type. Null is unknown.
#[derive(Debug, Clone)]
pub struct LeafBounds {
    /// No value is below.
    pub min: ArrayRef,
    /// No value is above; text may be cut to a prefix.
    pub max: ArrayRef,
    /// How many values are null.
    pub null_count: Int64Array,
}

/// Statistics of many files.
#[derive(Debug, Clone)]
pub struct StatsColumns {
    /// Rows in the file, deleted ones included.
    pub num_records: Int64Array,
    /// Whether each bound is a value that is there; null when the writer does not say.
    pub tight_bounds: BooleanArray,
    /// In the order of the leaves asked for.
    pub leaves: Vec<LeafBounds>,
}

const MILLISECOND: i64 = 1_000;
/// Zone offsets such as -07:52:58 were written as -07:52.
const OFFSET_SKEW: i64 = 59_000_000;

/// Decimals below this went through a double unharmed.
const EXACT_IN_DOUBLE: i128 = 1_000_000_000_000_000;

/// How far bounds are moved outwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Margin {
    /// As far as writers are known to be imprecise.
    Safe,
    /// Not at all.
    None,
}

/// Whether a column was a `float` before its type was widened.
pub(crate) fn was_float(field: &StructField) -> bool {
    let changes = field.metadata.get("delta.typeChanges").and_then(|c| c.as_array());
    changes.is_some_and(|changes| changes.iter().any(|c| c.get("fromType").is_some_and(|t| t == "float")))
}

/// Reads JSON statistics.
pub fn from_json(stats: &StringArray, leaves: &[Leaf]) -> Result<StatsColumns> {
    read_json(stats, leaves, Margin::Safe)
}

/// Reads JSON statistics with bounds as they are written: for storing them, not for skipping.
///
/// Only what was a float is widened here too, since the text it was written in is what tells how far.
pub fn from_json_as_written(stats: &StringArray, leaves: &[Leaf]) -> Result<StatsColumns> {
    read_json(stats, leaves, Margin::None)
}

fn read_json(stats: &StringArray, leaves: &[Leaf], margin: Margin) -> Result<StatsColumns> {
    let mut tree = Tree::default();
    for (index, leaf) in leaves.iter().enumerate() {
        tree.insert(&leaf.path, index);
    }
    let mut row = Row::new(leaves, margin);
    let mut num_records = Int64Builder::with_capacity(stats.len());
    let mut tight_bounds = BooleanBuilder::with_capacity(stats.len());
    for text in stats {
        (row.num_records, row.tight_bounds) = (None, None);
        if let Some(text) = text {
            // Unreadable statistics are no statistics; what was read before the fault is dropped as well.
            let mut json = serde_json::Deserializer::from_str(text);
            let document = Document { tree: &tree, row: &mut row };
            if document.deserialize(&mut json).is_err() {
                row.forget();
            }
        }
        num_records.append_option(row.num_records);
        tight_bounds.append_option(row.tight_bounds);
        row.flush();
    }
    let leaves = leaves.iter().zip(row.sinks);
    let leaves = leaves.map(|(leaf, sink)| sink.finish(&leaf.data_type)).collect::<Result<_>>()?;
    Ok(StatsColumns { num_records: num_records.finish(), tight_bounds: tight_bounds.finish(), leaves })
}

/// Reads the typed statistics of a checkpoint.
pub fn from_struct(stats: &StructArray, leaves: &[Leaf]) -> Result<StatsColumns> {
    let member = |name: &str| stats.column_by_name(name);
    let unknown_counts = || Int64Array::new_null(stats.len());
    let int64 = |array: Option<ArrayRef>| array.and_then(|a| cast(&a, &ArrowType::Int64).ok());
    let counts =
        |array: Option<ArrayRef>| int64(array).map_or_else(unknown_counts, |a| a.as_primitive::<Int64Type>().clone());
    let leaves = leaves.iter().map(|leaf| {
        let target = to_arrow_type(&DataType::Primitive(leaf.data_type.clone()));
        let bound = |name: &str, upper: bool| {
            let found = member(name).and_then(|root| descend(root, &leaf.path));
            typed_bound(found, leaf, &target, upper).unwrap_or_else(|| new_null_array(&target, stats.len()))
        };
        LeafBounds {
            min: bound("minValues", false),
            max: bound("maxValues", true),
            null_count: counts(member("nullCount").and_then(|root| descend(root, &leaf.path))),
        }
    });
    let tight_bounds = member("tightBounds").and_then(|a| a.as_boolean_opt()).cloned();
    Ok(StatsColumns {
        leaves: leaves.collect(),
        num_records: counts(member("numRecords").cloned()),
        tight_bounds: tight_bounds.unwrap_or_else(|| BooleanArray::new_null(stats.len())),
    })
}

/// The column at `path` below a struct, with the nulls of its parents.
pub(super) fn descend(root: &ArrayRef, path: &[String]) -> Option<ArrayRef> {
    let mut array = root.clone();
    for name in path {
        let parent = array.as_struct_opt()?;
        let child = parent.column_by_name(name)?;
        array = match parent.nulls() {
            Some(nulls) if nulls.null_count() > 0 => {
                let not_null = BooleanArray::new(!nulls.inner(), None);
                arrow_select::nullif::nullif(child, &not_null).ok()?
            }
            _ => child.clone(),
        };
    }
    Some(array)
}

fn typed_bound(found: Option<ArrayRef>, leaf: &Leaf, target: &ArrowType, upper: bool) -> Option<ArrayRef> {
    let array = retyped(found?, target)?;
    let array = match &leaf.data_type {
        PrimitiveType::Double if leaf.was_float => widen_floats(&array, upper),
        PrimitiveType::Decimal { .. } => widen_decimals(&array, upper),
        PrimitiveType::Timestamp => {
            shift_micros(&array, if upper { OFFSET_SKEW + MILLISECOND } else { -OFFSET_SKEW - MILLISECOND })
        }
        PrimitiveType::TimestampNtz => shift_micros(&array, if upper { MILLISECOND } else { -MILLISECOND }),
        PrimitiveType::Binary
        | PrimitiveType::Void
        | PrimitiveType::Geometry { .. }
        | PrimitiveType::Geography { .. } => {
            return None;
        }
        _ => array,
    };
    Some(array)
}

/// The values in the type that the column has now, if that loses nothing.
pub(super) fn retyped(found: ArrayRef, target: &ArrowType) -> Option<ArrayRef> {
    if found.data_type() == target { Some(found) } else { widen(&found, target) }
}

/// Bounds of floats that were read as doubles from the floats' text.
pub(super) fn widen_floats(array: &ArrayRef, upper: bool) -> ArrayRef {
    #[allow(clippy::cast_possible_truncation)]
    let widened = |value: f64| {
        let as_float = f64::from(value as f32);
        if upper { value.max(as_float) } else { value.min(as_float) }
    };
    match array.as_primitive_opt::<Float64Type>() {
        Some(values) => Arc::new(values.unary::<_, Float64Type>(widened)),
        None => array.clone(),
    }
}

/// Bounds of decimals that may have been through a double.
fn widen_decimals(array: &ArrayRef, upper: bool) -> ArrayRef {
    let widened = |value: i128| {
        let slack = if value.abs() < EXACT_IN_DOUBLE { 0 } else { (value.abs() >> 51) + 1 };
        if upper { value.saturating_add(slack) } else { value.saturating_sub(slack) }
    };
    match array.as_primitive_opt::<Decimal128Type>() {
        Some(values) => {
            Arc::new(values.unary::<_, Decimal128Type>(widened).with_data_type(array.data_type().clone()))
        }
        None => array.clone(),
    }
}

/// Only conversions that keep the order and lose nothing.
fn widen(array: &ArrayRef, target: &ArrowType) -> Option<ArrayRef> {
    use ArrowType as A;
    if let (A::Timestamp(_, found), A::Timestamp(TimeUnit::Microsecond, zone)) = (array.data_type(), target) {
        // The number stays: statistics of both types count from 1970 in UTC.
        let micros = cast(array, &A::Timestamp(TimeUnit::Microsecond, found.clone())).ok()?;
        let micros = micros.as_primitive_opt::<TimestampMicrosecondType>()?.clone();
        return Some(Arc::new(micros.with_timezone_opt(zone.clone())));
    }
    let allowed = match (array.data_type(), target) {
        (A::Int8, A::Int16 | A::Int32 | A::Int64 | A::Float64 | A::Decimal128(..))
        | (A::Int16, A::Int32 | A::Int64 | A::Float64 | A::Decimal128(..))
        | (A::Int32, A::Int64 | A::Float64 | A::Decimal128(..))
        | (A::Int64, A::Decimal128(..))
        | (A::Float32, A::Float64)
        | (A::Decimal128(..) | A::Decimal64(..) | A::Decimal32(..), A::Decimal128(..))
        | (A::Date32, A::Timestamp(TimeUnit::Microsecond, None))
        | (A::LargeUtf8 | A::Utf8View, A::Utf8) => true,
        _ => false,
    };
    allowed.then(|| cast(array, target).ok()).flatten()
}

fn shift_micros(array: &ArrayRef, by: i64) -> ArrayRef {
    match array.as_primitive_opt::<TimestampMicrosecondType>() {
        Some(times) => {
            let shifted = times.unary::<_, TimestampMicrosecondType>(|t| t.saturating_add(by));
            Arc::new(shifted.with_timezone_opt(times.timezone().map(Arc::<str>::from)))
        }
        None => array.clone(),
    }
}

/// The wanted leaves by name, level by level.
#[derive(Default)]
struct Tree {
    children: Vec<(String, Tree)>,
    leaf: Option<usize>,
}

impl Tree {
    fn insert(&mut self, path: &[String], index: usize) {
        match path.split_first() {
            None => self.leaf = Some(index),
            Some((name, rest)) => match self.children.iter().position(|(n, _)| n == name) {
                Some(at) => {
                    if let Some((_, child)) = self.children.get_mut(at) {
                        child.insert(rest, index);
                    }
                }
                None => {
                    let mut child = Self::default();
                    child.insert(rest, index);
                    self.children.push((name.clone(), child));
                }
            },
        }
    }

    fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|(n, _)| n == name).map(|(_, child)| child)
    }
}

/// What was found for the file at hand, moved into the columns by `flush`.
struct Row {
    num_records: Option<i64>,
    tight_bounds: Option<bool>,
    sinks: Vec<Sink>,
}

impl Row {
    fn new(leaves: &[Leaf], margin: Margin) -> Self {
        let sinks = leaves.iter().map(|leaf| Sink::new(leaf, margin)).collect();
        Self { num_records: None, tight_bounds: None, sinks }
    }

    fn forget(&mut self) {
        (self.num_records, self.tight_bounds) = (None, None);
        for sink in &mut self.sinks {
            (sink.has_min, sink.has_max, sink.count) = (Found::Undo, Found::Undo, None);
        }
    }

    fn flush(&mut self) {
        for sink in &mut self.sinks {
            sink.flush();
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Found {
    Nothing,
    Value,
    Undo,
}

struct Sink {
    leaf: Leaf,
    margin: Margin,
    min: Values,
    max: Values,
    null_count: Int64Builder,
    has_min: Found,
    has_max: Found,
    count: Option<i64>,
    undone: Vec<usize>,
    rows: usize,
}

impl Sink {
    fn new(leaf: &Leaf, margin: Margin) -> Self {
        Self {
            leaf: leaf.clone(),
            margin,
            min: Values::new(&leaf.data_type),
            max: Values::new(&leaf.data_type),
            null_count: Int64Builder::new(),
            has_min: Found::Nothing,
            has_max: Found::Nothing,
            count: None,
            undone: Vec::new(),
            rows: 0,
        }
    }

    fn take(&mut self, member: Member, text: &str) {
        match member {
            Member::Min if self.has_min == Found::Nothing => {
                self.min.append(text, &self.leaf, self.margin, false);
                self.has_min = Found::Value;
            }
            Member::Max if self.has_max == Found::Nothing => {
                self.max.append(text, &self.leaf, self.margin, true);
                self.has_max = Found::Value;
            }
            Member::NullCount => self.count = text.parse().ok().filter(|n| *n >= 0),
            Member::Min | Member::Max => {}
        }
    }

    fn flush(&mut self) {
        if self.min.len() == self.rows {
            self.min.append_null();
        }
        if self.max.len() == self.rows {
            self.max.append_null();
        }
        if self.has_min == Found::Undo || self.has_max == Found::Undo {
            self.undone.push(self.rows);
        }
        self.null_count.append_option(self.count.take());
        (self.has_min, self.has_max) = (Found::Nothing, Found::Nothing);
        self.rows += 1;
    }

    fn finish(mut self, data_type: &PrimitiveType) -> Result<LeafBounds> {
        let target = to_arrow_type(&DataType::Primitive(data_type.clone()));
        let undone = (!self.undone.is_empty()).then(|| {
            let mut mask = vec![false; self.rows];
            self.undone.iter().for_each(|row| mask[*row] = true);
            BooleanArray::from(mask)
        });
        let finish = |array: ArrayRef| -> Result<ArrayRef> {
            let array = if array.data_type() == &target { array } else { cast(&array, &target)? };
            match &undone {
                Some(mask) => Ok(arrow_select::nullif::nullif(&array, mask)?),
                None => Ok(array),
            }
        };
        Ok(LeafBounds {
            min: finish(self.min.finish())?,
            max: finish(self.max.finish())?,
            null_count: self.null_count.finish(),
        })
    }
}

#[derive(Clone, Copy)]
enum Member {
    Min,
    Max,
    NullCount,
}

/// The whole statistics object.
struct Document<'t, 'r> {
    tree: &'t Tree,
    row: &'r mut Row,
}

impl<'de> DeserializeSeed<'de> for Document<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("statistics")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            let member = match key.as_ref() {
                "numRecords" => {
                    self.row.num_records = map.next_value::<Option<i64>>()?.filter(|n| *n >= 0);
                    continue;
                }
                "tightBounds" => {
                    self.row.tight_bounds = match map.next_value::<&'de RawValue>()?.get() {
                        "true" => Some(true),
                        "false" => Some(false),
                        _ => None,
                    };
                    continue;
                }
                "minValues" => Member::Min,
                "maxValues" => Member::Max,
                "nullCount" => Member::NullCount,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            map.next_value_seed(Branch { tree: self.tree, member, row: self.row })?;
        }
        Ok(())
    }
}

/// `minValues`, `maxValues`, `nullCount` or a struct inside one of them.
struct Branch<'t, 'r> {
    tree: &'t Tree,
    member: Member,
    row: &'r mut Row,
}

impl<'de> DeserializeSeed<'de> for Branch<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Branch<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of bounds")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match self.tree.child(&key) {
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
                Some(child) => match child.leaf {
                    Some(leaf) => {
                        let value = map.next_value::<&'de RawValue>()?.get();
                        if let Some(sink) = self.row.sinks.get_mut(leaf).filter(|_| value != "null") {
                            sink.take(self.member, value);
                        }
                    }
                    None => map.next_value_seed(Branch { tree: child, member: self.member, row: self.row })?,
                },
            }
        }
        Ok(())
    }
}

/// Typed values being collected; what is not of the type is null.
enum Values {
    Int(Int64Builder),
    Float(Float32Builder),
    Double(Float64Builder),
    Decimal(Decimal128Builder),
    Boolean(BooleanBuilder),
    Text(StringBuilder),
    Date(Date32Builder),
    Timestamp(TimestampMicrosecondBuilder),
    Unknown(ArrowType, usize),
}

impl Values {
    fn new(data_type: &PrimitiveType) -> Self {
        let arrow = to_arrow_type(&DataType::Primitive(data_type.clone()));
        match data_type {
            PrimitiveType::Long | PrimitiveType::Integer | PrimitiveType::Short | PrimitiveType::Byte => {
                Self::Int(Int64Builder::new())
            }
            PrimitiveType::Float => Self::Float(Float32Builder::new()),
            PrimitiveType::Double => Self::Double(Float64Builder::new()),
            PrimitiveType::Decimal { .. } => Self::Decimal(Decimal128Builder::new().with_data_type(arrow)),
            PrimitiveType::Boolean => Self::Boolean(BooleanBuilder::new()),
            PrimitiveType::String => Self::Text(StringBuilder::new()),
            PrimitiveType::Date => Self::Date(Date32Builder::new()),
            PrimitiveType::Timestamp | PrimitiveType::TimestampNtz => {
                Self::Timestamp(TimestampMicrosecondBuilder::new().with_data_type(arrow))
            }
            PrimitiveType::Binary
            | PrimitiveType::Void
            | PrimitiveType::Geometry { .. }
            | PrimitiveType::Geography { .. } => Self::Unknown(arrow, 0),
        }
    }

    fn len(&self) -> usize {
        use arrow_array::builder::ArrayBuilder;
        match self {
            Self::Int(b) => b.len(),
            Self::Float(b) => b.len(),
            Self::Double(b) => b.len(),
            Self::Decimal(b) => b.len(),
            Self::Boolean(b) => b.len(),
            Self::Text(b) => b.len(),
            Self::Date(b) => b.len(),
            Self::Timestamp(b) => b.len(),
            Self::Unknown(_, len) => *len,
        }
    }

    fn append_null(&mut self) {
        match self {
            Self::Int(b) => b.append_null(),
            Self::Float(b) => b.append_null(),
            Self::Double(b) => b.append_null(),
            Self::Decimal(b) => b.append_null(),
            Self::Boolean(b) => b.append_null(),
            Self::Text(b) => b.append_null(),
            Self::Date(b) => b.append_null(),
            Self::Timestamp(b) => b.append_null(),
            Self::Unknown(_, len) => *len += 1,
        }
    }

    /// `raw` is a JSON value as it stands in the statistics.
    fn append(&mut self, raw: &str, leaf: &Leaf, margin: Margin, upper: bool) {
        let unquoted;
        let text = if raw.starts_with('"') {
            match serde_json::from_str::<std::borrow::Cow<'_, str>>(raw) {
                Ok(text) => {
                    unquoted = text;
                    unquoted.as_ref()
                }
                Err(_) => return self.append_null(),
            }
        } else {
            raw
        };
        match self {
            Self::Int(b) => b.append_option(text.parse().ok()),
            Self::Float(b) => b.append_option(text.parse().ok().filter(|v: &f32| !v.is_nan())),
            Self::Double(b) => b.append_option(double(text, leaf.was_float, upper)),
            Self::Decimal(b) => b.append_option(decimal(text, &leaf.data_type, margin, upper)),
            Self::Boolean(b) => b.append_option(text.parse().ok()),
            Self::Text(b) => b.append_option(raw.starts_with('"').then_some(text)),
            Self::Date(b) => {
                b.append_option(match Scalar::parse(text.get(..10).unwrap_or(text), &PrimitiveType::Date) {
                    Some(Scalar::Date(days)) => Some(days),
                    _ => None,
                })
            }
            Self::Timestamp(b) => b.append_option(timestamp(text, &leaf.data_type, margin, upper)),
            Self::Unknown(_, len) => *len += 1,
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Int(b) => Arc::new(b.finish()),
            Self::Float(b) => Arc::new(b.finish()),
            Self::Double(b) => Arc::new(b.finish()),
            Self::Decimal(b) => Arc::new(b.finish()),
            Self::Boolean(b) => Arc::new(b.finish()),
            Self::Text(b) => Arc::new(b.finish()),
            Self::Date(b) => Arc::new(b.finish()),
            Self::Timestamp(b) => Arc::new(b.finish()),
            Self::Unknown(arrow, len) => new_null_array(arrow, *len),
        }
    }
}

fn double(text: &str, was_float: bool, upper: bool) -> Option<f64> {
    let value: f64 = text.parse().ok().filter(|v: &f64| !v.is_nan())?;
    let as_float = if was_float { text.parse::<f32>().ok().map(f64::from)? } else { value };
    Some(if upper { value.max(as_float) } else { value.min(as_float) })
}

/// Sixteen or seventeen digits may be the shortest text of a double near the true value, not the value itself.
fn decimal(text: &str, data_type: &PrimitiveType, margin: Margin, upper: bool) -> Option<i128> {
    let PrimitiveType::Decimal { precision, scale } = data_type else { return None };
    let value = parse_decimal(text, *precision, *scale)?;
    let digits = text.bytes().take_while(|b| !matches!(b, b'e' | b'E')).filter(u8::is_ascii_digit).count();
    let slack = if margin == Margin::Safe && (16..=17).contains(&digits) { (value.abs() >> 51) + 1 } else { 0 };
    Some(if upper { value + slack } else { value - slack })
}

fn timestamp(text: &str, data_type: &PrimitiveType, margin: Margin, upper: bool) -> Option<i64> {
    let (micros, skew) = match data_type {
        PrimitiveType::TimestampNtz => (parse_timestamp_ntz(text.trim_end_matches('Z'))?, 0),
        _ => (parse_timestamp(text)?, if text.ends_with('Z') || !text.contains(':') { 0 } else { OFFSET_SKEW }),
    };
    if margin == Margin::None {
        return Some(micros);
    }
    Some(if upper { micros.saturating_add(skew + MILLISECOND) } else { micros.saturating_sub(skew + MILLISECOND) })
}
