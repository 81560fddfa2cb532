//! One file's columns become the table's columns.
//!
//! [`Adapter::new`] finds, for every requested column and at every depth, the file's column (by name, physical name or
//! field id), the leaves to decode and the conversion; [`Adapter::adapt`] applies that to decoded batches. Columns the
//! file lacks are null, partition columns come from the log. Knows nothing of predicates, and does no I/O.
//!
//! Invariant: what comes out has exactly the table's Arrow type, or it is an error naming the column.
//!
//! PROTOCOL.md: "Reader Requirements for Column Mapping", "Variant data in Parquet".

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, LargeListArray, ListArray, MapArray, RecordBatch, RecordBatchOptions,
    StructArray, new_null_array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType as ArrowType, Field, FieldRef, Fields, SchemaRef};
use deltic_protocol::error::{Error, Result};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::mapping::{ColumnMapping, field_id};
use deltic_protocol::schema::{DataType, PrimitiveType, StructField, StructType};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;

use super::cast::LeafCast;
use super::task::CHANGE_TYPE;

/// The value that a column has in all rows of a file, by logical name.
pub(crate) type Constants = BTreeMap<String, Scalar>;

/// How decoded batches of one file become batches of the requested columns.
#[derive(Debug)]
pub(crate) struct Adapter {
    schema: SchemaRef,
    columns: Vec<Column>,
    leaves: Vec<usize>,
}

#[derive(Debug)]
enum Column {
    /// The log says it.
    Constant(Scalar, PrimitiveType),
    /// The file does not have it.
    Missing,
    /// The decoded column at this position.
    File(usize, Shape),
}

/// How an array becomes one of the table's type.
#[derive(Debug)]
enum Shape {
    Leaf(LeafCast),
    /// For each field of the table, where it stands among the decoded children.
    Struct(Vec<Option<(usize, Shape)>>),
    List(Box<Shape>),
    Map(Box<Shape>, Box<Shape>),
}

/// Where a leaf of the table stands in a file, and how its values convert.
#[derive(Debug)]
pub(crate) struct Leaf {
    /// Position among the file's leaves.
    pub(crate) index: usize,
    /// Type in the file.
    pub(crate) file_type: ArrowType,
    /// Conversion to the table's type.
    pub(crate) cast: LeafCast,
}

impl Adapter {
    /// Finds `columns` of the table, whose Arrow form is `schema`, in a file with the fields `file`.
    pub(crate) fn new(
        columns: &StructType,
        schema: SchemaRef,
        mapping: ColumnMapping,
        file: &Fields,
        constants: &Constants,
    ) -> Result<Self> {
        let mut resolver = Resolver { mapping, leaves: Vec::new() };
        if mapping == ColumnMapping::Id && !file.iter().any(|field| parquet_id(field).is_some()) && !file.is_empty() {
            return Err(Error::corrupt(
                "the file has no field ids although the table finds columns by id; rewrite the file with ids",
            ));
        }
        let stored: Vec<&StructField> = columns.fields.iter().filter(|f| !constants.contains_key(&f.name)).collect();
        let mut found = resolver.children(&stored, file, 0, "")?.into_iter();
        let columns = columns
            .fields
            .iter()
            .map(|field| match (constants.get(&field.name), &field.data_type) {
                (Some(value), DataType::Primitive(primitive)) => Ok(Column::Constant(value.clone(), primitive.clone())),
                (Some(_), other) => Err(Error::corrupt(format!("the partition column `{}` is a {other}", field.name))),
                (None, _) => Ok(match found.next().flatten() {
                    Some((position, shape)) => Column::File(position, shape),
                    None => Column::Missing,
                }),
            })
            .collect::<Result<_>>()?;
        resolver.leaves.sort_unstable();
        resolver.leaves.dedup();
        Ok(Self { schema, columns, leaves: resolver.leaves })
    }

