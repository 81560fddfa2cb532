//! Reads statistics into columns, only for the columns that a query needs.
//!
//! A value that is missing, malformed or of another type is null, which means unknown: such a file is kept. The bounds
//! are wide enough for every known imprecision of writers: timestamps cut to milliseconds, zones left out or
//! cut to minutes, decimals that went through a double, floats that were widened to doubles. String bounds are as
//! stored; skipping treats them as prefixes.
//!
//! Invariant: bounds contain every value that a writer computed them from (`stats_read::properties`).
//!
//! PROTOCOL.md: "Per-file Statistics".

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Int64Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, StructArray, new_null_array};
use arrow_buffer::NullBuffer;
use arrow_cast::cast;
use arrow_schema::{DataType as ArrowType, TimeUnit};

pub use super::leaf::Leaf;
use super::spans::{Member, NUM_RECORDS, StatsValue, TIGHT_BOUNDS, Tree, ValueSpans, number_of};
use super::templates::StatsTemplates;
use super::values::{MILLISECOND, Margin, OFFSET_SKEW, Values, count, near_double, near_float, truth};
use crate::error::Result;
use crate::json::{Scanner, unescape};
use crate::schema::arrow::to_arrow_type;
use crate::schema::{DataType, PrimitiveType, StructField};

/// The statistics of this many files are located before values are read: then the values of a column are read one after the
/// other, while the strings are still in the processor's cache.
const BATCH_FILES: usize = 32;

/// Bounds of one column, one row for each file, in the column's Arrow type. Null is unknown.
#[derive(Debug, Clone)]
pub struct LeafBounds {
    /// Lower bounds.
    pub min: ArrayRef,
    /// Upper bounds; strings may be cut to a prefix.
    pub max: ArrayRef,
    /// How many values are null.
    pub null_count: Int64Array,
}

impl LeafBounds {
    /// The bounds of a column that has one value in all rows of a file, such as a partition column.
    pub fn of_values(values: ArrayRef, row_count: &Int64Array) -> Self {
        let nulls = values.logical_nulls();
        // Either all rows are null, or none.
        let null_count = match nulls.filter(|nulls| nulls.null_count() > 0) {
            None => Int64Array::from_value(0, values.len()),
            Some(nulls) => {
                let count = |(is_valid, rows): (bool, &i64)| if is_valid { 0 } else { *rows };
                let counts: Vec<i64> = nulls.iter().zip(row_count.values()).map(count).collect();
                let unknown = row_count.nulls().map(|known| NullBuffer::new(known.inner() | nulls.inner()));
                Int64Array::new(counts.into(), unknown)
            }
        };
        Self { min: values.clone(), max: values, null_count }
    }
}

/// Statistics of many files.
#[derive(Debug, Clone)]
pub struct StatsColumns {
    /// Rows in the file, deleted ones included.
    pub num_records: Int64Array,
    /// Whether bounds are values of rows that are not deleted; null if the writer does not say.
    pub tight_bounds: BooleanArray,
    /// In the order of the leaves asked for.
    pub leaves: Vec<LeafBounds>,
}

/// Reads JSON statistics.
pub fn from_json<'a>(stats: impl IntoIterator<Item = Option<&'a str>>, leaves: &[Leaf]) -> Result<StatsColumns> {
    read_json(stats, leaves, Margin::Safe, true)
}

/// Reads JSON statistics only up to the bounds, unless one is missing: if both are known, null counts and
/// other members after them may be left unknown.
pub fn bounds_from_json<'a>(stats: impl IntoIterator<Item = Option<&'a str>>, leaves: &[Leaf]) -> Result<StatsColumns> {
    read_json(stats, leaves, Margin::Safe, false)
}

/// Reads JSON statistics with bounds as they are written: for storing them, not for skipping.
///
/// Only former floats and timestamps without a zone are widened here too, since only the text shows how far.
pub fn from_json_as_written<'a>(
    stats: impl IntoIterator<Item = Option<&'a str>>,
    leaves: &[Leaf],
) -> Result<StatsColumns> {
    read_json(stats, leaves, Margin::None, true)
}

fn read_json<'a>(
    stats: impl IntoIterator<Item = Option<&'a str>>,
    leaves: &[Leaf],
    margin: Margin,
    to_the_end: bool,
) -> Result<StatsColumns> {
    let mut stats = stats.into_iter().map(|text| text.map(Scanner::new));
    let mut reader = JsonReader::new(leaves, margin, to_the_end, BATCH_FILES, stats.size_hint().0);
    let mut some = Vec::with_capacity(BATCH_FILES);
    loop {
        some.extend(stats.by_ref().take(BATCH_FILES));
        if some.is_empty() {
            return reader.finish(leaves);
        }
        reader.scan(&some);
        some.clear();
    }
}

