//! Refuses conditions on strings with a collation: Spark compares them by language, and deltic only by their bytes.
//!
//! A bound expression may copy such strings, cut and join them, and test them for NULL. It may not compare them, or search
//! in them. Every bound expression and predicate is checked, so every filter, constraint and merge condition is.
//!
//! Proved by `tests/rust/protocol/collation.rs`.

use super::bound::{Node, Typed};
use super::column::Column;
use crate::error::Result;
use crate::scalar::Scalar;
use crate::schema::collation::{check_compared, collation_of};
use crate::schema::{DataType, PrimitiveType, StructType};

/// Functions whose values do not depend on which strings are equal.
const INDEPENDENT: [&str; 9] =
    ["length", "octet_length", "bit_length", "concat", "substring", "left", "right", "size", "array_size"];

/// Refuses an expression whose value depends on a collation.
///
/// # Errors
/// `Unsupported`, naming the column and the collation.
pub(super) fn check(root: &Typed, schema: &StructType) -> Result<()> {
    collated(root, schema).map(drop)
}

/// The column whose strings, with a collation, are in the values of a part.
fn collated<'a>(part: &'a Typed, schema: &StructType) -> Result<Option<&'a Column>> {
    if let Node::Column(column) = &*part.node {
        return Ok(collation_of(schema, &column.path).map(|_| column));
    }
    let mut found = None;
    for operand in part.parts() {
        found = collated(operand, schema)?.or(found);
    }
    let Some(column) = found else { return Ok(None) };
    let is_independent = match &*part.node {
        Node::IsNull(_) | Node::Case { .. } | Node::Coalesce(_) | Node::Cast { .. } => true,
        // A comparison with NULL is a test for NULL.
        Node::Compare { left, right, .. } | Node::NullSafeEqual { left, right } => {
            [left, right].into_iter().any(|side| side.as_literal() == Some(&Scalar::Null))
        }
        Node::Call { function, .. } => INDEPENDENT.contains(&function.name),
        _ => false,
    };
    match is_independent {
        true => Ok(may_have_strings(&part.data_type).then_some(column)),
        false => check_compared(schema, &column.path).map(|()| None),
    }
}

fn may_have_strings(data_type: &DataType) -> bool {
    match data_type {
        DataType::Primitive(primitive) => *primitive == PrimitiveType::String,
        DataType::Struct(_) | DataType::Array(_) | DataType::Map(_) | DataType::Variant | DataType::Foreign(_) => true,
    }
}
