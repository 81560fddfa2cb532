//! Table schemas: the types, their JSON form, their Arrow form, their physical names, and how they evolve.

pub mod arrow;
mod arrow_name;
pub mod assign;
pub mod char_length;
pub mod collation;
pub mod evolve;
pub mod identity;
pub mod json;
pub mod mapping;
pub mod path;
mod table;
mod types;
pub mod widen;

pub use table::TableSchema;
pub use types::{
    ArrayType, DataType, FieldsByName, ForeignType, MapType, PrimitiveType, StructField, StructType,
    check_requested_once, is_same_name, with_article,
};
