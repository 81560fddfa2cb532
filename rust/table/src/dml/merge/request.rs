//! The arguments of a merge, and their checks against both sides.

use arrow_schema::SchemaRef;
use deltic_protocol::row_merge::{JoinCondition, Sides};
use deltic_protocol::schema::StructType;

use super::super::find::RowAction;
use super::clauses::Clause;
use super::source::Source;
use crate::error::{Error, Result};

/// The arguments of a merge.
#[derive(Debug, Clone)]
pub struct MergeRequest {
    /// The condition for a row of the source to match a row of the target.
    pub on: String,
    /// The name of the source in expressions.
    pub source_alias: String,
    /// The name of the target in expressions.
    pub target_alias: String,
    /// What happens to rows. Of the clauses of a kind, the first whose condition is TRUE applies.
    pub clauses: Vec<Clause>,
    /// Whether columns that only the source has are added to the table, and types are widened if the table allows it.
    pub evolves: bool,
    /// What it is called in the history: an UPDATE or a DELETE if another engine has evaluated its condition and values, which are
    /// the source.
    pub operation: RowAction,
}

/// The condition for a row of the source to match a row of the target.
pub(super) fn condition_of(request: &MergeRequest, sides: &Sides) -> Result<JoinCondition> {
    JoinCondition::parse(&request.on, sides).map_err(|e| Error::new(e.kind().clone(), format!("on: {}", e.message())))
}

/// The two sides of a merge into a table with these columns.
///
/// # Errors
/// `Invalid` for columns that no table has, and aliases that do not fit.
pub(crate) fn sides_of(target: StructType, schema: &SchemaRef, request: &MergeRequest) -> Result<Sides> {
    let source = Source::new(schema, &[])?.schema;
    Sides::new(target, source, &request.source_alias, &request.target_alias)
}