/// Reads the JSON statistics of files one after the other.
pub(crate) struct JsonReader {
    tree: Tree,
    /// Used if all columns of a string are wanted.
    templates: Option<StatsTemplates>,
    /// ValueSpans in the strings that are being read.
    spans: ValueSpans,
    num_records: Int64Builder,
    tight_bounds: BooleanBuilder,
    columns: Vec<Bounds>,
    to_the_end: bool,
    /// Room for a string without its escapes.
    scratch: String,
}

impl JsonReader {
    /// A reader for skipping, with room for about `rows` files. It reads only up to the bounds, unless one is missing, or
    /// `to_the_end`.
    pub(crate) fn for_skipping(leaves: &[Leaf], to_the_end: bool, rows: usize) -> Self {
        Self::new(leaves, Margin::Safe, to_the_end, 1, rows)
    }

    /// A reader with room for `rows` files; it reads at most `together` files together.
    fn new(leaves: &[Leaf], margin: Margin, to_the_end: bool, together: usize, rows: usize) -> Self {
        Self {
            tree: Tree::new(leaves),
            // For a few columns it is faster to skip the others.
            templates: (margin == Margin::None && to_the_end).then(StatsTemplates::default),
            spans: ValueSpans::new(leaves.len(), together),
            num_records: Int64Builder::with_capacity(rows),
            tight_bounds: BooleanBuilder::with_capacity(rows),
            columns: leaves.iter().map(|leaf| Bounds::new(leaf, margin, rows)).collect(),
            to_the_end,
            scratch: String::new(),
        }
    }

    /// Reads the statistics of the next file.
    pub(crate) fn read(&mut self, text: Option<&str>) {
        self.scan(&[text.map(Scanner::new)]);
    }

    /// Reads the statistics of the next file from a JSON string; `None` if it is not a JSON string.
    pub(crate) fn read_quoted(&mut self, quoted: Option<&[u8]>) -> Option<()> {
        let Some(quoted) = quoted else {
            self.scan(&[None]);
            return Some(());
        };
        let quoted = simdutf8::basic::from_utf8(quoted).ok()?;
        let inside = quoted.strip_prefix('"')?.strip_suffix('"')?;
        if let Some(json) = Scanner::of_inside(inside) {
            self.scan(&[Some(json)]);
            return Some(());
        }
        let mut text = std::mem::take(&mut self.scratch);
        unescape(quoted, &mut text)?;
        self.scan(&[Some(Scanner::new(&text))]);
        self.scratch = text;
        Some(())
    }

