//! Table schemas: the types, their JSON form, their Arrow form and their physical names.

pub mod arrow;
pub mod char_length;
pub mod collation;
pub mod identity;
pub mod json;
pub mod mapping;
mod table;
mod types;

pub use table::TableSchema;
pub use types::{ArrayType, DataType, ForeignType, MapType, PrimitiveType, StructField, StructType};
