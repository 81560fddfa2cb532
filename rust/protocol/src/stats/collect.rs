//! Collects the statistics of a data file while it is written, and serialises them.
//!
//! Rows arrive as Arrow batches in the table's Arrow types with physical names; the result is the text of
//! `add.stats`. Reading statistics is in `read`.
//!
//! Invariant: a minimum is <= and a maximum >= every value of the file, after any truncation
//! (the properties `stats::collect::bounds_hold_every_…`), where the last millisecond of the year 9999 counts as its end. A
//! bound that JSON or other readers could misread is left out, together with the other one, since readers use a single
//! bound for both: infinities, columns with a NaN, years outside 1 to 9999, strings that cannot be rounded up. Null counts
//! include the rows whose enclosing struct is null.
//!
//! PROTOCOL.md: "Per-file Statistics".

use std::sync::Arc;

use arrow_arith::aggregate;
use arrow_array::cast::AsArray;
use arrow_array::types;
use arrow_array::{Array, ArrayRef, ArrowNumericType, BooleanArray, RecordBatch};
use arrow_schema::DataType as ArrowType;
use arrow_select::nullif::nullif;
use chrono::{DateTime, Datelike, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::bounding_box::BoundingBox;
use crate::error::{Error, Result};
use crate::property::Properties;
use crate::scalar::Scalar;
use crate::schema::collation::is_collated;
use crate::schema::{DataType, PrimitiveType, StructField, StructType};

/// How many characters of a string are kept in its bounds, unless the table says otherwise.
pub const STRING_PREFIX_LENGTH: usize = 32;

/// How many leaf columns have statistics, unless the table says otherwise.
pub const INDEXED_LEAVES: i64 = 32;

/// Which leaf columns have statistics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IndexedColumns {
    /// The first leaves in the order of the schema, this many; all of them if negative.
    First(i64),
    /// These columns, each as a path; a struct means all columns in it.
    Named(Vec<Vec<String>>),
    /// The first leaves, this many, and these columns.
    FirstAnd(i64, Vec<Vec<String>>),
}

impl Default for IndexedColumns {
    fn default() -> Self {
        Self::First(INDEXED_LEAVES)
    }
}

impl IndexedColumns {
    /// The columns that the table's properties ask for.
    pub fn of(properties: Properties<'_>) -> Result<Self> {
        let first = |n: Option<usize>| Self::First(n.map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX)));
        match properties.data_skipping_stats_columns()? {
            Some(paths) => Ok(Self::Named(paths)),
            None => properties.data_skipping_num_indexed_cols().map(first),
        }
    }

    /// The columns of `schema` that have statistics.
    pub fn of_schema(&self, schema: &StructType) -> StructType {
        self.selection().member(schema, &mut Vec::new())
    }

    /// These columns, and further ones.
    #[must_use]
    pub fn and(self, columns: &[Vec<String>]) -> Self {
        let with = |mut paths: Vec<Vec<String>>| {
            paths.extend_from_slice(columns);
            paths
        };
        match self {
            same if columns.is_empty() => same,
            Self::First(n) => Self::FirstAnd(n, with(Vec::new())),
            Self::Named(paths) => Self::Named(with(paths)),
            Self::FirstAnd(n, paths) => Self::FirstAnd(n, with(paths)),
        }
    }

    fn selection(&self) -> Selection<'_> {
        let first = |n: i64| usize::try_from(n).unwrap_or(usize::MAX);
        match self {
            Self::First(n) => Selection { left: first(*n), named: &[] },
            Self::Named(paths) => Selection { left: 0, named: paths },
            Self::FirstAnd(n, paths) => Selection { left: first(*n), named: paths },
        }
    }
}

/// The growing statistics of one file.
#[derive(Debug)]
pub struct StatsCollector {
    prefix_length: usize,
    rows: u64,
    columns: Vec<Column>,
}

impl StatsCollector {
    /// Statistics of a file with the columns of `schema`: physical names, no partition columns.
    pub fn new(schema: &StructType, indexed: &IndexedColumns) -> Self {
        Self {
            prefix_length: STRING_PREFIX_LENGTH,
            rows: 0,
            columns: indexed.selection().columns(schema, &mut Vec::new()),
        }
    }

    /// Keeps this many characters of a string, instead of [`STRING_PREFIX_LENGTH`].
    #[must_use]
    pub fn with_prefix_length(mut self, characters: usize) -> Self {
        self.prefix_length = characters;
        self
    }

