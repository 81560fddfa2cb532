//! Folders such as `day=2013-01-01/hour=3`, which hold the values of partition columns, as Hive and Spark name them.

use std::borrow::Cow;

use deltic_protocol::action::PartitionValues;
use deltic_protocol::error::{Error, Result};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::{PrimitiveType, StructType, with_article};
use percent_encoding::percent_decode_str;

use crate::write::layout::NULL_DIRECTORY;

/// The partition columns of the folders, in their order.
#[derive(Debug)]
pub(super) struct Folders {
    columns: Vec<(String, PrimitiveType)>,
}

impl Folders {
    /// # Errors
    /// `Invalid` for a column whose type cannot be a partition value in a directory name.
    pub(super) fn of(partition_schema: &StructType) -> Result<Self> {
        let column = |field: &deltic_protocol::schema::StructField| match field.data_type.as_primitive() {
            Some(primitive) => Ok((field.name.clone(), primitive.clone())),
            None => Err(Error::invalid(format!(
                "the partition column `{}` is {}, of which no folder has a value; give it a primitive type",
                field.name,
                with_article(&field.data_type)
            ))),
        };
        partition_schema.fields.iter().map(column).collect::<Result<_>>().map(|columns| Self { columns })
    }

    /// Whether a path may be that of a data file: neither its name nor one of its folders is hidden.
    pub(super) fn may_hold_data(&self, path: &str) -> bool {
        let is_hidden = |name: &str| name.starts_with(['_', '.']);
        let mut parts = path.split('/');
        let file = parts.next_back().unwrap_or_default();
        !is_hidden(file) && parts.all(|folder| !is_hidden(folder) || self.is_partition(folder))
    }

    fn is_partition(&self, folder: &str) -> bool {
        pair(folder).is_some_and(|(name, _)| self.columns.iter().any(|(column, _)| *column == name))
    }

    /// The partition values of a file, from the names of its folders.
    ///
    /// # Errors
    /// `Invalid` if the directories are not those of the partition columns, or a value does not have the column's type.
    pub(super) fn values(&self, path: &str) -> Result<PartitionValues> {
        let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders);
        let found: Vec<(String, String)> = folders.split('/').filter_map(pair).collect();
        if !found.iter().map(|(name, _)| name).eq(self.columns.iter().map(|(name, _)| name)) {
            return Err(self.mismatch(&found));
        }
        let value = |((name, primitive), (_, value)): (&(String, PrimitiveType), &(String, String))| {
            let string = Some(value.as_str()).filter(|value| *value != NULL_DIRECTORY);
            let parsed = Scalar::parse_partition(string, primitive).map_err(|_| {
                Error::invalid(format!(
                    "the folder says `{value}` for the partition column `{name}`, which is not a value of type {primitive}; \
                     give the column another type in partition_schema"
                ))
            })?;
            Ok((name.clone(), parsed.print_partition()?))
        };
        self.columns.iter().zip(&found).map(value).collect()
    }

    fn mismatch(&self, found: &[(String, String)]) -> Error {
        let list = |names: Vec<&str>| match names.is_empty() {
            true => "no partition columns".to_owned(),
            false => format!("the partition columns [{}]", names.join(", ")),
        };
        let folders = list(found.iter().map(|(name, _)| name.as_str()).collect());
        let given = list(self.columns.iter().map(|(name, _)| name.as_str()).collect());
        Error::invalid(format!(
            "the file's folders have {folders}, and partition_schema has {given}; give their names and types in order, \
             such as partition_schema={{\"day\": \"date\"}}"
        ))
    }
}

/// The column and the value in the name of a partition folder.
fn pair(folder: &str) -> Option<(String, String)> {
    let (name, value) = folder.split_once('=')?;
    let plain = |string: &str| percent_decode_str(string).decode_utf8().ok().map(Cow::into_owned);
    Some((plain(name).filter(|name| !name.is_empty())?, plain(value)?))
}
