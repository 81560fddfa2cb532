//! Statistics in the columns of a checkpoint: `stats_parsed`.
//!
//! A [`StatsLayout`] says which columns have statistics and in which types. It is filled from the typed statistics of
//! an earlier checkpoint, from JSON, or from both: one source completes the other. Values stay as they were written;
//! reading statistics for skipping (`read`) makes bounds wider and is not done here.
//!
//! Invariant: a bound or count that either source has, in a type that is the column's or was widened to it, is kept
//! (`checkpoint::statistics_survive_changes_of_form`).
//!
//! PROTOCOL.md: "Per-file Statistics", "Checkpoint Schema".

use std::sync::Arc;

use arrow_array::array::StringArrayType;
use arrow_array::cast::AsArray;
use arrow_array::iterator::ArrayIter;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, StringArray, StructArray, new_null_array};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_cast::cast;
use arrow_schema::{DataType as ArrowType, Field, Fields};
use arrow_select::zip::zip;

use super::read::{
    Leaf, LeafBounds, StatsColumns, TypedColumns, from_json_as_written, retyped, was_float, widen_floats,
};
use crate::error::Result;
use crate::schema::arrow::to_arrow_type;
use crate::schema::{DataType, PrimitiveType, StructType};

/// Which columns have typed statistics, and in which types.
#[derive(Debug, Clone)]
pub struct StatsLayout {
    leaves: Vec<Leaf>,
    tree: Vec<Node>,
}

#[derive(Debug, Clone)]
struct Node {
    name: String,
    kind: NodeKind,
}

#[derive(Debug, Clone)]
enum NodeKind {
    Struct(Vec<Node>),
    /// Position among the leaves.
    Leaf(usize),
}

impl StatsLayout {
    /// Statistics of those columns of `schema` (physical names, no partition columns) whose path `keeps` accepts.
    pub fn new(schema: &StructType, keeps: &dyn Fn(&[String]) -> bool) -> Self {
        let mut leaves = Vec::new();
        let tree = nodes(schema, &mut Vec::new(), keeps, &mut leaves);
        Self { leaves, tree }
    }

    /// The fields of `stats_parsed`.
    pub fn fields(&self) -> Result<Fields> {
        Ok(self.columns(None::<&StringArray>, None, 0)?.fields().clone())
    }