    /// Counts `rows` more rows, and returns the columns with statistics, each of which must then take these rows. The columns
    /// are independent, so that several threads can share them.
    pub fn columns(&mut self, rows: u64) -> impl Iterator<Item = ColumnStats<'_>> {
        self.rows = self.rows.saturating_add(rows);
        let prefix_length = self.prefix_length;
        self.columns.iter_mut().map(move |column| ColumnStats { column, prefix_length })
    }

    /// Adds the statistics of rows that are not read. `known` gives the bounds and the null count of each leaf, by its path.
    ///
    /// # Errors
    /// Those of `known`; `Internal` if the values are of another type than the column.
    pub fn update_known(&mut self, rows: u64, known: &dyn Fn(&[&str]) -> Result<PrecomputedStats>) -> Result<()> {
        self.rows = self.rows.saturating_add(rows);
        self.columns.iter_mut().try_for_each(|column| column.update_known(&mut Vec::new(), self.prefix_length, known))
    }

    /// Rows taken in so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The text of `add.stats`.
    pub fn finish(&self) -> String {
        let mut out = format!(r#"{{"numRecords":{}"#, self.rows);
        for (name, member) in [
            ("minValues", StatsMember::MinValues),
            ("maxValues", StatsMember::MaxValues),
            ("nullCount", StatsMember::NullCount),
        ] {
            out.push_str(&format!(r#","{name}":"#));
            print_columns(&self.columns, member, self.prefix_length, &mut out);
        }
        out.push_str(r#","tightBounds":true}"#);
        out
    }
}

/// The growing statistics of one column.
#[derive(Debug)]
pub struct ColumnStats<'a> {
    column: &'a mut Column,
    prefix_length: usize,
}

impl ColumnStats<'_> {
    /// Adds the rows of `batch`, whose first columns are those of the schema in order.
    ///
    /// # Errors
    /// `Internal` if the batch has other columns or types.
    pub fn update(&mut self, batch: &RecordBatch) -> Result<()> {
        let values = batch.columns().get(self.column.index);
        let values = values.ok_or_else(|| Error::internal("a batch for statistics lacks a column of the file"))?;
        self.column.update(values, self.prefix_length)
    }
}

/// Bounds and null count of a column that were computed elsewhere.
#[derive(Debug, Default)]
pub struct PrecomputedStats {
    /// Values that include a lower and an upper bound of all rows; `None` if these are not known, as for geometries and
    /// geographies, whose bounds are no values.
    pub min_max: Option<ArrayRef>,
    /// How many rows are null.
    pub nulls: Option<u64>,
}

/// Decides leaf by leaf, in schema order, which ones have statistics.
struct Selection<'a> {
    left: usize,
    named: &'a [Vec<String>],
}

impl Selection<'_> {
    fn columns<'s>(&mut self, schema: &'s StructType, path: &mut Vec<&'s str>) -> Vec<Column> {
        let mut columns = Vec::new();
        for (index, field) in schema.fields.iter().enumerate() {
            path.push(&field.name);
            let kind = match &field.data_type {
                DataType::Struct(inner) => {
                    let inner = self.columns(inner, path);
                    (!inner.is_empty()).then_some(ColumnKind::Struct(inner))
                }
                DataType::Primitive(_)
                | DataType::Array(_)
                | DataType::Map(_)
                | DataType::Variant
                | DataType::Foreign(_) => {
                    self.takes_leaf(path).then(|| ColumnKind::Leaf { nulls: Some(0), bounds: Bounds::of(field) })
                }
            };
            path.pop();
            columns.extend(kind.map(|kind| Column { index, name: field.name.clone(), kind }));
        }
        columns
    }

    fn member<'s>(&mut self, schema: &'s StructType, path: &mut Vec<&'s str>) -> StructType {
        let mut fields = Vec::new();
        for field in &schema.fields {
            path.push(&field.name);
            let data_type = match &field.data_type {
                DataType::Struct(inner) => {
                    let inner = self.member(inner, path);
                    (!inner.fields.is_empty()).then(|| DataType::Struct(Arc::new(inner)))
                }
                DataType::Primitive(_)
                | DataType::Array(_)
                | DataType::Map(_)
                | DataType::Variant
                | DataType::Foreign(_) => self.takes_leaf(path).then(|| field.data_type.clone()),
            };
            path.pop();
            fields.extend(data_type.map(|data_type| StructField { data_type, ..field.clone() }));
        }
        StructType::new(fields)
    }

    fn takes_leaf(&mut self, path: &[&str]) -> bool {
        let is_first = self.left > 0;
        self.left = self.left.saturating_sub(1);
        let holds =
            |named: &Vec<String>| named.len() <= path.len() && named.iter().zip(path).all(|(n, p)| n.as_str() == *p);
        is_first || self.named.iter().any(holds)
    }
}