    /// Positions of the file's leaves that must be decoded, in order.
    pub(crate) fn leaves(&self) -> &[usize] {
        &self.leaves
    }

    /// The requested columns, from a batch with just the leaves of [`Adapter::leaves`].
    pub(crate) fn adapt(&self, decoded: &RecordBatch) -> Result<RecordBatch> {
        self.build(decoded.columns(), decoded.num_rows())
    }

    /// `rows` rows of the requested columns when none of them is in the file.
    pub(crate) fn constant(&self, rows: usize) -> Result<RecordBatch> {
        self.build(&[], rows)
    }

    fn build(&self, decoded: &[ArrayRef], rows: usize) -> Result<RecordBatch> {
        let build = |(column, field): (&Column, &FieldRef)| -> Result<ArrayRef> {
            match column {
                Column::Constant(value, primitive) => value.to_array(primitive, rows),
                Column::Missing => Ok(new_null_array(field.data_type(), rows)),
                Column::File(position, shape) => decoded
                    .get(*position)
                    .ok_or_else(|| Error::internal(format!("column {position} was not decoded")))
                    .and_then(|array| {
                        shape.apply(array, field.data_type()).map_err(|e| {
                            Error::corrupt(format!(
                                "column `{}` holds what a {} cannot; rewrite the file",
                                field.name(),
                                field.data_type()
                            ))
                            .caused_by(e)
                        })
                    }),
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

/// Where the leaf with this path of logical names stands in a file, if it does and is a primitive.
pub(crate) fn find_leaf(
    columns: &StructType,
    path: &[String],
    mapping: ColumnMapping,
    file: &Fields,
) -> Result<Option<Leaf>> {
    let resolver = Resolver { mapping, leaves: Vec::new() };
    let (mut columns, mut file, mut first_leaf) = (columns, file, 0);
    let mut names = path.iter().peekable();
    while let Some(name) = names.next() {
        let Some(field) = columns.field(name) else { return Ok(None) };
        let Some(position) = resolver.find(field, file)? else { return Ok(None) };
        first_leaf += file.iter().take(position).map(|f| count_leaves(f.data_type())).sum::<usize>();
        let Some(found) = file.get(position) else { return Ok(None) };
        match (&field.data_type, found.data_type(), names.peek()) {
            (DataType::Primitive(primitive), file_type, None) => {
                let cast = LeafCast::choose(file_type, primitive);
                return Ok(cast.map(|cast| Leaf { index: first_leaf, file_type: file_type.clone(), cast }));
            }
            (DataType::Struct(inner), ArrowType::Struct(children), Some(_)) => (columns, file) = (inner, children),
            _ => return Ok(None),
        }
    }
    Ok(None)
}

struct Resolver {
    mapping: ColumnMapping,
    leaves: Vec<usize>,
}

impl Resolver {
    /// For each wanted field, its position among those children of the file that are decoded, and its shape.
    /// The first child's first leaf is number `first_leaf` of the file.
    fn children(
        &mut self,
        wanted: &[&StructField],
        file: &Fields,
        first_leaf: usize,
        path: &str,
    ) -> Result<Vec<Option<(usize, Shape)>>> {
        let mut first_leaves = Vec::with_capacity(file.len());
        let mut leaf = first_leaf;
        for child in file {
            first_leaves.push(leaf);
            leaf += count_leaves(child.data_type());
        }
        let mut found = Vec::with_capacity(wanted.len());
        for field in wanted {
            let path = if path.is_empty() { field.name.clone() } else { format!("{path}.{}", field.name) };
            let position = match field.data_type {
                DataType::Primitive(PrimitiveType::Void) => None,
                _ => self.find(field, file)?,
            };
            found.push(match position.and_then(|p| Some((p, file.get(p)?, first_leaves.get(p)?))) {
                Some((position, child, leaf)) => Some((position, self.shape(&field.data_type, child, *leaf, &path)?)),
                None => None,
            });
        }
        let mut decoded: Vec<usize> = found.iter().flatten().map(|(position, _)| *position).collect();
        decoded.sort_unstable();
        if decoded.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err(Error::corrupt(format!(
                "two columns of the table are the same column of the file, at `{path}`"
            )));
        }
        for (position, _) in found.iter_mut().flatten() {
            *position = decoded.partition_point(|other| other < position);
        }
        Ok(found)
    }

    /// Position of a column of the table among the file's.
    fn find(&self, field: &StructField, file: &Fields) -> Result<Option<usize>> {
        // Writers of change data files give this column neither an id nor a physical name.
        let unmapped = field.name == CHANGE_TYPE && field.metadata.is_empty();
        let mapping = if unmapped { ColumnMapping::None } else { self.mapping };
        if mapping == ColumnMapping::Id {
            let id = field_id(field).ok_or_else(|| {
                Error::corrupt(format!("column `{}` has no id although the table finds columns by id", field.name))
            })?;
            return only(file.iter().map(|child| parquet_id(child) == Some(id)), &field.name);
        }
        let name = mapping.physical_name(field)?;
        if let Some(position) = only(file.iter().map(|child| child.name() == name), name)? {
            return Ok(Some(position));
        }
        let lower = name.to_lowercase();
        let mut like = file.iter().enumerate().filter(|(_, child)| child.name().to_lowercase() == lower);
        Ok(match (like.next(), like.next()) {
            (Some((position, _)), None) => Some(position),
            _ => None,
        })
    }

    fn shape(&mut self, table: &DataType, file: &Field, leaf: usize, path: &str) -> Result<Shape> {
        match (table, file.data_type()) {
            (DataType::Primitive(primitive), file) => {
                let cast = LeafCast::choose(file, primitive).ok_or_else(|| mismatch(path, file, table))?;
                self.leaves.push(leaf);
                Ok(Shape::Leaf(cast))
            }
            (_, ArrowType::Null) => {
                self.leaves.push(leaf);
                Ok(Shape::Leaf(LeafCast::Null))
            }
            (DataType::Struct(fields), ArrowType::Struct(children)) => {
                let wanted: Vec<&StructField> = fields.fields.iter().collect();
                let found = self.children(&wanted, children, leaf, path)?;
                if found.iter().all(Option::is_none) {
                    // Only a leaf inside tells which structs are null.
                    self.leaves.push(leaf);
                }
                Ok(Shape::Struct(found))
            }
            (DataType::Variant, ArrowType::Struct(children)) => self.variant(children, leaf, path),
            (
                DataType::Array(array),
                ArrowType::List(element) | ArrowType::LargeList(element) | ArrowType::FixedSizeList(element, _),
            ) => {
                let element = self.shape(&array.element, element, leaf, &format!("{path}.element"))?;
                Ok(Shape::List(Box::new(element)))
            }
            (DataType::Map(map), ArrowType::Map(entries, _)) => match entries.data_type() {
                ArrowType::Struct(entry) => match entry.as_ref() {
                    [key, value] => {
                        let value_leaf = leaf + count_leaves(key.data_type());
                        let key = self.shape(&map.key, key, leaf, &format!("{path}.key"))?;
                        let value = self.shape(&map.value, value, value_leaf, &format!("{path}.value"))?;
                        Ok(Shape::Map(Box::new(key), Box::new(value)))
                    }
                    _ => Err(mismatch(path, file.data_type(), table)),
                },
                _ => Err(mismatch(path, file.data_type(), table)),
            },
            (_, other) => Err(mismatch(path, other, table)),
        }
    }

    /// A variant is the struct of its two parts, under fixed names and in any order.
    fn variant(&mut self, children: &Fields, leaf: usize, path: &str) -> Result<Shape> {
        if children.iter().any(|child| child.name() == "typed_value") {
            return Err(Error::unsupported(
                "variantShredding",
                format!(
                    "the variant column `{path}` is shredded; rewrite the file without shredding, or read it elsewhere"
                ),
            ));
        }
        let part = |name: &str| StructField::new(name, DataType::Primitive(PrimitiveType::Binary), false);
        let (metadata, value) = (part("metadata"), part("value"));
        let mapping = std::mem::replace(&mut self.mapping, ColumnMapping::None);
        let found = self.children(&[&metadata, &value], children, leaf, path);
        self.mapping = mapping;
        let found = found?;
        if found.iter().any(Option::is_none) {
            return Err(Error::corrupt(format!("the variant column `{path}` lacks `metadata` or `value`")));
        }
        Ok(Shape::Struct(found))
    }
}

impl Shape {
    fn apply(&self, array: &ArrayRef, target: &ArrowType) -> Result<ArrayRef, ArrowError> {
        let wrong = || ArrowError::SchemaError(format!("{} was decoded where {target} is due", array.data_type()));
        match (self, target) {
            (Self::Leaf(cast), target) => cast.apply(array, target),
            (Self::Struct(children), ArrowType::Struct(fields)) => {
                let array = array.as_struct_opt().ok_or_else(wrong)?;
                let build = |(child, field): (&Option<(usize, Self)>, &FieldRef)| match child {
                    Some((position, shape)) => {
                        shape.apply(array.columns().get(*position).ok_or_else(wrong)?, field.data_type())
                    }
                    None => Ok(new_null_array(field.data_type(), array.len())),
                };
                let columns = children.iter().zip(fields).map(build).collect::<Result<_, _>>()?;
                let nulls = array.nulls().cloned();
                Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, array.len())?))
            }
            (Self::List(shape), ArrowType::List(field)) => {
                let (offsets, values, nulls) = list_parts(array).ok_or_else(wrong)??;
                let values = shape.apply(&values, field.data_type())?;
                Ok(Arc::new(ListArray::try_new(Arc::clone(field), offsets, values, nulls)?))
            }
            (Self::Map(key, value), ArrowType::Map(entries, sorted)) => {
                let ArrowType::Struct(fields) = entries.data_type() else { return Err(wrong()) };
                let [key_field, value_field] = fields.as_ref() else { return Err(wrong()) };
                let array = array.as_map_opt().ok_or_else(wrong)?;
                let columns = vec![
                    key.apply(array.keys(), key_field.data_type())?,
                    value.apply(array.values(), value_field.data_type())?,
                ];
                let inner = StructArray::try_new(fields.clone(), columns, None)?;
                let (offsets, nulls) = (array.offsets().clone(), array.nulls().cloned());
                Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, inner, nulls, *sorted)?))
            }
            (Self::Struct(_) | Self::List(_) | Self::Map(..), _) => Err(wrong()),
        }
    }
}

type ListParts = (OffsetBuffer<i32>, ArrayRef, Option<arrow_buffer::NullBuffer>);

/// Offsets, values and nulls of any kind of list; `None` if it is none.
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

/// Parquet leaves under an Arrow type made from a Parquet schema.
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

fn parquet_id(field: &Field) -> Option<i32> {
    field.metadata().get(PARQUET_FIELD_ID_META_KEY).and_then(|id| id.parse().ok())
}

/// The position of the only `true`.
fn only(hits: impl Iterator<Item = bool>, name: &str) -> Result<Option<usize>> {
    let mut hits = hits.enumerate().filter(|(_, hit)| *hit).map(|(position, _)| position);
    match (hits.next(), hits.next()) {
        (_, Some(_)) => Err(Error::corrupt(format!("the file has column `{name}` twice"))),
        (first, None) => Ok(first),
    }
}

fn mismatch(path: &str, file: &ArrowType, table: &DataType) -> Error {
    Error::corrupt(format!(
        "column `{path}` is a {file} in the file but a {table} in the table, which it cannot become; rewrite the file"
    ))
}
