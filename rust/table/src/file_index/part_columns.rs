//! Facts about the columns in a file of a checkpoint, from its footer.

use arrow_schema::DataType as ArrowType;
use deltic_protocol::schema::arrow::to_arrow_type;
use deltic_protocol::schema::{DataType, PrimitiveType};
use deltic_protocol::stats::read::Leaf;

use crate::checkpoint::action_file::ActionFile;
use crate::error::Error;

/// The error for a file that contradicts itself.
pub(super) fn broken(what: &str) -> Error {
    Error::corrupt(format!("the Parquet file cannot be read: {what}"))
}

/// How many rows have no value in a leaf, if the footer has the number.
pub(super) fn nulls(part: &ActionFile, group: usize, leaf: &[&str]) -> Option<u64> {
    let column = part.metadata().metadata().row_groups().get(group)?.columns().get(part.leaf(leaf)?)?;
    column.statistics()?.null_count_opt()
}

/// The leaf that every `add` has.
pub(super) const PATH: [&str; 2] = ["add", "path"];

/// Whether every row is an `add`.
pub(super) fn is_all_adds(part: &ActionFile, group: usize) -> bool {
    nulls(part, group, &PATH) == Some(0)
}

/// Whether the schema requires a path in every `add`.
pub(super) fn is_path_required(part: &ActionFile) -> bool {
    part.leaf(&PATH).is_some_and(|leaf| part.definition_level(leaf, 1) == part.definition_level(leaf, 2))
}

/// Whether every `add` has a value in the leaf.
pub(super) fn is_complete(part: &ActionFile, group: usize, leaf: &[&str]) -> bool {
    let missing = nulls(part, group, leaf);
    missing.is_some() && missing == nulls(part, group, &PATH)
}

/// Whether some file may have a deletion vector.
pub(super) fn may_have_vectors(part: &ActionFile, group: usize) -> bool {
    let leaf = ["add", "deletionVector", "storageType"];
    let rows = u64::try_from(part.rows(group)).unwrap_or(u64::MAX);
    part.leaf(&leaf).is_some() && nulls(part, group, &leaf).is_none_or(|nulls| nulls < rows)
}

/// Whether the typed values of a partition column can be used instead of their strings.
pub(super) fn has_typed_partition(part: &ActionFile, group: usize, leaf: &Leaf) -> bool {
    use PrimitiveType as P;
    let same_for_all = matches!(
        leaf.data_type,
        P::Long | P::Integer | P::Short | P::Byte | P::Date | P::String | P::Boolean | P::Decimal { .. }
    );
    let path = typed_partition_path(leaf);
    let found = part.arrow_type(&path);
    same_for_all && found == Some(&arrow_type(leaf)) && is_complete(part, group, &path)
}

pub(super) fn typed_partition_path(leaf: &Leaf) -> Vec<&str> {
    ["add", "partitionValues_parsed"].into_iter().chain(leaf.path.iter().map(String::as_str)).collect()
}

pub(super) fn stats_path<'l>(bound: &'l str, leaf: &'l Leaf) -> Vec<&'l str> {
    ["add", "stats_parsed", bound].into_iter().chain(leaf.path.iter().map(String::as_str)).collect()
}

fn arrow_type(leaf: &Leaf) -> ArrowType {
    to_arrow_type(&DataType::Primitive(leaf.data_type.clone()))
}
