//! `schemaString`: a parsed schema is the same after conversion to JSON or Arrow and back, and has physical names or an
//! error.

use deltic_protocol::schema::arrow::{from_arrow_schema, to_arrow_schema};
use deltic_protocol::schema::json::{parse, to_json};
use deltic_protocol::schema::mapping::{ColumnMapping, field_id};
use deltic_protocol::schema::{DataType, StructType};

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(schema) = parse(text) else { return };
    let printed = to_json(&schema);
    assert_eq!(to_json(&parse(&printed).unwrap()), printed);
    assert_eq!(parse(&printed).unwrap(), schema);

    let arrow = to_arrow_schema(&schema);
    assert_eq!(arrow.fields().len(), schema.fields.len());
    if let Ok(back) = from_arrow_schema(&arrow) {
        let (shown, back) = (shown(&schema), shown(&back));
        // Arrow does not tell variants from structs, nor has it a place for what the bytes in a list mean.
        assert!(shown == back || shown.contains("variant") || shown.contains("geo"), "{shown} became {back}");
    }
    for field in &schema.fields {
        let found = schema.field(&field.name).unwrap();
        assert_eq!(found.name, field.name);
        let _ = field_id(field);
    }
    for mode in [ColumnMapping::None, ColumnMapping::Name, ColumnMapping::Id] {
        if let Ok(physical) = mode.physical_schema(&schema) {
            assert_eq!(leaves(&physical), leaves(&schema));
        }
    }
}

/// Names and types.
fn shown(schema: &StructType) -> String {
    DataType::Struct(std::sync::Arc::new(schema.clone())).to_string()
}

/// How many fields there are, at any depth.
fn leaves(schema: &StructType) -> usize {
    fn of(data_type: &DataType) -> usize {
        match data_type {
            DataType::Primitive(_) | DataType::Variant | DataType::Foreign(_) => 1,
            DataType::Struct(inner) => leaves(inner),
            DataType::Array(array) => of(&array.element),
            DataType::Map(map) => of(&map.key) + of(&map.value),
        }
    }
    schema.fields.iter().map(|field| 1 + of(&field.data_type)).sum()
}