#[derive(Debug)]
struct Column {
    /// Position among its siblings in the data.
    index: usize,
    name: String,
    kind: ColumnKind,
}

#[derive(Debug)]
enum ColumnKind {
    Struct(Vec<Column>),
    /// `nulls`: `None` if they were not counted.
    Leaf {
        nulls: Option<u64>,
        bounds: Bounds,
    },
}

impl Column {
    fn update(&mut self, array: &ArrayRef, prefix_length: usize) -> Result<()> {
        match &mut self.kind {
            ColumnKind::Leaf { nulls, bounds } => {
                let null_count = array.logical_null_count();
                *nulls = nulls.map(|nulls| nulls.saturating_add(null_count as u64));
                if null_count < array.len() {
                    bounds.update(array, prefix_length).ok_or_else(|| foreign(&self.name, array.data_type()))?;
                }
                Ok(())
            }
            ColumnKind::Struct(columns) => {
                let parent = array.as_struct_opt().ok_or_else(|| foreign(&self.name, array.data_type()))?;
                // Values inside a null struct do not count, whatever the child's buffers have there.
                let absent = parent.nulls().map(|nulls| BooleanArray::new(!nulls.inner(), None));
                for column in columns {
                    let child =
                        parent.columns().get(column.index).ok_or_else(|| foreign(&self.name, array.data_type()))?;
                    match &absent {
                        Some(absent) => column.update(&nullif(child, absent)?, prefix_length)?,
                        None => column.update(child, prefix_length)?,
                    }
                }
                Ok(())
            }
        }
    }
}

impl Column {
    fn update_known<'a>(
        &'a mut self,
        path: &mut Vec<&'a str>,
        prefix_length: usize,
        known: &dyn Fn(&[&str]) -> Result<PrecomputedStats>,
    ) -> Result<()> {
        path.push(&self.name);
        match &mut self.kind {
            ColumnKind::Struct(columns) => {
                for column in columns {
                    column.update_known(path, prefix_length, known)?;
                }
            }
            ColumnKind::Leaf { nulls, bounds } => {
                let known = known(path)?;
                *nulls = nulls.zip(known.nulls).map(|(nulls, more)| nulls.saturating_add(more));
                match &known.min_max {
                    None => *bounds = Bounds::None,
                    Some(values) if values.logical_null_count() < values.len() => {
                        bounds.update(values, prefix_length).ok_or_else(|| foreign(&self.name, values.data_type()))?;
                    }
                    // All rows are null.
                    Some(_) => {}
                }
            }
        }
        path.pop();
        Ok(())
    }
}

fn foreign(name: &str, data_type: &ArrowType) -> Error {
    Error::internal(format!("a batch for statistics has the type {data_type} in the column `{name}`"))
}

/// The least and the greatest value seen, as far as the type has bounds.
#[derive(Debug)]
enum Bounds {
    /// Only nulls are counted.
    None,
    Whole {
        range: Option<(i64, i64)>,
        form: Form,
    },
    Decimal {
        range: Option<(i128, i128)>,
        precision: u8,
        scale: u8,
    },
    Float {
        range: Option<(f64, f64)>,
        has_nan: bool,
    },
    /// The minimum is cut already. The maximum is not, since a cut one would be greater than later values.
    Text {
        range: Option<(String, String)>,
    },
    Shape(BoundingBox),
}

/// What a whole number means.
#[derive(Debug, Clone, Copy)]
enum Form {
    Number,
    /// Days.
    Date,
    /// Microseconds, with what is printed after them.
    Instant(&'static str),
}

impl Bounds {
    fn of(field: &StructField) -> Self {
        // Readers that know the collation would compare bounds in its order.
        if is_collated(field) { Self::None } else { Self::for_type(&field.data_type) }
    }

