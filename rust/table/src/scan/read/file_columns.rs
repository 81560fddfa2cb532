//! The columns of a file, or of a struct in it, by name and by field id.
//!
//! They are indexed once, so that all of thousands of columns are found in one pass. A column is found only if no other
//! column of the file could also be it; otherwise the file is refused.
//!
//! PROTOCOL.md: "Reader Requirements for Column Mapping".

use std::cell::OnceCell;
use std::collections::HashMap;
use std::hash::Hash;

use arrow_schema::{Field, Fields};
use deltic_protocol::error::{Error, Result};
use deltic_protocol::schema::StructField;
use deltic_protocol::schema::mapping::{ColumnMapping, field_id};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;

use crate::scan::task::CHANGE_TYPE;

/// The columns of a file, or the fields of a struct.
pub(super) struct FileColumns<'a> {
    fields: &'a Fields,
    names: HashMap<&'a str, Places>,
    ids: OnceCell<HashMap<i32, Places>>,
    lowercase: OnceCell<HashMap<String, Places>>,
}

/// The positions of a name or an id: the first one, and the second if there is one.
type Places = (usize, Option<usize>);

impl<'a> FileColumns<'a> {
    pub(super) fn new(fields: &'a Fields) -> Self {
        let names = index(fields.iter().map(|field| Some(field.name().as_str())));
        Self { fields, names, ids: OnceCell::new(), lowercase: OnceCell::new() }
    }

    /// The position of a column of the table.
    ///
    /// # Errors
    /// `Corrupt` if two columns may be it; `Unsupported` if a column has its name by another rule than the table's column
    /// mapping.
    pub(super) fn find(&self, field: &StructField, mapping: ColumnMapping) -> Result<Option<usize>> {
        // Writers of change data files give this column neither an id nor a physical name.
        let unmapped = field.name == CHANGE_TYPE && field.metadata.is_empty();
        let mapping = if unmapped { ColumnMapping::None } else { mapping };
        if mapping == ColumnMapping::Id {
            let id = field_id(field).ok_or_else(|| {
                Error::corrupt(format!("column `{}` has no id although the table finds columns by id", field.name))
            })?;
            let ids = self.ids.get_or_init(|| index(self.fields.iter().map(|field| parquet_id(field))));
            return only(ids.get(&id), &field.name);
        }
        let name = mapping.physical_name(field)?;
        if let Some(position) = only(self.names.get(name), name)? {
            return Ok(Some(position));
        }
        let lowercase =
            self.lowercase.get_or_init(|| index(self.fields.iter().map(|field| Some(field.name().to_lowercase()))));
        match lowercase.get(&name.to_lowercase()) {
            Some((position, None)) => return Ok(Some(*position)),
            Some((one, Some(other))) => {
                let called = |position: &usize| self.fields.get(*position).map_or("", |field| field.name());
                return Err(Error::corrupt(format!(
                    "the file has the columns `{}` and `{}`, and either may be column `{name}`; rewrite the file",
                    called(one),
                    called(other)
                )));
            }
            None => {}
        }
        // Treating the column as missing would be a guess: the writer may have used the other kind of name.
        match mapping.other_name(field).filter(|other| self.names.contains_key(other)) {
            None => Ok(None),
            Some(other) => Err(Error::unsupported(
                "columnMapping",
                format!(
                    "the file has no column `{name}`, as the table's metadata calls column `{}`, but it has `{other}`, \
                     and the table's protocol does not say by which of them columns are found; rewrite the file, or \
                     repair the table's protocol, with the client that wrote it",
                    field.name
                ),
            )),
        }
    }
}

/// The field id of a column of a file.
pub(crate) fn parquet_id(field: &Field) -> Option<i32> {
    field.metadata().get(PARQUET_FIELD_ID_META_KEY).and_then(|id| id.parse().ok())
}

fn index<K: Eq + Hash>(keys: impl Iterator<Item = Option<K>>) -> HashMap<K, Places> {
    let mut places: HashMap<K, Places> = HashMap::new();
    for (position, key) in keys.enumerate() {
        let Some(key) = key else { continue };
        places.entry(key).and_modify(|(_, second)| *second = second.or(Some(position))).or_insert((position, None));
    }
    places
}

/// The position, if there is exactly one.
fn only(places: Option<&Places>, name: &str) -> Result<Option<usize>> {
    match places {
        Some((_, Some(_))) => Err(Error::corrupt(format!("the file has column `{name}` twice"))),
        Some((position, None)) => Ok(Some(*position)),
        None => Ok(None),
    }
}
