//! Divides the leaves of a schema into those that are encoded directly, and those that are left to the parquet crate.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use parquet::arrow::arrow_writer::{ArrowColumnWriter, compute_leaves};
use parquet::errors::ParquetError;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};

use super::column::{ColumnWriter, Kind};
use super::page::PageCompressor;

/// How a leaf of the file is encoded.
#[derive(Debug, Clone, Copy)]
pub enum WriterSlot {
    /// Directly.
    Direct(Kind),
    /// By the parquet crate.
    General,
}

/// A field of the schema.
enum Node {
    Direct,
    /// The parquet crate gets it with all fields inside.
    General(FieldRef),
    /// A struct: its fields, and the struct with the fields that are left to the parquet crate, if there are any.
    Within(Vec<Node>, Option<FieldRef>),
}

/// A divided schema.
pub struct Tree {
    roots: Vec<Node>,
    /// How each leaf is encoded, in the file's order.
    slots: Vec<WriterSlot>,
    /// The schema for the parquet crate.
    general: SchemaRef,
}

impl Tree {
    /// `kind_of` decides which leaves are encoded directly; it is not called for repeated ones.
    pub fn new(schema: &Schema, file: &SchemaDescriptor, kind_of: &KindOf<'_>) -> Self {
        let mut slots = Vec::new();
        let roots: Vec<Node> = schema.fields().iter().map(|field| node(field, file, kind_of, &mut slots)).collect();
        let general: Fields = roots.iter().filter_map(Node::rest).cloned().collect();
        Self { roots, slots, general: Arc::new(Schema::new(general)) }
    }

    /// How each leaf of the file is encoded.
    pub fn slots(&self) -> &[WriterSlot] {
        &self.slots
    }

    /// The schema of the leaves that are left to the parquet crate.
    pub fn general(&self) -> &SchemaRef {
        &self.general
    }

    /// Writes rows to the encoders of both kinds.
    pub fn write(
        &self,
        rows: &RecordBatch,
        here: &mut [ColumnWriter],
        general: &mut [ArrowColumnWriter],
        compressor: &mut PageCompressor,
    ) -> Result<(), ParquetError> {
        let (mut here, mut general) = (here.iter_mut(), general.iter_mut());
        let missing = || ParquetError::General("a leaf has no writer".to_owned());
        for ((node, field), column) in self.roots.iter().zip(rows.schema_ref().fields()).zip(rows.columns()) {
            let mut nodes = Vec::new();
            let rest = node.write(field, column, &mut nodes, &mut |nodes, column| {
                here.next().ok_or_else(missing)?.write(nodes, column.as_ref(), compressor)
            })?;
            if let Some((field, rest)) = rest {
                for leaf in compute_leaves(&field, &rest)? {
                    general.next().ok_or_else(missing)?.write(&leaf)?;
                }
            }
        }
        Ok(())
    }
}

/// How a leaf is encoded directly; `None` for the parquet crate.
pub type KindOf<'k> = dyn Fn(&ColumnDescriptor, &DataType) -> Option<Kind> + 'k;

/// Takes a leaf, with the nulls of all nullable structs around it and of itself.
type Take<'t> = dyn FnMut(&[Option<NullBuffer>], &ArrayRef) -> Result<(), ParquetError> + 't;

impl Node {
    /// The part that is left to the parquet crate.
    fn rest(&self) -> Option<&FieldRef> {
        match self {
            Self::Direct => None,
            Self::General(field) => Some(field),
            Self::Within(_, rest) => rest.as_ref(),
        }
    }

    /// Calls `take` with the leaves that are encoded directly, and returns the others.
    fn write(
        &self,
        field: &Field,
        column: &ArrayRef,
        nodes: &mut Vec<Option<NullBuffer>>,
        take: &mut Take<'_>,
    ) -> Result<Option<(FieldRef, ArrayRef)>, ParquetError> {
        let depth = nodes.len();
        if field.is_nullable() {
            nodes.push(column.nulls().cloned());
        }
        let rest = match self {
            Self::Direct => {
                take(nodes, column)?;
                None
            }
            Self::General(field) => Some((field.clone(), column.clone())),
            Self::Within(members, rest) => {
                let structure = column.as_struct_opt();
                let structure = structure.ok_or_else(|| ParquetError::General("a struct is none".to_owned()))?;
                let mut columns = Vec::new();
                for ((node, field), column) in members.iter().zip(structure.fields()).zip(structure.columns()) {
                    columns.extend(node.write(field, column, nodes, take)?);
                }
                match rest {
                    Some(rest) => {
                        let (fields, columns): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
                        let nulls = structure.nulls().cloned();
                        Some((rest.clone(), Arc::new(StructArray::try_new(fields.into(), columns, nulls)?) as ArrayRef))
                    }
                    None => None,
                }
            }
        };
        nodes.truncate(depth);
        Ok(rest)
    }
}

fn node(field: &FieldRef, file: &SchemaDescriptor, kind_of: &KindOf<'_>, slots: &mut Vec<WriterSlot>) -> Node {
    match field.data_type() {
        DataType::Struct(members) => {
            let nodes: Vec<Node> = members.iter().map(|member| node(member, file, kind_of, slots)).collect();
            if nodes.iter().all(|node| matches!(node, Node::General(_))) {
                return Node::General(field.clone());
            }
            let rest: Fields = nodes.iter().filter_map(Node::rest).cloned().collect();
            let rest = (!rest.is_empty()).then(|| field.as_ref().clone().with_data_type(DataType::Struct(rest)).into());
            Node::Within(nodes, rest)
        }
        DataType::List(_) | DataType::Map(..) => {
            slots.extend(std::iter::repeat_n(WriterSlot::General, leaves(field.data_type())));
            Node::General(field.clone())
        }
        arrow => {
            let leaf = (slots.len() < file.num_columns()).then(|| file.column(slots.len()));
            let kind = leaf.and_then(|leaf| kind_of(&leaf, arrow));
            slots.push(kind.map_or(WriterSlot::General, WriterSlot::Direct));
            if kind.is_some() { Node::Direct } else { Node::General(field.clone()) }
        }
    }
}

/// How many leaves a type has.
fn leaves(data_type: &DataType) -> usize {
    match data_type {
        DataType::Struct(members) => members.iter().map(|member| leaves(member.data_type())).sum(),
        DataType::List(inner) | DataType::Map(inner, _) => leaves(inner.data_type()),
        _ => 1,
    }
}
