//! Converts the columns of a file to the columns of the table.
//!
//! [`Adapter::new`] finds, for every requested column and at every depth, the file's column (by name, physical name or
//! field id), the leaves to decode and the conversion; [`Adapter::adapt`] applies that to decoded batches. Columns the
//! file lacks are null; partition columns come from the log, even if the file has them too. There are no predicates
//! and no I/O here.
//!
//! Invariant: a result has exactly the table's Arrow type, or there is an error naming the column.
//!
//! PROTOCOL.md: "Reader Requirements for Column Mapping", "Variant data in Parquet", "Row Tracking".

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Int64Array, LargeListArray, ListArray, MapArray, RecordBatch,
    RecordBatchOptions, StructArray, new_null_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType as ArrowType, Field, FieldRef, Fields, SchemaRef};
use deltic_protocol::error::{Error, Result};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::arrow::table_type_name;
use deltic_protocol::schema::mapping::ColumnMapping;
use deltic_protocol::schema::{DataType, PrimitiveType, StructField, StructType, with_article};

use super::cast::Conversion;
use super::file_columns::{FileColumns, parquet_id};
use crate::footer::calendar::Calendars;
use crate::scan::row_tracking::{DerivedRowTracking, Tracked};
use crate::shredded::{is_shredded, unshred};

/// The value that a column has in all rows of a file, by logical name.
pub(crate) type Constants = BTreeMap<String, Scalar>;

/// The values of a file's rows that come from the log.
#[derive(Debug, Default)]
pub(crate) struct LogValues {
    /// Partition values.
    pub(crate) constants: Constants,
    /// The requested columns of row tracking.
    pub(crate) tracked: BTreeMap<&'static str, Tracked>,
}

impl LogValues {
    /// Whether the decoder must return the positions of rows in the file.
    pub(crate) fn needs_positions(&self) -> bool {
        self.tracked.values().any(|tracked| tracked.derived.needs_positions())
    }
}

/// The columns of a file, by its footer.
#[derive(Debug, Default)]
pub(crate) struct FileSchema {
    /// The columns, in the types in which they are decoded.
    pub(crate) fields: Fields,
    pub(crate) calendars: Calendars,
}

/// Converts decoded batches of one file to batches of the requested columns.
#[derive(Debug)]
pub(crate) struct Adapter {
    schema: SchemaRef,
    columns: Vec<Column>,
    leaves: Vec<usize>,
}

#[derive(Debug)]
enum Column {
    /// A value from the log.
    Constant(Scalar, PrimitiveType),
    /// A column of row tracking: the decoded column at this position where it is not null, otherwise the derived value.
    Tracked { stored: Option<(usize, ColumnConversion)>, derived: DerivedRowTracking },
    /// The file does not have it.
    Missing,
    /// The decoded column at this position.
    File(usize, ColumnConversion),
}

/// How an array is converted to the table's type.
#[derive(Debug)]
enum ColumnConversion {
    Leaf(Conversion),
    /// For each field of the table, its position among the decoded children.
    Struct(Vec<Option<(usize, ColumnConversion)>>),
    List(Box<ColumnConversion>),
    Map(Box<ColumnConversion>, Box<ColumnConversion>),
    /// All columns of a shredded variant.
    Shredded,
}

/// A column to be found in the file, by the rules of a column mapping mode.
#[derive(Debug, Clone, Copy)]
struct RequestedColumn<'a> {
    field: &'a StructField,
    mapping: ColumnMapping,
}

/// The leaf of a file that a leaf of the table is read from, and how its values are converted.
#[derive(Debug)]
pub(crate) struct Leaf {
    /// The index among the file's leaves.
    pub(crate) index: usize,
    /// The type in the file.
    pub(crate) file_type: ArrowType,
    /// How its values are converted to the table's type.
    pub(crate) conversion: Conversion,
}