    fn for_type(data_type: &DataType) -> Self {
        use PrimitiveType as P;
        let whole = |form| Self::Whole { range: None, form };
        let DataType::Primitive(primitive) = data_type else { return Self::None };
        match primitive {
            P::Byte | P::Short | P::Integer | P::Long => whole(Form::Number),
            P::Date => whole(Form::Date),
            P::Timestamp => whole(Form::Instant("Z")),
            P::TimestampNtz => whole(Form::Instant("")),
            P::Decimal { precision, scale } => Self::Decimal { range: None, precision: *precision, scale: *scale },
            P::Float | P::Double => Self::Float { range: None, has_nan: false },
            P::String => Self::Text { range: None },
            P::Geometry { .. } => Self::Shape(BoundingBox::of_geometries()),
            P::Geography { .. } => Self::Shape(BoundingBox::of_geographies()),
            P::Boolean | P::Binary | P::Void => Self::None,
        }
    }

    /// `None` if the array is of another type.
    fn update(&mut self, array: &ArrayRef, prefix_length: usize) -> Option<()> {
        match self {
            Self::None => {}
            Self::Whole { range, form } => {
                let seen = match (form, array.data_type()) {
                    (Form::Number, ArrowType::Int8) => min_max::<types::Int8Type, _>(array),
                    (Form::Number, ArrowType::Int16) => min_max::<types::Int16Type, _>(array),
                    (Form::Number, ArrowType::Int32) => min_max::<types::Int32Type, _>(array),
                    (Form::Number, ArrowType::Int64) => min_max::<types::Int64Type, _>(array),
                    (Form::Date, ArrowType::Date32) => min_max::<types::Date32Type, _>(array),
                    (Form::Instant(_), ArrowType::Timestamp(_, _)) => {
                        min_max::<types::TimestampMicrosecondType, _>(array)
                    }
                    _ => return None,
                };
                widen(range, seen?);
            }
            Self::Decimal { range, .. } => widen(range, min_max::<types::Decimal128Type, _>(array)?),
            Self::Float { range, has_nan } => {
                let seen = match array.data_type() {
                    ArrowType::Float32 => min_max::<types::Float32Type, f64>(array)?,
                    _ => min_max::<types::Float64Type, f64>(array)?,
                };
                // The kernels use the total order of IEEE 754: a NaN, of either sign, is at one of the ends.
                *has_nan |= seen.0.is_nan() || seen.1.is_nan();
                widen(range, seen);
            }
            Self::Text { range } => {
                let array = array.as_string_opt::<i32>()?;
                let (low, high) = (aggregate::min_string(array)?, aggregate::max_string(array)?);
                match range {
                    None => *range = Some((cut(low, prefix_length).to_owned(), high.to_owned())),
                    Some((min, max)) => {
                        if low < min.as_str() {
                            cut(low, prefix_length).clone_into(min);
                        }
                        if high > max.as_str() {
                            high.clone_into(max);
                        }
                    }
                }
            }
            Self::Shape(shapes) => shapes.update(array.as_binary_opt()?),
        }
        Some(())
    }

