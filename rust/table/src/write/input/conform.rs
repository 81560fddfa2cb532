//! Converts a caller's batch to the table's schema.
//!
//! Columns are found by name (exactly, or else the only one that differs in case) in any order and at any depth. Missing
//! nullable ones become null, except partition columns, which decide the folder of a row. Values change their Arrow type
//! only without loss (`conversion`). Everything else is refused with the column, both types, the first row and
//! what to do: nothing is changed silently. The result has the physical names and field ids of the data files,
//! and no `void` columns, which files do not have.
//!
//! Invariant: a conformed batch has exactly the schema [`Conformer::schema`] and no null where the table allows none
//! (`write::conform`).
//!
//! PROTOCOL.md: "Schema Serialization Format", "Column Mapping", "Column Invariants".

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, ListArray, MapArray, OffsetSizeTrait, RecordBatch, RecordBatchOptions, StructArray,
    UInt64Array, new_null_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType as ArrowType, Field, FieldRef, Fields, Schema, SchemaRef};
use arrow_select::nullif::nullif;
use arrow_select::take::take;
use deltic_protocol::error::{Error, Result};
use deltic_protocol::scalar::wkb;
use deltic_protocol::schema::arrow::{table_type_name, to_arrow_type};
use deltic_protocol::schema::mapping::{ColumnMapping, field_id, nested_id};
use deltic_protocol::schema::{DataType, PrimitiveType, StructField, StructType};

use super::conversion::{Refusal, convert};
use super::variants;
use crate::shredded::{is_shredded, unshred};

/// Arrow metadata key under which the Parquet writer looks for a field id.
const PARQUET_FIELD_ID: &str = "PARQUET:field_id";

/// Column metadata by which the table computes a missing column.
const FILLED_BY_TABLE: [&str; 3] = ["CURRENT_DEFAULT", "delta.generationExpression", "delta.identity.start"];

/// Converts batches to one table schema.
#[derive(Debug)]
pub struct Conformer {
    columns: Vec<Column>,
    schema: SchemaRef,
    replaces_all_rows: bool,
}

impl Conformer {
    /// For a table with this schema, which has logical names and includes partition columns.
    ///
    /// # Errors
    /// `Corrupt` if the schema lacks physical names; `Unsupported` if no column of it, or of a struct in it, could be
    /// stored.
    pub fn new(schema: &StructType, mapping: ColumnMapping) -> Result<Self> {
        let columns = plan_struct(schema, mapping, "")?;
        let fields = stored_fields(&columns, "the table")?;
        Ok(Self { columns, schema: Arc::new(Schema::new(fields)), replaces_all_rows: false })
    }

    /// The Arrow schema of the batches that [`Conformer::conform`] returns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Refuses data without these columns, which would all go into the partition of nulls.
    #[must_use]
    pub fn with_partition_columns(mut self, names: &[String]) -> Self {
        for column in &mut self.columns {
            column.is_partition = names.contains(&column.name);
        }
        self
    }

    /// For a write that replaces all rows, and may replace the columns too: messages say so.
    #[must_use]
    pub fn replacing_all_rows(self, replaces_all_rows: bool) -> Self {
        Self { replaces_all_rows, ..self }
    }

    /// The rows of `batch` in the table's schema.
    ///
    /// # Errors
    /// `Invalid`, naming the column and the first row, if that cannot be done without loss.
    pub fn conform(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        self.conform_from(batch, 0)
    }