    /// The statistics of `rows` files; null for a file without statistics.
    pub fn columns<'t>(
        &self,
        text: Option<impl StringArrayType<'t> + Copy>,
        typed: Option<&StructArray>,
        rows: usize,
    ) -> Result<StructArray> {
        let stats = match (typed, text) {
            (Some(typed), Some(text)) => self.merged(typed, text)?,
            (Some(typed), None) => self.merged(typed, &StringArray::new_null(typed.len()))?,
            (None, Some(text)) => from_json_as_written(ArrayIter::new(text), &self.leaves)?,
            (None, None) => from_json_as_written(std::iter::repeat_n(None, rows), &self.leaves)?,
        };
        self.build(stats, rows)
    }

    /// Typed statistics, completed from JSON: rows or columns that they lack.
    fn merged<'t>(&self, typed: &StructArray, text: impl StringArrayType<'t> + Copy) -> Result<StatsColumns> {
        let columns = TypedColumns::new(typed, self.leaves.len());
        let given: Vec<GivenLeaf> = self.leaves.iter().map(|leaf| GivenLeaf::of(&columns, leaf)).collect();
        let num_records = typed.column_by_name("numRecords").and_then(|a| cast(a, &ArrowType::Int64).ok());
        let num_records = num_records.unwrap_or_else(|| new_null_array(&ArrowType::Int64, typed.len()));
        let tight_bounds = typed.column_by_name("tightBounds").filter(|a| a.data_type() == &ArrowType::Boolean);
        let tight_bounds = tight_bounds.cloned().unwrap_or_else(|| new_null_array(&ArrowType::Boolean, typed.len()));

        let only_text = BooleanBuffer::collect_bool(typed.len(), |row| {
            text.is_valid(row) && (typed.is_null(row) || num_records.is_null(row))
        });
        let only_text = BooleanArray::new(only_text, None);
        let all_columns = given.iter().all(GivenLeaf::is_complete);
        let from_text = if only_text.true_count() == 0 && all_columns {
            None
        } else if all_columns {
            let text = ArrayIter::new(text).zip(only_text.values());
            Some(from_json_as_written(text.map(|(text, only)| text.filter(|_| only)), &self.leaves)?)
        } else {
            Some(from_json_as_written(ArrayIter::new(text), &self.leaves)?)
        };
        let pick = |given: Option<ArrayRef>, text: Option<ArrayRef>, data_type: &ArrowType| -> Result<ArrayRef> {
            match (given, text) {
                (Some(given), Some(text)) if only_text.true_count() > 0 => Ok(zip(&only_text, &text, &given)?),
                (Some(array), _) | (None, Some(array)) => Ok(array),
                (None, None) => Ok(new_null_array(data_type, typed.len())),
            }
        };
        let (counts, tight, leaves) = match from_text {
            Some(stats) => (Some(stats.num_records), Some(stats.tight_bounds), Some(stats.leaves)),
            None => (None, None, None),
        };
        let mut json_leaves = leaves.into_iter().flatten();
        let mut leaves = Vec::with_capacity(given.len());
        for (leaf, given) in self.leaves.iter().zip(given) {
            let text = json_leaves.next();
            let (min, max, null_count) =
                text.map_or((None, None, None), |t| (Some(t.min), Some(t.max), Some(t.null_count)));
            let target = to_arrow_type(&DataType::Primitive(leaf.data_type.clone()));
            let null_count = null_count.map(|n| Arc::new(n) as ArrayRef);
            leaves.push(LeafBounds {
                min: pick(given.min, min, &target)?,
                max: pick(given.max, max, &target)?,
                null_count: int64(pick(given.null_count, null_count, &ArrowType::Int64)?),
            });
        }
        let num_records = pick(Some(num_records), counts.map(|n| Arc::new(n) as ArrayRef), &ArrowType::Int64)?;
        let tight = pick(Some(tight_bounds), tight.map(|t| Arc::new(t) as ArrayRef), &ArrowType::Boolean)?;
        Ok(StatsColumns { num_records: int64(num_records), tight_bounds: tight.as_boolean().clone(), leaves })
    }

    fn build(&self, stats: StatsColumns, rows: usize) -> Result<StructArray> {
        let mut known = BooleanBuffer::new_unset(rows);
        let mut know = |array: &dyn Array| match array.nulls() {
            Some(nulls) => known = &known | nulls.inner(),
            None => known = BooleanBuffer::new_set(rows),
        };
        know(&stats.num_records);
        know(&stats.tight_bounds);
        for (leaf, bounds) in self.leaves.iter().zip(&stats.leaves) {
            know(&bounds.null_count);
            if has_bounds(&leaf.data_type) {
                know(bounds.min.as_ref());
                know(bounds.max.as_ref());
            }
        }
        let nulls = Some(NullBuffer::new(known)).filter(|nulls| nulls.null_count() > 0);
        let bounded = |array: &dyn Fn(&LeafBounds) -> ArrayRef| {
            let pick = |i: usize| {
                let has_bounds = self.leaves.get(i).is_some_and(|leaf| has_bounds(&leaf.data_type));
                stats.leaves.get(i).filter(|_| has_bounds).map(array)
            };
            structure(&self.tree, &pick, nulls.as_ref())
        };
        let min = bounded(&|leaf| leaf.min.clone())?;
        let max = bounded(&|leaf| leaf.max.clone())?;
        let null_count = |i: usize| stats.leaves.get(i).map(|leaf| Arc::new(leaf.null_count.clone()) as ArrayRef);
        let counts = structure(&self.tree, &null_count, nulls.as_ref())?;
        let members: [(&str, Option<ArrayRef>); 5] = [
            ("numRecords", Some(Arc::new(stats.num_records))),
            ("tightBounds", Some(Arc::new(stats.tight_bounds))),
            ("minValues", min),
            ("maxValues", max),
            ("nullCount", counts),
        ];
        let members = members.into_iter().filter_map(|(name, array)| Some((name.to_owned(), array?)));
        named(members.collect(), nulls.as_ref())
    }
}

/// The typed statistics of one column, cast to its present type.
struct GivenLeaf {
    min: Option<ArrayRef>,
    max: Option<ArrayRef>,
    null_count: Option<ArrayRef>,
    has_bounds: bool,
}