impl Adapter {
    /// Finds `columns` of the table, whose Arrow form is `schema`, in a file with the columns `file`.
    pub(crate) fn new(
        columns: &StructType,
        schema: SchemaRef,
        mapping: ColumnMapping,
        file: &FileSchema,
        log_values: &LogValues,
    ) -> Result<Self> {
        let has_ids = file.fields.is_empty() || file.fields.iter().any(|field| parquet_id(field).is_some());
        if mapping == ColumnMapping::Id && !has_ids {
            return Err(Error::corrupt(
                "the file has no field ids although the table finds columns by id; rewrite the file with ids",
            ));
        }
        let tracked = |field: &StructField| log_values.tracked.get(field.name.as_str());
        // Columns of row tracking are found in files by name; they have no field ids.
        let stored = columns.fields.iter().map(|field| {
            let name = tracked(field)?.stored.as_ref()?;
            Some(StructField::new(name, DataType::LONG, true))
        });
        let stored: Vec<Option<StructField>> = stored.collect();
        let requested = columns.fields.iter().zip(&stored).filter_map(|(field, stored)| match stored {
            Some(stored) => Some(RequestedColumn { field: stored, mapping: ColumnMapping::None }),
            None if tracked(field).is_some() || log_values.constants.contains_key(&field.name) => None,
            None => Some(RequestedColumn { field, mapping }),
        });
        let mut resolver = Resolver { mapping, calendars: &file.calendars, leaves: Vec::new() };
        let mut resolved = resolver.children(&requested.collect::<Vec<_>>(), &file.fields, 0, "")?.into_iter();
        let columns = columns.fields.iter().zip(&stored).map(|(field, stored)| {
            if let Some(tracked) = tracked(field) {
                let stored = if stored.is_some() { resolved.next().flatten() } else { None };
                return Ok(Column::Tracked { stored, derived: tracked.derived });
            }
            match (log_values.constants.get(&field.name), &field.data_type) {
                (Some(value), DataType::Primitive(primitive)) => Ok(Column::Constant(value.clone(), primitive.clone())),
                (Some(_), other) => {
                    Err(Error::corrupt(format!("the partition column `{}` is {}", field.name, with_article(other))))
                }
                (None, _) => Ok(match resolved.next().flatten() {
                    Some((position, conversion)) => Column::File(position, conversion),
                    None => Column::Missing,
                }),
            }
        });
        let columns = columns.collect::<Result<_>>()?;
        resolver.leaves.sort_unstable();
        resolver.leaves.dedup();
        Ok(Self { schema, columns, leaves: resolver.leaves })
    }

    /// Indexes of the file's leaves that must be decoded, in order.
    pub(crate) fn leaves(&self) -> &[usize] {
        &self.leaves
    }

    /// Whether decoded batches must have the positions of their rows in the file as their last column.
    pub(crate) fn needs_positions(&self) -> bool {
        self.columns.iter().any(|column| matches!(column, Column::Tracked { derived, .. } if derived.needs_positions()))
    }

    /// The requested columns, from a batch with just the leaves of [`Adapter::leaves`] and, if needed, positions as its
    /// last column.
    pub(crate) fn adapt(&self, decoded: &RecordBatch) -> Result<RecordBatch> {
        self.build(decoded.columns(), decoded.num_rows())
    }

    /// `rows` rows of the requested columns if none of them is in the file.
    pub(crate) fn constant(&self, rows: usize) -> Result<RecordBatch> {
        self.build(&[], rows)
    }