    /// Reads the statistics of some files together.
    fn scan(&mut self, files: &[Option<Scanner<'_>>]) {
        for (file, json) in files.iter().enumerate() {
            self.spans.begin(file);
            if let Some(json) = json {
                self.find(json.clone());
            }
        }
        let mut texts = [""; BATCH_FILES];
        texts.iter_mut().zip(files).for_each(|(text, json)| *text = json.as_ref().map_or("", Scanner::text));
        let texts = texts.get(..files.len()).unwrap_or_default();
        let values = |number| self.spans.values(number, texts);
        values(NUM_RECORDS).for_each(|value| self.num_records.append_option(value.and_then(count)));
        values(TIGHT_BOUNDS).for_each(|value| self.tight_bounds.append_option(value.and_then(truth)));
        for (leaf, column) in self.columns.iter_mut().enumerate() {
            let values = |member| self.spans.values(number_of(leaf, member), texts);
            column.extend(values(Member::Min), values(Member::Max), values(Member::NullCount));
        }
    }

    fn find(&mut self, json: Scanner<'_>) {
        let Self { tree, templates, spans, .. } = self;
        if let Some(templates) = templates
            && templates.find(json.text(), spans).is_some()
        {
            return;
        }
        spans.clear();
        match (tree.find(json.clone(), spans, self.to_the_end), templates) {
            // Unreadable statistics count as missing, also the values before the fault.
            (None, _) => spans.clear(),
            (Some(()), Some(templates)) => templates.learn(json, tree),
            (Some(()), None) => {}
        }
    }

    /// All statistics; `leaves`: those that the reader was made for.
    pub(crate) fn finish(mut self, leaves: &[Leaf]) -> Result<StatsColumns> {
        let leaves = leaves.iter().zip(self.columns);
        let leaves = leaves.map(|(leaf, column)| column.finish(&leaf.data_type)).collect::<Result<_>>()?;
        let (num_records, tight_bounds) = (self.num_records.finish(), self.tight_bounds.finish());
        Ok(StatsColumns { num_records, tight_bounds, leaves })
    }
}

/// Reads the typed statistics of a checkpoint.
pub fn from_struct(stats: &StructArray, leaves: &[Leaf]) -> Result<StatsColumns> {
    let typed = TypedColumns::new(stats, leaves.len());
    let counts = |name: &str, path: &[String]| {
        let counts = typed.find(name, path).and_then(|a| cast(&a, &ArrowType::Int64).ok());
        let counts = counts.as_ref().and_then(|a| a.as_primitive_opt::<Int64Type>());
        // A negative number is not a count.
        counts.map_or_else(|| Int64Array::new_null(stats.len()), |a| a.unary_opt(|n| (n >= 0).then_some(n)))
    };
    let leaves = leaves.iter().map(|leaf| {
        let target = to_arrow_type(&DataType::Primitive(leaf.data_type.clone()));
        let bound = |name: &str, upper: bool| {
            let column = typed.find(name, &leaf.path);
            typed_bound(column, leaf, &target, upper).unwrap_or_else(|| new_null_array(&target, stats.len()))
        };
        LeafBounds {
            min: bound("minValues", false),
            max: bound("maxValues", true),
            null_count: counts("nullCount", &leaf.path),
        }
    });
    let tight_bounds = stats.column_by_name("tightBounds").and_then(|a| a.as_boolean_opt()).cloned();
    Ok(StatsColumns {
        leaves: leaves.collect(),
        num_records: counts("numRecords", &[]),
        tight_bounds: tight_bounds.unwrap_or_else(|| BooleanArray::new_null(stats.len())),
    })
}

/// Whether a column was a `float` before its type was widened.
pub(crate) fn was_float(field: &StructField) -> bool {
    let changes = field.metadata.get("delta.typeChanges").and_then(|c| c.as_array());
    changes.is_some_and(|changes| changes.iter().any(|c| c.get("fromType").is_some_and(|t| t == "float")))
}

/// The columns of typed statistics, with the nulls of the structs around them.
pub(super) struct TypedColumns<'s> {
    stats: &'s StructArray,
    /// All columns below each member by their paths, if so many are wanted that a search for each would take longer.
    all: Option<HashMap<String, HashMap<Vec<String>, ArrayRef>>>,
}

/// Up to this many columns are searched one by one.
const SMALL_COLUMNS_THRESHOLD: usize = 8;

impl<'s> TypedColumns<'s> {
    /// The columns of `stats`, of which `wanted` columns will be asked for.
    pub(super) fn new(stats: &'s StructArray, wanted: usize) -> Self {
        let below = |name: &str| {
            let mut columns = HashMap::new();
            if let Some(member) = child(stats, name) {
                add_columns(&member, &mut Vec::new(), &mut columns);
            }
            (name.to_owned(), columns)
        };
        let all = (wanted > SMALL_COLUMNS_THRESHOLD).then(|| ["minValues", "maxValues", "nullCount"].map(below).into());
        Self { stats, all }
    }

    /// The column at `path` below a member.
    pub(super) fn find(&self, member: &str, path: &[String]) -> Option<ArrayRef> {
        match self.all.as_ref().and_then(|all| all.get(member)) {
            Some(columns) => columns.get(path).cloned(),
            None => {
                path.iter().try_fold(child(self.stats, member)?, |parent, name| child(parent.as_struct_opt()?, name))
            }
        }
    }
}

fn child(parent: &StructArray, name: &str) -> Option<ArrayRef> {
    parent.column_by_name(name).and_then(|column| with_nulls_of(parent, column))
}

/// The column with the nulls of its struct.
fn with_nulls_of(parent: &StructArray, column: &ArrayRef) -> Option<ArrayRef> {
    match parent.nulls().filter(|nulls| nulls.null_count() > 0) {
        Some(nulls) => arrow_select::nullif::nullif(column, &BooleanArray::new(!nulls.inner(), None)).ok(),
        None => Some(column.clone()),
    }
}

/// Adds `array` and all columns below it. Of columns with the same name the first counts.
fn add_columns(array: &ArrayRef, path: &mut Vec<String>, columns: &mut HashMap<Vec<String>, ArrayRef>) {
    if let Some(parent) = array.as_struct_opt() {
        for (name, column) in parent.column_names().into_iter().zip(parent.columns()) {
            path.push(name.to_owned());
            if let Some(column) = with_nulls_of(parent, column).filter(|_| !columns.contains_key(path)) {
                add_columns(&column, path, columns);
            }
            path.pop();
        }
    }
    columns.insert(path.clone(), array.clone());
}

