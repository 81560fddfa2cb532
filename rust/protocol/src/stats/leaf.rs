//! A column that can have statistics.

use crate::schema::PrimitiveType;

/// A column whose statistics are wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct Leaf {
    /// Physical names from the top level down.
    pub path: Vec<String>,
    /// Its type in the table now.
    pub data_type: PrimitiveType,
    /// Whether it was a `float` before: old bounds are the short text of a float, which is not the value of the double.
    pub was_float: bool,
}
