//! What a file has and its table no longer has: columns, if dropping them kept the files, and columns of narrower types.
//!
//! PROTOCOL.md: "Column Mapping", "Type Widening".

use arrow_schema::{DataType as ArrowType, Field, Fields};
use deltic_protocol::property::Properties;
use deltic_protocol::schema::assign::count_ids;
use deltic_protocol::schema::mapping::{ColumnMapping, field_id};
use deltic_protocol::schema::{DataType, PrimitiveType, StructField, StructType, TableSchema};
use deltic_protocol::validation::MAX_COLUMN_ID;

use super::file_footer::look_at_footer;
use super::read::parquet_id;
use crate::error::Result;
use crate::snapshot::Snapshot;
use deltic_store::{Storage, decode_path};

/// Whether files may have columns that the table dropped: it has column mapping, and has assigned more ids than it has
/// columns.
pub(crate) fn may_have_dropped_columns(snapshot: &Snapshot) -> bool {
    if snapshot.shape().mapping == ColumnMapping::None {
        return false;
    }
    let largest = Properties::of(snapshot.metadata()).get(MAX_COLUMN_ID).and_then(|id| id.trim().parse::<usize>().ok());
    largest.is_none_or(|largest| count_ids(&snapshot.shape().schema) < largest)
}

/// The columns that files of a table should have.
#[derive(Debug, Clone)]
pub(crate) struct KnownColumns {
    storage: Storage,
    schema: TableSchema,
    mapping: ColumnMapping,
    /// Columns of row tracking, by their names in files.
    hidden: Vec<String>,
}

impl KnownColumns {
    /// The columns of a version.
    ///
    /// # Errors
    /// `Corrupt` for a property that cannot be read.
    pub(crate) fn of(snapshot: &Snapshot) -> Result<Self> {
        let tracking = Properties::of(snapshot.metadata()).row_tracking(snapshot.protocol())?;
        let names = tracking.map(|tracking| [tracking.row_id_column, tracking.row_commit_version_column]);
        let shape = snapshot.shape();
        Ok(Self {
            storage: snapshot.storage().clone(),
            schema: shape.schema.clone(),
            mapping: shape.mapping,
            hidden: names.into_iter().flatten().flatten().collect(),
        })
    }

    /// Whether a file, with this path and size by the log, has other columns. Its footer is read.
    ///
    /// # Errors
    /// Those of reading it.
    pub(crate) async fn are_exceeded(&self, path: &str, size: u64) -> Result<bool> {
        let columns = self.clone();
        look_at_footer(&self.storage, &decode_path(path)?, size, move |file| {
            let fields = file.schema().fields().iter().filter(|field| !columns.is_hidden(field));
            Ok(columns.exceeds(&fields.cloned().collect(), &columns.schema))
        })
        .await
    }

    /// Whether a file, with this path and size by the log, has a column in another type than the table, such as one that was
    /// widened later. Its footer is read.
    ///
    /// # Errors
    /// Those of reading it.
    pub(crate) async fn have_other_types(&self, path: &str, size: u64) -> Result<bool> {
        let columns = self.clone();
        look_at_footer(&self.storage, &decode_path(path)?, size, move |file| {
            Ok(columns.has_other_types(file.schema().fields(), &columns.schema))
        })
        .await
    }

    fn has_other_types(&self, fields: &Fields, table: &StructType) -> bool {
        fields.iter().any(|field| {
            let column = table.fields.iter().find(|column| self.is_same(field, column));
            column.is_some_and(|column| self.is_other_type(field.data_type(), &column.data_type))
        })
    }

    fn is_other_type(&self, stored: &ArrowType, column: &DataType) -> bool {
        match (stored, column) {
            (ArrowType::Struct(fields), DataType::Struct(table)) => self.has_other_types(fields, table),
            (ArrowType::List(element), DataType::Array(array)) => {
                self.is_other_type(element.data_type(), &array.element)
            }
            (ArrowType::Map(entries, _), DataType::Map(map)) => match entries.data_type() {
                ArrowType::Struct(pair) => match &pair[..] {
                    [key, value] => {
                        self.is_other_type(key.data_type(), &map.key)
                            || self.is_other_type(value.data_type(), &map.value)
                    }
                    _ => true,
                },
                _ => true,
            },
            (stored, DataType::Primitive(column)) => is_other_primitive(stored, column),
            _ => false,
        }
    }

    fn is_hidden(&self, field: &Field) -> bool {
        self.hidden.contains(field.name())
    }

    fn exceeds(&self, fields: &Fields, table: &StructType) -> bool {
        fields.iter().any(|field| match table.fields.iter().find(|column| self.is_same(field, column)) {
            Some(column) => self.exceeds_type(field.data_type(), &column.data_type),
            None => true,
        })
    }

    fn is_same(&self, field: &Field, column: &StructField) -> bool {
        match self.mapping {
            ColumnMapping::Id => field_id(column).is_some() && parquet_id(field) == field_id(column),
            mapping => mapping.physical_name(column).is_ok_and(|name| name.eq_ignore_ascii_case(field.name())),
        }
    }

    /// Whether the inside of a stored column has fields that the column of the table lacks. Nothing inside a variant can be
    /// dropped.
    fn exceeds_type(&self, stored: &ArrowType, column: &DataType) -> bool {
        match (stored, column) {
            (ArrowType::Struct(fields), DataType::Struct(table)) => self.exceeds(fields, table),
            (ArrowType::List(element), DataType::Array(array)) => {
                self.exceeds_type(element.data_type(), &array.element)
            }
            (ArrowType::Map(entries, _), DataType::Map(map)) => match entries.data_type() {
                ArrowType::Struct(pair) => match &pair[..] {
                    [key, value] => {
                        self.exceeds_type(key.data_type(), &map.key) || self.exceeds_type(value.data_type(), &map.value)
                    }
                    _ => false,
                },
                _ => false,
            },
            _ => false,
        }
    }
}

/// Whether values that have this type in a file are of another type than the column. Only of types that can be widened.
fn is_other_primitive(stored: &ArrowType, column: &PrimitiveType) -> bool {
    match column {
        PrimitiveType::Short => *stored != ArrowType::Int16,
        PrimitiveType::Integer => *stored != ArrowType::Int32,
        PrimitiveType::Long => *stored != ArrowType::Int64,
        PrimitiveType::Double => *stored != ArrowType::Float64,
        PrimitiveType::TimestampNtz => *stored == ArrowType::Date32,
        PrimitiveType::Decimal { precision, scale } => match stored {
            ArrowType::Decimal32(p, s) | ArrowType::Decimal64(p, s) | ArrowType::Decimal128(p, s) => {
                p != precision || u8::try_from(*s) != Ok(*scale)
            }
            _ => true,
        },
        _ => false,
    }
}