fn typed_bound(column: Option<ArrayRef>, leaf: &Leaf, target: &ArrowType, upper: bool) -> Option<ArrayRef> {
    let array = retyped(column?, target)?;
    let array = match &leaf.data_type {
        PrimitiveType::Double if leaf.was_float => widen_floats(&array, upper),
        PrimitiveType::Decimal { .. } => {
            let values = array.as_primitive_opt::<Decimal128Type>()?;
            let widened = values.unary::<_, Decimal128Type>(|v| near_double(v, upper));
            Arc::new(widened.with_data_type(array.data_type().clone())) as ArrayRef
        }
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

/// The values cast to the present type of the column, if that loses nothing.
pub(super) fn retyped(array: ArrayRef, target: &ArrowType) -> Option<ArrayRef> {
    if array.data_type() == target { Some(array) } else { widen(&array, target) }
}

/// Bounds of floats that were read as doubles from the floats' text.
pub(super) fn widen_floats(array: &ArrayRef, upper: bool) -> ArrayRef {
    match array.as_primitive_opt::<Float64Type>() {
        Some(values) => Arc::new(values.unary::<_, Float64Type>(|value| near_float(value, upper))),
        None => array.clone(),
    }
}

/// Casts that keep the order and lose nothing, or no more than the bounds are widened by. A value that does not fit is null.
fn widen(array: &ArrayRef, target: &ArrowType) -> Option<ArrayRef> {
    use ArrowType as A;
    if let (A::Timestamp(_, stored_zone), A::Timestamp(TimeUnit::Microsecond, zone)) = (array.data_type(), target) {
        // The number does not change: statistics of both types count from 1970 in UTC.
        let micros = cast(array, &A::Timestamp(TimeUnit::Microsecond, stored_zone.clone())).ok()?;
        let micros = micros.as_primitive_opt::<TimestampMicrosecondType>()?.clone();
        return Some(Arc::new(micros.with_timezone_opt(zone.clone())));
    }
    let allowed = match (array.data_type(), target) {
        (A::Int8 | A::Int16 | A::Int32 | A::Int64, A::Int8 | A::Int16 | A::Int32 | A::Int64 | A::Decimal128(..))
        | (A::Int8 | A::Int16 | A::Int32 | A::Float32, A::Float64)
        | (A::Date32, A::Timestamp(TimeUnit::Microsecond, None))
        | (A::LargeUtf8 | A::Utf8View, A::Utf8) => true,
        (A::Decimal128(_, from) | A::Decimal64(_, from) | A::Decimal32(_, from), A::Decimal128(_, to)) => from <= to,
        (A::Timestamp(_, zone), A::Timestamp(TimeUnit::Microsecond, target)) => {
            // A timestamp does not depend on the zone that it is shown in; a cast between zones would need to know the zones.
            let micros = cast(array, &A::Timestamp(TimeUnit::Microsecond, zone.clone())).ok()?;
            let micros = micros.as_primitive_opt::<TimestampMicrosecondType>()?.clone();
            return Some(Arc::new(micros.with_timezone_opt(target.clone())));
        }
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

/// The bounds of a column, read from their spans.
struct Bounds {
    leaf: Leaf,
    margin: Margin,
    min: Values,
    max: Values,
    null_count: Int64Builder,
}

impl Bounds {
    fn new(leaf: &Leaf, margin: Margin, rows: usize) -> Self {
        let values = || Values::new(&leaf.data_type, rows);
        let null_count = Int64Builder::with_capacity(rows);
        Self { leaf: leaf.clone(), margin, min: values(), max: values(), null_count }
    }

    fn extend<'t>(
        &mut self,
        min: impl Iterator<Item = Option<StatsValue<'t>>>,
        max: impl Iterator<Item = Option<StatsValue<'t>>>,
        null_count: impl Iterator<Item = Option<StatsValue<'t>>>,
    ) {
        let Self { leaf, margin, .. } = self;
        self.min.extend(min, leaf, *margin, false);
        self.max.extend(max, leaf, *margin, true);
        null_count.for_each(|value| self.null_count.append_option(value.and_then(count)));
    }

    fn finish(mut self, data_type: &PrimitiveType) -> Result<LeafBounds> {
        let target = to_arrow_type(&DataType::Primitive(data_type.clone()));
        let finish = |array: ArrayRef| -> Result<ArrayRef> {
            if array.data_type() == &target { Ok(array) } else { Ok(cast(&array, &target)?) }
        };
        let (min, max) = (finish(self.min.finish())?, finish(self.max.finish())?);
        Ok(LeafBounds { min, max, null_count: self.null_count.finish() })
    }
}