impl GivenLeaf {
    fn of(typed: &TypedColumns<'_>, leaf: &Leaf) -> Self {
        let found = |name: &str| typed.find(name, &leaf.path);
        let has_bounds = has_bounds(&leaf.data_type);
        let target = to_arrow_type(&DataType::Primitive(leaf.data_type.clone()));
        let bound = |name: &str, upper: bool| {
            let array = found(name).filter(|_| has_bounds).and_then(|array| retyped(array, &target))?;
            Some(if leaf.was_float { widen_floats(&array, upper) } else { array })
        };
        Self {
            min: bound("minValues", false),
            max: bound("maxValues", true),
            null_count: found("nullCount").and_then(|array| cast(&array, &ArrowType::Int64).ok()),
            has_bounds,
        }
    }

    fn is_complete(&self) -> bool {
        self.null_count.is_some() && (!self.has_bounds || (self.min.is_some() && self.max.is_some()))
    }
}

/// Whether columns of a type have a least and a greatest value.
fn has_bounds(data_type: &PrimitiveType) -> bool {
    use PrimitiveType as P;
    match data_type {
        P::String | P::Long | P::Integer | P::Short | P::Byte | P::Float | P::Double | P::Decimal { .. } => true,
        P::Boolean | P::Date | P::Timestamp | P::TimestampNtz => true,
        P::Binary | P::Void | P::Geometry { .. } | P::Geography { .. } => false,
    }
}

fn nodes(
    schema: &StructType,
    path: &mut Vec<String>,
    keeps: &dyn Fn(&[String]) -> bool,
    leaves: &mut Vec<Leaf>,
) -> Vec<Node> {
    let mut found = Vec::new();
    for field in &schema.fields {
        path.push(field.name.clone());
        let data_type = match &field.data_type {
            DataType::Struct(inner) => {
                let inner = nodes(inner, path, keeps, leaves);
                if !inner.is_empty() {
                    found.push(Node { name: field.name.clone(), kind: NodeKind::Struct(inner) });
                }
                None
            }
            // No file has such a column, and Parquet has no such type.
            DataType::Primitive(PrimitiveType::Void) => None,
            DataType::Primitive(primitive) => Some(primitive.clone()),
            // Like binary columns, these have only null counts.
            DataType::Array(_) | DataType::Map(_) | DataType::Variant | DataType::Foreign(_) => {
                Some(PrimitiveType::Binary)
            }
        };
        if let Some(data_type) = data_type.filter(|_| keeps(path)) {
            let was_float = data_type == PrimitiveType::Double && was_float(field);
            found.push(Node { name: field.name.clone(), kind: NodeKind::Leaf(leaves.len()) });
            leaves.push(Leaf { path: path.clone(), data_type, was_float });
        }
        path.pop();
    }
    found
}

/// The leaves that `pick` has an array for, in structs as the table has them; `None` if there is none.
fn structure(
    nodes: &[Node],
    pick: &dyn Fn(usize) -> Option<ArrayRef>,
    nulls: Option<&NullBuffer>,
) -> Result<Option<ArrayRef>> {
    let mut members = Vec::new();
    for node in nodes {
        let array = match &node.kind {
            NodeKind::Leaf(index) => pick(*index),
            NodeKind::Struct(inner) => structure(inner, pick, nulls)?,
        };
        members.extend(array.map(|array| (node.name.clone(), array)));
    }
    if members.is_empty() {
        return Ok(None);
    }
    Ok(Some(Arc::new(named(members, nulls)?)))
}

fn named(members: Vec<(String, ArrayRef)>, nulls: Option<&NullBuffer>) -> Result<StructArray> {
    let field = |(name, array): &(String, ArrayRef)| Field::new(name, array.data_type().clone(), true);
    let fields: Fields = members.iter().map(field).collect();
    let arrays = members.into_iter().map(|(_, array)| array).collect();
    Ok(StructArray::try_new(fields, arrays, nulls.cloned())?)
}

fn int64(array: ArrayRef) -> Int64Array {
    let unknown = || Int64Array::new_null(array.len());
    array.as_primitive_opt::<Int64Type>().cloned().unwrap_or_else(unknown)
}
