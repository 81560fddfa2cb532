//! Adds Parquet's logical types to columns that Arrow has only as bytes: variants, geometries, geographies.
//!
//! Proved by `write::writer::logical_types_are_in_the_footer`.
//!
//! PROTOCOL.md: "Variant data in Parquet"; Parquet's "LogicalTypes.md".

use std::sync::Arc;

use deltic_protocol::schema::{DataType, PrimitiveType, StructType};
use parquet::basic::{EdgeInterpolationAlgorithm as Edges, LogicalType};
use parquet::errors::ParquetError;
use parquet::schema::types::{Type, TypePtr};

/// The version of the encoding of variants.
const VARIANT_VERSION: i8 = 1;

type Annotated = Result<Option<TypePtr>, ParquetError>;

/// The schema of a file with the columns of `schema` and further ones. `None` if no column needs an annotation.
pub(super) fn annotated(file: &Type, schema: &StructType) -> Annotated {
    of_struct(file, schema)
}

fn of_struct(group: &Type, schema: &StructType) -> Annotated {
    let mut changed = false;
    let mut fields = group.get_fields().to_vec();
    for field in &mut fields {
        let Some(column) = schema.fields.iter().find(|column| column.name == field.name()) else { continue };
        if let Some(new) = of_type(field, &column.data_type)? {
            (*field, changed) = (new, true);
        }
    }
    if changed { rebuilt(group, fields, None).map(Some) } else { Ok(None) }
}

fn of_type(parquet: &TypePtr, data_type: &DataType) -> Annotated {
    match data_type {
        DataType::Variant => {
            rebuilt(parquet, parquet.get_fields().to_vec(), Some(LogicalType::variant(Some(VARIANT_VERSION)))).map(Some)
        }
        DataType::Primitive(PrimitiveType::Geometry { crs }) => {
            shape(parquet, LogicalType::geometry(Some(crs.clone()))).map(Some)
        }
        DataType::Primitive(PrimitiveType::Geography { crs, algorithm }) => match edges(algorithm) {
            Some(edges) => shape(parquet, LogicalType::geography(Some(crs.clone()), Some(edges))).map(Some),
            None => Ok(None),
        },
        DataType::Struct(inner) => of_struct(parquet, inner),
        // The elements of a list and the entries of a map are in a group of their own.
        DataType::Array(array) => within(parquet, &[&array.element]),
        DataType::Map(map) => within(parquet, &[&map.key, &map.value]),
        DataType::Primitive(_) | DataType::Foreign(_) => Ok(None),
    }
}

fn within(outer: &TypePtr, types: &[&DataType]) -> Annotated {
    let [repeated] = outer.get_fields() else { return Ok(None) };
    let mut changed = false;
    let mut fields = repeated.get_fields().to_vec();
    for (field, data_type) in fields.iter_mut().zip(types) {
        if let Some(new) = of_type(field, data_type)? {
            (*field, changed) = (new, true);
        }
    }
    if !changed {
        return Ok(None);
    }
    let repeated = rebuilt(repeated, fields, None)?;
    rebuilt(outer, vec![repeated], None).map(Some)
}

/// The group with these fields, otherwise unchanged.
fn rebuilt(group: &Type, fields: Vec<TypePtr>, meaning: Option<LogicalType>) -> Result<TypePtr, ParquetError> {
    let info = group.get_basic_info();
    let meaning = meaning.or_else(|| info.logical_type_ref().cloned());
    let mut builder = Type::group_type_builder(info.name())
        .with_fields(fields)
        .with_converted_type(info.converted_type())
        .with_logical_type(meaning)
        .with_id(info.has_id().then(|| info.id()));
    if info.has_repetition() {
        builder = builder.with_repetition(info.repetition());
    }
    builder.build().map(Arc::new)
}

fn shape(column: &Type, meaning: LogicalType) -> Result<TypePtr, ParquetError> {
    let info = column.get_basic_info();
    let builder = Type::primitive_type_builder(info.name(), column.get_physical_type())
        .with_repetition(info.repetition())
        .with_logical_type(Some(meaning))
        .with_id(info.has_id().then(|| info.id()));
    builder.build().map(Arc::new)
}

fn edges(algorithm: &str) -> Option<Edges> {
    match algorithm.to_ascii_lowercase().as_str() {
        "spherical" => Some(Edges::SPHERICAL),
        "vincenty" => Some(Edges::VINCENTY),
        "thomas" => Some(Edges::THOMAS),
        "andoyer" => Some(Edges::ANDOYER),
        "karney" => Some(Edges::KARNEY),
        _ => None,
    }
}