    /// As [`Conformer::conform`], for a batch after `first_row` other rows, which row numbers in messages include.
    ///
    /// # Errors
    /// As [`Conformer::conform`].
    pub fn conform_from(&self, batch: &RecordBatch, first_row: u64) -> Result<RecordBatch> {
        let schema = batch.schema_ref();
        let rows = batch.num_rows();
        let columns = conform_columns(&self.columns, schema.fields(), batch.columns(), None, rows)
            .map_err(|fault| fault.into_error(first_row, self.replaces_all_rows))?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

/// The part of `schema` that data files have: without `void` columns at any depth.
pub fn stored_schema(schema: &StructType) -> StructType {
    let stored = |field: &StructField| -> Option<StructField> {
        let data_type = match &field.data_type {
            DataType::Primitive(PrimitiveType::Void) => return None,
            DataType::Struct(inner) => DataType::Struct(Arc::new(stored_schema(inner))),
            other @ (DataType::Primitive(_)
            | DataType::Array(_)
            | DataType::Map(_)
            | DataType::Variant
            | DataType::Foreign(_)) => other.clone(),
        };
        Some(StructField { data_type, ..field.clone() })
    };
    StructType::new(schema.fields.iter().filter_map(stored).collect())
}

/// Why data cannot be converted.
#[derive(Debug)]
enum Fault {
    /// It concerns no single row.
    Whole(Error),
    /// It concerns the value at a position. The message is `before`, the row number, and `after`.
    Value { position: usize, before: String, after: String },
    /// The table does not have the column with this path.
    Unknown(String),
}

impl Fault {
    /// The same, with the position of the value around this one.
    fn inside(self, position_of: impl FnOnce(usize) -> usize) -> Self {
        match self {
            Self::Whole(error) => Self::Whole(error),
            Self::Value { position, before, after } => Self::Value { position: position_of(position), before, after },
            Self::Unknown(path) => Self::Unknown(path),
        }
    }

    fn into_error(self, first_row: u64, replaces_all_rows: bool) -> Error {
        match self {
            Self::Whole(error) => error,
            Self::Value { position, before, after } => {
                let row = first_row.saturating_add(position as u64);
                Error::invalid(format!("{before} row {row} (the first is 0) {after}"))
            }
            Self::Unknown(path) => {
                let other = match replaces_all_rows {
                    true => {
                        ", or with schema_mode=\"overwrite\" (overwriteSchema), by which the table gets the columns of the \
                         data instead of its own"
                    }
                    false => "",
                };
                Error::invalid(format!(
                    "the data has a column `{path}` that the table does not have; drop it from the data, or write with \
                     schema_mode=\"merge\" (in Spark, the option mergeSchema), which adds it{other}"
                ))
            }
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Whole(error)
    }
}

impl From<ArrowError> for Fault {
    fn from(error: ArrowError) -> Self {
        Self::Whole(error.into())
    }
}

type Conformed<T> = std::result::Result<T, Fault>;

/// Plan for converting a column or a nested type, made before any data is read.
#[derive(Debug)]
struct Column {
    /// The logical name.
    name: String,
    /// The logical names from the top level, for messages.
    path: String,
    /// The table type, for messages.
    data_type: DataType,
    /// The Arrow field of the result. `None` for `void`.
    field: Option<FieldRef>,
    nullable: bool,
    filled_by_table: bool,
    is_partition: bool,
    inner: Vec<Column>,
}

/// The nearest column of the schema that contains a nested type, and the key of the type in that column's nested ids.
#[derive(Debug, Clone)]
struct NestedKey<'a> {
    column: &'a StructField,
    mapping: ColumnMapping,
    key: String,
}

impl<'a> NestedKey<'a> {
    fn of(column: &'a StructField, mapping: ColumnMapping) -> Result<Self> {
        Ok(Self { column, mapping, key: mapping.physical_name(column)?.to_owned() })
    }

    /// The key of an element, key or value of this type.
    fn inner(&self, name: &str) -> Self {
        Self { key: format!("{}.{name}", self.key), ..self.clone() }
    }

    /// The Arrow metadata from which the Parquet writer takes the field id.
    fn metadata(&self) -> Result<HashMap<String, String>> {
        let id = match self.mapping {
            ColumnMapping::None => None,
            mapping if mapping.physical_name(self.column)? == self.key => field_id(self.column),
            _ => nested_id(self.column, &self.key),
        };
        Ok(id.map(|id| (PARQUET_FIELD_ID.to_owned(), id.to_string())).into_iter().collect())
    }
}

fn plan_struct(schema: &StructType, mapping: ColumnMapping, path: &str) -> Result<Vec<Column>> {
    let plan = |field: &StructField| -> Result<Column> {
        let path = if path.is_empty() { field.name.clone() } else { format!("{path}.{}", field.name) };
        let nested = NestedKey::of(field, mapping)?;
        let mut column = plan(&field.name, path, (&field.data_type, field.nullable), &nested)?;
        column.filled_by_table = FILLED_BY_TABLE.iter().any(|key| field.metadata.contains_key(*key));
        column.field = column.field.map(|stored| Arc::new(stored.as_ref().clone().with_name(&nested.key)));
        Ok(column)
    };
    schema.fields.iter().map(plan).collect()
}

fn plan(name: &str, path: String, (data_type, nullable): (&DataType, bool), nested: &NestedKey<'_>) -> Result<Column> {
    let (arrow, inner) = match data_type {
        DataType::Primitive(PrimitiveType::Void) => (None, Vec::new()),
        DataType::Primitive(_) => (Some(to_arrow_type(data_type)), Vec::new()),
        DataType::Variant => {
            let binary = DataType::Primitive(PrimitiveType::Binary);
            let part = |name: &str| plan(name, format!("{path}.{name}"), (&binary, false), &nested.inner(name));
            (Some(to_arrow_type(data_type)), vec![part("metadata")?, part("value")?])
        }
        DataType::Foreign(foreign) => {
            return Err(Error::unsupported(
                foreign.to_string(),
                format!("the column `{path}` has the type {foreign}, which deltic does not write"),
            ));
        }
        DataType::Struct(schema) => {
            let inner = plan_struct(schema, nested.mapping, &path)?;
            (Some(ArrowType::Struct(stored_fields(&inner, &format!("the struct `{path}`"))?)), inner)
        }
        DataType::Array(array) => {
            let within = |name: &str, of| plan(name, format!("{path}.{name}"), of, &nested.inner(name));
            let inner = within("element", (&array.element, array.contains_null))?;
            (Some(ArrowType::List(stored_inside(&inner)?)), vec![inner])
        }
        DataType::Map(map) => {
            let within = |name: &str, of| plan(name, format!("{path}.{name}"), of, &nested.inner(name));
            let (key, value) =
                (within("key", (&map.key, false))?, within("value", (&map.value, map.value_contains_null))?);
            let entries = ArrowType::Struct(Fields::from(vec![stored_inside(&key)?, stored_inside(&value)?]));
            (Some(ArrowType::Map(Arc::new(Field::new("key_value", entries, false)), false)), vec![key, value])
        }
    };
    let metadata = nested.metadata()?;
    Ok(Column {
        name: name.to_owned(),
        path,
        data_type: data_type.clone(),
        field: arrow.map(|arrow| Arc::new(Field::new(name, arrow, nullable).with_metadata(metadata))),
        nullable,
        filled_by_table: false,
        is_partition: false,
        inner,
    })
}

fn stored_inside(column: &Column) -> Result<FieldRef> {
    column.field.clone().ok_or_else(|| {
        Error::unsupported("void", format!("`{}` is void, which arrays and maps cannot hold in files", column.path))
    })
}

fn stored_fields(columns: &[Column], whole: &str) -> Result<Fields> {
    let fields: Fields = columns.iter().filter_map(|c| c.field.clone()).collect();
    if fields.is_empty() {
        return Err(Error::unsupported("void", format!("{whole} has no column that a data file could hold; add one")));
    }
    Ok(fields)
}

/// Converts the columns below `parent` to the stored columns.
fn conform_columns(
    columns: &[Column],
    fields: &Fields,
    arrays: &[ArrayRef],
    parent: Option<&NullBuffer>,
    rows: usize,
) -> Conformed<Vec<ArrayRef>> {
    let sources = match_columns(columns, fields)?;
    let mut conformed = Vec::with_capacity(columns.len());
    for (column, source) in columns.iter().zip(sources) {
        let array = match source.and_then(|i| arrays.get(i)) {
            Some(array) => conform_column(column, array, parent)?,
            None => missing(column, rows)?,
        };
        conformed.extend(array);
    }
    Ok(conformed)
}

/// For each column, the position of its data, if there is any.
fn match_columns(columns: &[Column], fields: &Fields) -> Conformed<Vec<Option<usize>>> {
    let mut by_name: HashMap<&str, usize> = HashMap::with_capacity(fields.len());
    for (position, field) in fields.iter().enumerate() {
        if by_name.insert(field.name(), position).is_some() {
            let message = format!("the data has two columns `{}`; rename or drop one", field.name());
            return Err(Error::invalid(message).into());
        }
    }
    let mut sources: Vec<Option<usize>> = columns.iter().map(|c| by_name.remove(c.name.as_str())).collect();
    for (column, source) in columns.iter().zip(&mut sources).filter(|(_, source)| source.is_none()) {
        let lower = column.name.to_lowercase();
        let hits: Vec<&str> = by_name.keys().filter(|name| name.to_lowercase() == lower).copied().collect();
        match hits.as_slice() {
            [] => {}
            [name] => *source = by_name.remove(name),
            [a, b, ..] => {
                let path = &column.path;
                let message = format!(
                    "the data's columns `{a}` and `{b}` may both be the table's `{path}`; rename one exactly so"
                );
                return Err(Error::invalid(message).into());
            }
        }
    }
    // The first one in the data's order, so that the message does not depend on hashing.
    match by_name.into_iter().min_by_key(|(_, position)| *position) {
        None => Ok(sources),
        Some((name, _)) => {
            let struct_path = columns.first().and_then(|c| c.path.strip_suffix(&c.name)).unwrap_or_default();
            Err(Fault::Unknown(format!("{struct_path}{name}")))
        }
    }
}

fn missing(column: &Column, rows: usize) -> Result<Option<ArrayRef>> {
    let path = &column.path;
    if column.filled_by_table {
        return Err(Error::invalid(format!(
            "the data has no column `{path}`, whose value the table defines; add the column with its values to the data"
        )));
    }
    if column.is_partition {
        return Err(Error::invalid(format!(
            "the data has no column `{path}`, by which the table is partitioned; add it to the data, with nulls if \
             that is meant"
        )));
    }
    match &column.field {
        None => Ok(None),
        Some(field) if column.nullable => Ok(Some(new_null_array(field.data_type(), rows))),
        Some(_) => {
            Err(Error::invalid(format!("the data has no column `{path}`, which may not be null; add it to the data")))
        }
    }
}

/// The stored values of a column, null wherever `parent` is.
fn conform_column(column: &Column, array: &ArrayRef, parent: Option<&NullBuffer>) -> Conformed<Option<ArrayRef>> {
    let source = array.data_type();
    let array = decode(array).map_err(|e| refuse(column, source, "pass it without that encoding").caused_by(e))?;
    let Some(field) = &column.field else {
        if array.logical_null_count() < array.len() {
            return Err(refuse(column, source, "a void column has only nulls; drop it from the data").into());
        }
        return Ok(None);
    };
    // Below a null struct there is no value: the contents of buffers there must be neither checked nor written.
    let array = match parent.filter(|nulls| nulls.null_count() > 0) {
        Some(nulls) => nullif(&array, &BooleanArray::new(!nulls.inner(), None))?,
        None => array,
    };
    let conformed = match (array.data_type(), &column.data_type) {
        (ArrowType::Null, _) => new_null_array(field.data_type(), array.len()),
        (ArrowType::Struct(parts), DataType::Variant) if is_shredded(parts) => conform_shredded(column, field, &array)?,
        (ArrowType::Struct(fields), DataType::Struct(_) | DataType::Variant) => {
            let source = array.as_struct();
            let columns = conform_columns(&column.inner, fields, source.columns(), source.nulls(), source.len())?;
            let ArrowType::Struct(fields) = field.data_type() else { return Err(misplanned(column).into()) };
            let made = StructArray::try_new(fields.clone(), columns, source.nulls().cloned())?;
            if column.data_type == DataType::Variant {
                variants::check(&made).map_err(|(row, why)| no_value(column, row, "a variant", &why))?;
            }
            Arc::new(made)
        }
        (ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View, DataType::Variant) => {
            let ArrowType::Struct(fields) = field.data_type() else { return Err(misplanned(column).into()) };
            let read = variants::from_json(&array, fields)?;
            read.map_err(|(row, why)| no_value(column, row, "JSON, of which strings become variants", &why))?
        }
        (ArrowType::List(_), DataType::Array(_)) => conform_list::<i32>(column, field, &array)?,
        (source, DataType::Array(_)) => match element_of(source) {
            Some(element) => {
                // Nulls are checked below, where the row is known, and only in elements that belong to a list.
                let element = Arc::new(element.as_ref().clone().with_nullable(true));
                conform_list::<i64>(column, field, &cast(&array, &ArrowType::LargeList(element))?)?
            }
            None => return Err(refuse(column, source, "pass a list").into()),
        },
        (ArrowType::Map(_, _), DataType::Map(_)) => conform_map(column, field, &array)?,
        (_, DataType::Primitive(target)) => {
            let converted = convert(&array, target).map_err(|refusal| refuse_value(column, source, refusal))?;
            if let (PrimitiveType::Geometry { .. } | PrimitiveType::Geography { .. }, Some(bytes)) =
                (target, converted.as_binary_opt::<i32>())
            {
                wkb::check(bytes).map_err(|(row, why)| no_value(column, row, "well-known binary", why))?;
            }
            converted
        }
        (source, DataType::Struct(_) | DataType::Variant | DataType::Map(_) | DataType::Foreign(_)) => {
            return Err(refuse(column, source, "pass a value of that structure").into());
        }
    };
    check_nulls(column, &conformed, parent)?;
    Ok(Some(conformed))
}

/// Refuses nulls in a column that is not nullable, except where its parent is null.
fn check_nulls(column: &Column, array: &ArrayRef, parent: Option<&NullBuffer>) -> Conformed<()> {
    let nulls = array.null_count().saturating_sub(parent.map_or(0, NullBuffer::null_count));
    if column.nullable || nulls == 0 {
        return Ok(());
    }
    let own = |row: &usize| array.is_null(*row) && parent.is_none_or(|parent| parent.is_valid(*row));
    Err(Fault::Value {
        position: (0..array.len()).find(own).unwrap_or(0),
        before: format!("the column `{}` may not be null, but {nulls} of its values are, the first in", column.path),
        after: "of the data; fill them in, or drop those rows".to_owned(),
    })
}

/// Decodes dictionaries and run-end encoded arrays.
fn decode(array: &ArrayRef) -> std::result::Result<ArrayRef, ArrowError> {
    let mut array = Arc::clone(array);
    loop {
        array = match array.data_type() {
            ArrowType::Dictionary(_, values) => cast(&array, values)?,
            ArrowType::RunEndEncoded(_, values) => cast(&array, values.data_type())?,
            _ => return Ok(array),
        };
    }
}

/// Converts a shredded variant to a plain one, since each file has its own typed columns, or none.
fn conform_shredded(column: &Column, field: &FieldRef, array: &ArrayRef) -> Conformed<ArrayRef> {
    let ArrowType::Struct(parts) = field.data_type() else { return Err(misplanned(column).into()) };
    let refuse = |e| refuse(column, array.data_type(), "its parts do not make variants").caused_by(e);
    let whole = unshred(array, None, parts).map_err(refuse)?;
    variants::check(whole.as_struct()).map_err(|(row, why)| no_value(column, row, "a variant", &why))?;
    Ok(whole)
}

fn element_of(list: &ArrowType) -> Option<FieldRef> {
    match list {
        ArrowType::List(element)
        | ArrowType::LargeList(element)
        | ArrowType::FixedSizeList(element, _)
        | ArrowType::ListView(element)
        | ArrowType::LargeListView(element) => Some(Arc::clone(element)),
        _ => None,
    }
}

fn conform_list<O: OffsetSizeTrait>(column: &Column, field: &FieldRef, array: &ArrayRef) -> Conformed<ArrayRef> {
    let list = array.as_list_opt::<O>().ok_or_else(|| misplanned(column))?;
    let array = reachable(array, list.offsets(), list.nulls())?;
    let list = array.as_list::<O>();
    let (ArrowType::List(target), [element]) = (field.data_type(), column.inner.as_slice()) else {
        return Err(misplanned(column).into());
    };
    let values = window(list.values(), list.offsets());
    let offsets = narrow_offsets(column, list.data_type(), list.offsets())?;
    let values = conform_column(element, &values, None)
        .map_err(|fault| fault.inside(|at| list_of(&offsets, at)))?
        .ok_or_else(|| misplanned(column))?;
    Ok(Arc::new(ListArray::try_new(Arc::clone(target), offsets, values, list.nulls().cloned())?))
}

fn conform_map(column: &Column, field: &FieldRef, array: &ArrayRef) -> Conformed<ArrayRef> {
    let map = array.as_map_opt().ok_or_else(|| misplanned(column))?;
    let array = reachable(array, map.offsets(), map.nulls())?;
    let map = array.as_map();
    let (ArrowType::Map(target, ordered), [key, value]) = (field.data_type(), column.inner.as_slice()) else {
        return Err(misplanned(column).into());
    };
    let ArrowType::Struct(fields) = target.data_type() else { return Err(misplanned(column).into()) };
    let offsets = narrow_offsets(column, map.data_type(), map.offsets())?;
    let inner = |plan: &Column, array: &ArrayRef| -> Conformed<ArrayRef> {
        conform_column(plan, &window(array, map.offsets()), None)
            .map_err(|fault| fault.inside(|at| list_of(&offsets, at)))?
            .ok_or_else(|| misplanned(column).into())
    };
    let entries = vec![inner(key, map.keys())?, inner(value, map.values())?];
    let entries = StructArray::try_new(fields.clone(), entries, None)?;
    Ok(Arc::new(MapArray::try_new(Arc::clone(target), offsets, entries, map.nulls().cloned(), *ordered)?))
}

/// Converts offsets to 32 bits, beginning at 0: the Parquet writer takes no others.
fn narrow_offsets<O: OffsetSizeTrait>(
    column: &Column,
    source: &ArrowType,
    offsets: &OffsetBuffer<O>,
) -> Conformed<OffsetBuffer<i32>> {
    let first = offsets.first().as_usize();
    let narrowed = offsets.iter().map(|offset| i32::try_from(offset.as_usize().checked_sub(first)?).ok());
    let narrowed = narrowed.collect::<Option<Vec<i32>>>();
    let advice = "a row can hold 2,147,483,647 elements at most; spread them over several rows";
    Ok(OffsetBuffer::new(narrowed.ok_or_else(|| refuse(column, source, advice))?.into()))
}

/// The position of the list or map that has the element at a position.
fn list_of(offsets: &OffsetBuffer<i32>, element: usize) -> usize {
    let before = offsets.partition_point(|offset| usize::try_from(*offset).is_ok_and(|offset| offset <= element));
    before.saturating_sub(1)
}

/// The same lists without elements below null lists, which are no values.
fn reachable<O: OffsetSizeTrait>(
    array: &ArrayRef,
    offsets: &OffsetBuffer<O>,
    nulls: Option<&NullBuffer>,
) -> Conformed<ArrayRef> {
    let hidden = nulls.is_some_and(|nulls| offsets.lengths().zip(nulls).any(|(length, valid)| !valid && length > 0));
    if !hidden {
        return Ok(Arc::clone(array));
    }
    Ok(take(array, &UInt64Array::from_iter_values(0..array.len() as u64), None)?)
}

/// The elements between the first and the last offset.
fn window<O: OffsetSizeTrait>(values: &ArrayRef, offsets: &OffsetBuffer<O>) -> ArrayRef {
    let (start, end) = (offsets.first().as_usize(), offsets.last().as_usize());
    values.slice(start, end.saturating_sub(start))
}

fn types_of(column: &Column, source: &ArrowType) -> String {
    let (table, mut data) = (column.data_type.to_string(), table_type_name(source));
    if data == table {
        // Several Arrow types have the same name in Delta.
        data = format!("{data} (in Arrow {source})");
    }
    format!("the column `{}` is {table} in the table and {data} in the data", column.path)
}

fn refuse(column: &Column, source: &ArrowType, advice: &str) -> Error {
    Error::invalid(format!("{}; {advice}", types_of(column, source)))
}

fn refuse_value(column: &Column, source: &ArrowType, refusal: Refusal) -> Fault {
    let Refusal { advice, value, cause } = refusal;
    match (value, cause) {
        (Some((position, value)), _) => Fault::Value {
            position,
            before: format!("{};", types_of(column, source)),
            after: format!("of the data has {value}: {advice}"),
        },
        (None, Some(cause)) => Fault::Whole(refuse(column, source, &advice).caused_by(cause)),
        (None, None) => Fault::Whole(refuse(column, source, &advice)),
    }
}

/// The fault of bytes or text that are not a value of their column.
fn no_value(column: &Column, position: usize, what: &str, why: &str) -> Fault {
    Fault::Value {
        position,
        before: format!("the column `{}` is {} in the table;", column.path, column.data_type),
        after: format!("of the data is not {what}: {why}"),
    }
}

fn misplanned(column: &Column) -> Error {
    Error::internal(format!("the column `{}` was planned for another structure", column.path))
}
