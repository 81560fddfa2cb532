//! What a caller can do about a value whose type a column does not take: a CAST where there is one, other fields in a struct.

use super::types::{castable, primitive};
use crate::schema::{DataType, StructType};

/// The advice for values of type `from` in a column of type `to`; `fits` decides whether one type can be stored as another.
pub(super) fn advice(from: &DataType, to: &DataType, fits: &dyn Fn(&DataType, &DataType) -> bool) -> String {
    match (from, to) {
        (DataType::Struct(from), DataType::Struct(to)) => of_struct(from, to, fits),
        (DataType::Array(from), DataType::Array(to)) => {
            format!("of its elements: {}", advice(&from.element, &to.element, fits))
        }
        (DataType::Map(from), DataType::Map(to)) => match fits(&from.key, &to.key) {
            false => format!("of its keys: {}", advice(&from.key, &to.key, fits)),
            true => format!("of its values: {}", advice(&from.value, &to.value, fits)),
        },
        (_, DataType::Variant) => "there is no CAST to a variant; pass values of Arrow's variant type".to_owned(),
        _ => match (primitive(from), primitive(to)) {
            (Some(from), Some(to)) if castable(from, to) => "write a CAST if that is meant".to_owned(),
            _ => "there is no CAST between these types; pass values of the column's type".to_owned(),
        },
    }
}

fn of_struct(from: &StructType, to: &StructType, fits: &dyn Fn(&DataType, &DataType) -> bool) -> String {
    let missing = only_in(to, from);
    let unknown = only_in(from, to);
    if !missing.is_empty() {
        return format!(
            "the value lacks {missing}: add what is missing, with NULL if that is meant, or set fields by their paths"
        );
    }
    if !unknown.is_empty() {
        return format!("the column lacks {unknown}: leave out what it lacks, or add it to the table");
    }
    let differs = to.fields.iter().find_map(|field| {
        let given = from.field(&field.name).filter(|given| !fits(&given.data_type, &field.data_type))?;
        Some(format!("of the field `{}`: {}", field.name, advice(&given.data_type, &field.data_type, fits)))
    });
    differs.unwrap_or_else(|| "pass values of the column's type".to_owned())
}

/// The names of the fields that the other struct lacks, for a message.
fn only_in(this: &StructType, other: &StructType) -> String {
    let names = this.fields.iter().filter(|field| other.index_of(&field.name).is_none());
    let names: Vec<String> = names.map(|field| format!("`{}`", field.name)).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => format!("the field {one}"),
        _ => format!("the fields {}", names.join(", ")),
    }
}
