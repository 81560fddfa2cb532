//! The differences between two versions of a schema, column by column.

use crate::schema::mapping::MatchBy;
use crate::schema::{DataType, StructField, StructType};

/// The difference of one column. Paths go from the top, through `element`, `key` and `value`.
#[derive(Debug, Clone, PartialEq)]
pub enum Difference {
    /// It is new.
    Added {
        /// Its path in the new schema.
        path: Vec<String>,
        /// What it is.
        field: StructField,
    },
    /// It is not there any more.
    Dropped {
        /// Its path in the old schema.
        path: Vec<String>,
    },
    /// It has another name. Differences inside it have its old path.
    Renamed {
        /// Its path in the old schema.
        path: Vec<String>,
        /// Its name now.
        name: String,
    },
    /// It, or something inside it, was nullable and is not any more.
    Tightened {
        /// Its path in the old schema.
        path: Vec<String>,
    },
    /// It is of another type.
    Retyped {
        /// Its path in the old schema.
        path: Vec<String>,
        /// The type that it had.
        from: DataType,
        /// The type that it has.
        to: DataType,
    },
}

/// Every difference, in the order of `before`, then new columns.
pub fn differences(before: &StructType, after: &StructType, match_by: MatchBy) -> Vec<Difference> {
    let mut differences = Vec::new();
    compare(before, after, &[], match_by, &mut differences);
    differences
}

fn compare(
    before: &StructType,
    after: &StructType,
    above: &[String],
    match_by: MatchBy,
    differences: &mut Vec<Difference>,
) {
    for old in &before.fields {
        let path = below(above, &old.name);
        let Some(new) = after.fields.iter().find(|new| match_by.is_same(old, new)) else {
            differences.push(Difference::Dropped { path });
            continue;
        };
        if old.name != new.name {
            differences.push(Difference::Renamed { path: path.clone(), name: new.name.clone() });
        }
        if old.nullable && !new.nullable {
            differences.push(Difference::Tightened { path: path.clone() });
        }
        compare_types(&old.data_type, &new.data_type, &path, match_by, differences);
    }
    for new in after.fields.iter().filter(|new| before.fields.iter().all(|old| !match_by.is_same(old, new))) {
        differences.push(Difference::Added { path: below(above, &new.name), field: new.clone() });
    }
}

fn compare_types(
    before: &DataType,
    after: &DataType,
    path: &[String],
    match_by: MatchBy,
    differences: &mut Vec<Difference>,
) {
    match (before, after) {
        (DataType::Struct(old), DataType::Struct(new)) => compare(old, new, path, match_by, differences),
        (DataType::Array(old), DataType::Array(new)) => {
            let path = below(path, "element");
            if old.contains_null && !new.contains_null {
                differences.push(Difference::Tightened { path: path.clone() });
            }
            compare_types(&old.element, &new.element, &path, match_by, differences);
        }
        (DataType::Map(old), DataType::Map(new)) => {
            compare_types(&old.key, &new.key, &below(path, "key"), match_by, differences);
            let path = below(path, "value");
            if old.value_contains_null && !new.value_contains_null {
                differences.push(Difference::Tightened { path: path.clone() });
            }
            compare_types(&old.value, &new.value, &path, match_by, differences);
        }
        (from, to) if from == to => {}
        (from, to) => differences.push(Difference::Retyped { path: path.to_vec(), from: from.clone(), to: to.clone() }),
    }
}

fn below(above: &[String], name: &str) -> Vec<String> {
    above.iter().cloned().chain([name.to_owned()]).collect()
}