    fn build(&self, decoded: &[ArrayRef], rows: usize) -> Result<RecordBatch> {
        let convert = |position: usize, conversion: &ColumnConversion, field: &FieldRef| -> Result<ArrayRef> {
            let array =
                decoded.get(position).ok_or_else(|| Error::internal(format!("column {position} was not decoded")))?;
            conversion.apply(array, None, field.data_type()).map_err(|e| cannot_hold(field, e))
        };
        let build = |(column, field): (&Column, &FieldRef)| -> Result<ArrayRef> {
            match column {
                Column::Constant(value, primitive) => value.to_array(primitive, rows),
                Column::Missing => Ok(new_null_array(field.data_type(), rows)),
                Column::File(position, conversion) => convert(*position, conversion, field),
                Column::Tracked { stored, derived } => {
                    let stored = stored
                        .as_ref()
                        .map(|(position, conversion)| convert(*position, conversion, field))
                        .transpose()?;
                    let stored = stored.as_ref().and_then(as_int64);
                    Ok(Arc::new(derived.fill(stored, decoded.last().and_then(as_int64), rows)?))
                }
            }
        };
        let columns = self.columns.iter().zip(self.schema.fields()).map(build).collect::<Result<Vec<_>>>()?;
        if let Some((field, _)) = self
            .schema
            .fields()
            .iter()
            .zip(&columns)
            .find(|(field, array)| !field.is_nullable() && array.null_count() > 0)
        {
            return Err(Error::corrupt(format!(
                "column `{}` may not be null in the table but the file has no value for it in some rows",
                field.name()
            )));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

/// The error for values that the column cannot have.
fn cannot_hold(field: &Field, why: ArrowError) -> Error {
    let (name, data_type) = (field.name(), table_type_name(field.data_type()));
    if let ArrowError::ExternalError(why) = &why
        && let Some(why) = why.downcast_ref::<Error>()
    {
        return Error::new(why.kind().clone(), format!("column `{name}`: {}", why.message()));
    }
    Error::corrupt(format!("column `{name}` has values that {} cannot have; rewrite the file", with_article(data_type)))
        .caused_by(why)
}

fn as_int64(array: &ArrayRef) -> Option<&Int64Array> {
    array.as_primitive_opt()
}

/// The leaf of a file with this path of logical names, if there is one and it is primitive.
pub(crate) fn find_leaf(
    columns: &StructType,
    path: &[String],
    mapping: ColumnMapping,
    file: &FileSchema,
) -> Result<Option<Leaf>> {
    let calendars = &file.calendars;
    let (mut columns, mut file, mut first_leaf) = (columns, &file.fields, 0);
    let mut names = path.iter().peekable();
    while let Some(name) = names.next() {
        let Some(field) = columns.field(name) else { return Ok(None) };
        let Some(position) = FileColumns::new(file).find(field, mapping)? else { return Ok(None) };
        first_leaf += file.iter().take(position).map(|f| count_leaves(f.data_type())).sum::<usize>();
        let Some(file_field) = file.get(position) else { return Ok(None) };
        match (&field.data_type, file_field.data_type(), names.peek()) {
            (DataType::Primitive(primitive), file_type, None) => {
                let conversion = Conversion::choose(file_type, primitive, first_leaf, calendars);
                let leaf = |conversion| Leaf { index: first_leaf, file_type: file_type.clone(), conversion };
                return Ok(conversion.map(leaf));
            }
            (DataType::Struct(inner), ArrowType::Struct(children), Some(_)) => (columns, file) = (inner, children),
            _ => return Ok(None),
        }
    }
    Ok(None)
}

struct Resolver<'a> {
    mapping: ColumnMapping,
    calendars: &'a Calendars,
    leaves: Vec<usize>,
}

impl Resolver<'_> {
    /// For each requested column, its position among the decoded children of the file, and its shape.
    /// The first child's first leaf is number `first_leaf` of the file.
    fn children(
        &mut self,
        requested: &[RequestedColumn<'_>],
        file: &Fields,
        first_leaf: usize,
        path: &str,
    ) -> Result<Vec<Option<(usize, ColumnConversion)>>> {
        let mut first_leaves = Vec::with_capacity(file.len());
        let mut leaf = first_leaf;
        for child in file {
            first_leaves.push(leaf);
            leaf += count_leaves(child.data_type());
        }
        let (columns, mut children) = (FileColumns::new(file), Vec::with_capacity(requested.len()));
        for column in requested {
            let field = column.field;
            let path = if path.is_empty() { field.name.clone() } else { format!("{path}.{}", field.name) };
            let position = match field.data_type {
                DataType::Primitive(PrimitiveType::Void) => None,
                _ => columns.find(field, column.mapping)?,
            };
            children.push(match position.and_then(|p| Some((p, file.get(p)?, first_leaves.get(p)?))) {
                Some((position, child, leaf)) => {
                    Some((position, self.conversion(&field.data_type, child, *leaf, &path)?))
                }
                None => None,
            });
        }
        let mut decoded: Vec<usize> = children.iter().flatten().map(|(position, _)| *position).collect();
        decoded.sort_unstable();
        if decoded.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err(Error::corrupt(format!("two table columns map to the same file column, at `{path}`")));
        }
        for (position, _) in children.iter_mut().flatten() {
            *position = decoded.partition_point(|other| other < position);
        }
        Ok(children)
    }

    fn conversion(&mut self, table: &DataType, file: &Field, leaf: usize, path: &str) -> Result<ColumnConversion> {
        match (table, file.data_type()) {
            (DataType::Primitive(primitive), file) => {
                let conversion = Conversion::choose(file, primitive, leaf, self.calendars);
                self.leaves.push(leaf);
                conversion.map(ColumnConversion::Leaf).ok_or_else(|| mismatch(path, file, table))
            }
            (DataType::Foreign(foreign), _) => match &foreign.stored_as {
                Some(stored) => {
                    // Column mapping does not apply inside.
                    let mapping = std::mem::replace(&mut self.mapping, ColumnMapping::None);
                    let conversion = self.conversion(stored, file, leaf, path);
                    self.mapping = mapping;
                    conversion
                }
                None => Err(unreadable(path, &table.to_string())),
            },
            (_, ArrowType::Null) => {
                self.leaves.push(leaf);
                Ok(ColumnConversion::Leaf(Conversion::of_nulls()))
            }
            (DataType::Struct(fields), ArrowType::Struct(children)) => {
                let mapping = self.mapping;
                let requested: Vec<RequestedColumn<'_>> =
                    fields.fields.iter().map(|field| RequestedColumn { field, mapping }).collect();
                let resolved = self.children(&requested, children, leaf, path)?;
                if resolved.iter().all(Option::is_none) {
                    // At least one leaf must be decoded to find out which structs are null.
                    self.leaves.push(leaf);
                }
                Ok(ColumnConversion::Struct(resolved))
            }
            (DataType::Variant, ArrowType::Struct(children)) => self.variant(children, leaf, path),
            (
                DataType::Array(array),
                ArrowType::List(element) | ArrowType::LargeList(element) | ArrowType::FixedSizeList(element, _),
            ) => {
                let element = self.conversion(&array.element, element, leaf, &format!("{path}.element"))?;
                Ok(ColumnConversion::List(Box::new(element)))
            }
            (DataType::Map(map), ArrowType::Map(entries, _)) => match entries.data_type() {
                ArrowType::Struct(entry) => match entry.as_ref() {
                    [key, value] => {
                        let value_leaf = leaf + count_leaves(key.data_type());
                        let key = self.conversion(&map.key, key, leaf, &format!("{path}.key"))?;
                        let value = self.conversion(&map.value, value, value_leaf, &format!("{path}.value"))?;
                        Ok(ColumnConversion::Map(Box::new(key), Box::new(value)))
                    }
                    _ => Err(mismatch(path, file.data_type(), table)),
                },
                _ => Err(mismatch(path, file.data_type(), table)),
            },
            (_, other) => Err(mismatch(path, other, table)),
        }
    }

    /// A variant is a struct of two parts with fixed names, in any order, unless it is shredded.
    fn variant(&mut self, children: &Fields, leaf: usize, path: &str) -> Result<ColumnConversion> {
        let lacks = |what: &str| Error::corrupt(format!("the variant column `{path}` lacks {what}"));
        if is_shredded(children) {
            if !children.iter().any(|child| child.name() == "metadata") {
                return Err(lacks("`metadata`"));
            }
            let leaves: usize = children.iter().map(|child| count_leaves(child.data_type())).sum();
            self.leaves.extend(leaf..leaf + leaves);
            return Ok(ColumnConversion::Shredded);
        }
        let part = |name: &str| StructField::new(name, DataType::Primitive(PrimitiveType::Binary), false);
        let parts = [part("metadata"), part("value")];
        let requested = parts.each_ref().map(|field| RequestedColumn { field, mapping: ColumnMapping::None });
        let resolved = self.children(&requested, children, leaf, path)?;
        if resolved.iter().any(Option::is_none) {
            return Err(lacks("`metadata` or `value`"));
        }
        Ok(ColumnConversion::Struct(resolved))
    }
}

impl ColumnConversion {
    /// Converts `array` to the type `target`. Where a struct around it is null, as `masked` shows, it counts as null: a
    /// column that is not nullable has no nulls of its own there, but its children have some.
    fn apply(&self, array: &ArrayRef, masked: Option<&NullBuffer>, target: &ArrowType) -> Result<ArrayRef, ArrowError> {
        let wrong = || ArrowError::SchemaError(format!("decoded {} instead of {target}", array.data_type()));
        match (self, target) {
            (Self::Leaf(conversion), target) => conversion.apply(array, target),
            (Self::Struct(children), ArrowType::Struct(fields)) => {
                let array = array.as_struct_opt().ok_or_else(wrong)?;
                let nulls = NullBuffer::union(array.nulls(), masked);
                let build = |(child, field): (&Option<(usize, Self)>, &FieldRef)| match child {
                    Some((position, conversion)) => {
                        let column = array.columns().get(*position).ok_or_else(wrong)?;
                        conversion.apply(column, nulls.as_ref(), field.data_type())
                    }
                    None => Ok(new_null_array(field.data_type(), array.len())),
                };
                let columns = children.iter().zip(fields).map(build).collect::<Result<_, _>>()?;
                Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, array.len())?))
            }
            (Self::List(conversion), ArrowType::List(field)) => {
                let (offsets, values, nulls) = list_parts(array).ok_or_else(wrong)??;
                let values = conversion.apply(&values, None, field.data_type())?;
                Ok(Arc::new(ListArray::try_new(Arc::clone(field), offsets, values, nulls)?))
            }
            (Self::Map(key, value), ArrowType::Map(entries, sorted)) => {
                let ArrowType::Struct(fields) = entries.data_type() else { return Err(wrong()) };
                let [key_field, value_field] = fields.as_ref() else { return Err(wrong()) };
                let array = array.as_map_opt().ok_or_else(wrong)?;
                let columns = vec![
                    key.apply(array.keys(), None, key_field.data_type())?,
                    value.apply(array.values(), None, value_field.data_type())?,
                ];
                let inner = StructArray::try_new(fields.clone(), columns, None)?;
                let (offsets, nulls) = (array.offsets().clone(), array.nulls().cloned());
                Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, inner, nulls, *sorted)?))
            }
            (Self::Shredded, ArrowType::Struct(fields)) => unshred(array, masked, fields),
            (Self::Struct(_) | Self::List(_) | Self::Map(..) | Self::Shredded, _) => Err(wrong()),
        }
    }
}