    /// The JSON of the lower and the upper bound: both, or neither. delta-rs treats a missing bound as null, and
    /// loses the rows of a file that has only the other one.
    fn print(&self, prefix_length: usize) -> Option<(String, String)> {
        match self {
            Self::None => None,
            Self::Whole { range, form } => {
                let (min, max) = (*range)?;
                match form {
                    Form::Number => Some((min.to_string(), max.to_string())),
                    Form::Date => Some((print_date(min)?, print_date(max)?)),
                    Form::Instant(zone) => Some((print_instant(min, false, zone)?, print_instant(max, true, zone)?)),
                }
            }
            Self::Decimal { range, precision, scale } => {
                let (min, max) = (*range)?;
                let print = |value| Scalar::Decimal { value, precision: *precision, scale: *scale }.to_string();
                Some((print(min), print(max)))
            }
            // Readers disagree on the order of NaN, so a column that has one has no bounds.
            Self::Float { has_nan: true, .. } => None,
            Self::Float { range, has_nan: false } => {
                let (min, max) = (*range)?;
                // Readers that distinguish -0.0 and 0.0 must find both inside the bounds.
                let (min, max) = (if min == 0.0 { -0.0 } else { min }, if max == 0.0 { 0.0 } else { max });
                Some((Number::from_f64(min)?.to_string(), Number::from_f64(max)?.to_string()))
            }
            Self::Text { range } => {
                let (min, max) = range.as_ref()?;
                let max = round_up(max, prefix_length)?;
                Some((Value::String(min.clone()).to_string(), Value::String(max).to_string()))
            }
            Self::Shape(shapes) => shapes.print(),
        }
    }
}

/// Least and greatest non-null value; `None` if the array is of another type or all null.
fn min_max<T: ArrowNumericType, N: From<T::Native>>(array: &ArrayRef) -> Option<(N, N)> {
    let array = array.as_primitive_opt::<T>()?;
    Some((aggregate::min(array)?.into(), aggregate::max(array)?.into()))
}

fn widen<T: PartialOrd + Copy>(range: &mut Option<(T, T)>, (low, high): (T, T)) {
    match range {
        None => *range = Some((low, high)),
        Some((min, max)) => {
            if low < *min {
                *min = low;
            }
            if high > *max {
                *max = high;
            }
        }
    }
}

/// The first `characters` characters.
fn cut(text: &str, characters: usize) -> &str {
    text.char_indices().nth(characters).map_or(text, |(end, _)| &text[..end])
}

/// The greatest character there is.
const LAST_CHARACTER: char = '\u{10FFFF}';

/// A short text that is >= `text` by code point and by UTF-16 unit, if cutting it within twice the length can give one.
///
/// The greatest character is appended at the cut, and must be greater than the one it replaces. It is not when that
/// one is the greatest itself, nor, by UTF-16 unit, when that one is between the surrogates and U+FFFF; such
/// characters stay, and the cut is after them.
fn round_up(text: &str, characters: usize) -> Option<String> {
    for (position, (end, character)) in text.char_indices().enumerate().skip(characters) {
        if position > characters.saturating_mul(2) {
            return None;
        }
        if !matches!(character, '\u{E000}'..='\u{FFFF}' | LAST_CHARACTER) {
            let mut cut = text[..end].to_owned();
            cut.push(LAST_CHARACTER);
            return Some(cut);
        }
    }
    Some(text.to_owned())
}

pub(super) fn print_date(days: i64) -> Option<String> {
    let date = DateTime::from_timestamp(days.checked_mul(86_400)?, 0)?;
    in_common_years(date).then(|| format!("\"{}\"", date.format("%Y-%m-%d")))
}

/// The last millisecond of the year 9999.
const LAST_MILLIS: i64 = 253_402_300_799_999;

/// The protocol has milliseconds, so the maximum is rounded up. The last one that
/// can be printed is not, since readers add a millisecond to a maximum, and it is a common "valid until".
pub(super) fn print_instant(micros: i64, upper: bool, zone: &str) -> Option<String> {
    let millis = micros.div_euclid(1000);
    let round = i64::from(upper && micros.rem_euclid(1000) != 0 && millis != LAST_MILLIS);
    let time = DateTime::from_timestamp_millis(millis + round)?;
    in_common_years(time).then(|| format!("\"{}{zone}\"", time.format("%Y-%m-%dT%H:%M:%S%.3f")))
}

/// Before the year 1 and beyond four digits, readers disagree on how a year is written.
fn in_common_years(time: DateTime<Utc>) -> bool {
    (1..=9999).contains(&time.year())
}

/// A member of the statistics that has a value for each column.
#[derive(Clone, Copy)]
enum StatsMember {
    MinValues,
    MaxValues,
    NullCount,
}

/// Serialises the object `member` of the statistics. Returns whether any column has a value.
fn print_columns(columns: &[Column], member: StatsMember, prefix_length: usize, out: &mut String) -> bool {
    out.push('{');
    let mut any = false;
    for column in columns {
        let start = out.len();
        if any {
            out.push(',');
        }
        out.push_str(&Value::String(column.name.clone()).to_string());
        out.push(':');
        let printed = match &column.kind {
            ColumnKind::Struct(columns) => print_columns(columns, member, prefix_length, out),
            ColumnKind::Leaf { nulls, bounds } => {
                let text = match member {
                    StatsMember::MinValues => bounds.print(prefix_length).map(|(min, _)| min),
                    StatsMember::MaxValues => bounds.print(prefix_length).map(|(_, max)| max),
                    StatsMember::NullCount => nulls.map(|nulls| nulls.to_string()),
                };
                out.push_str(text.as_deref().unwrap_or_default());
                text.is_some()
            }
        };
        if printed {
            any = true;
        } else {
            out.truncate(start);
        }
    }
    out.push('}');
    any
}