type ListParts = (OffsetBuffer<i32>, ArrayRef, Option<NullBuffer>);

/// Offsets, values and nulls of any kind of list; `None` if it is not a list.
fn list_parts(array: &ArrayRef) -> Option<Result<ListParts, ArrowError>> {
    if let Some(list) = array.as_list_opt::<i32>() {
        return Some(Ok((list.offsets().clone(), Arc::clone(list.values()), list.nulls().cloned())));
    }
    let narrowed = |list: &dyn Array, element: &FieldRef| {
        let narrow = arrow_cast::cast(list, &ArrowType::List(Arc::clone(element)))?;
        let list: &ListArray = narrow.as_list();
        Ok((list.offsets().clone(), Arc::clone(list.values()), list.nulls().cloned()))
    };
    match array.data_type() {
        ArrowType::LargeList(element) => Some(narrowed(array.as_any().downcast_ref::<LargeListArray>()?, element)),
        ArrowType::FixedSizeList(element, _) => {
            Some(narrowed(array.as_any().downcast_ref::<FixedSizeListArray>()?, element))
        }
        _ => None,
    }
}

/// The number of Parquet leaves of an Arrow type that was made from a Parquet schema.
pub(crate) fn count_leaves(arrow: &ArrowType) -> usize {
    match arrow {
        ArrowType::Struct(fields) => fields.iter().map(|field| count_leaves(field.data_type())).sum(),
        ArrowType::List(element)
        | ArrowType::LargeList(element)
        | ArrowType::FixedSizeList(element, _)
        | ArrowType::Map(element, _) => count_leaves(element.data_type()),
        _ => 1,
    }
}

fn mismatch(path: &str, file: &ArrowType, table: &DataType) -> Error {
    let file = table_type_name(file);
    Error::corrupt(format!(
        "column `{path}` has type {file} in the file but type {table} in the table, to which it cannot be converted; \
         rewrite the file"
    ))
}

/// Refuses columns whose values cannot be read.
///
/// # Errors
/// `Unsupported`, naming the first of them.
pub(crate) fn check_types(columns: &StructType) -> Result<()> {
    columns.fields.iter().try_for_each(|field| match field.data_type.unreadable() {
        Some(name) => Err(unreadable(&field.name, &name)),
        None => Ok(()),
    })
}

fn unreadable(path: &str, name: &str) -> Error {
    Error::unsupported(
        format!("type {name}"),
        format!(
            "column `{path}` has the type `{name}`, which deltic does not know; leave it out of `columns`, or read it with \
             another client"
        ),
    )
}
