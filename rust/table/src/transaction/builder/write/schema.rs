//! Schema changes by a write whose rows have other columns than the table: these are added, or replace the table's columns.
//!
//! The new metadata is computed before any file is written, from the schema of the rows, and is part of the commit
//! that adds the files.
//!
//! Proved by `tests/python/test_schema_mode.py`.
//!
//! PROTOCOL.md: "Change Metadata", "Type Widening", "Column Mapping".

use std::collections::BTreeMap;

use arrow_schema::Schema;
use deltic_protocol::alter::{MetadataChange, name_new_columns};
use deltic_protocol::property::Properties;
use deltic_protocol::schema::arrow::{check_new_geometries, from_rows_schema};
use deltic_protocol::schema::evolve::{merge, overwrite};
use deltic_protocol::schema::{StructType, json, path};
use deltic_protocol::{feature, validation};

use crate::error::{Error, Result};
use crate::transaction::builder::options::{SchemaMode, WriteOptions};
use crate::transaction::builder::{Derived, Ids, Transaction};

impl Transaction {
    /// Changes the table's columns to fit rows with `schema`, by the options.
    ///
    /// # Errors
    /// `Invalid` if the table cannot have these columns, or the rows are only rearranged; `Unsupported` if deltic could not
    /// write the table afterwards.
    pub(super) fn evolve(&mut self, schema: &Schema, options: &WriteOptions, ids: &dyn Ids) -> Result<()> {
        let Some(mode) = options.schema_mode else { return Ok(()) };
        let changes = match mode {
            SchemaMode::Merge => self.merge_schema(schema, ids)?,
            SchemaMode::Overwrite => self.overwrite_schema(schema, options.partition_by.as_ref(), ids)?,
        };
        if changes && options.rearrange_only {
            return Err(Error::invalid(
                "the data has other columns than the table, so it does not only rearrange rows; leave data_change=False \
                 out",
            ));
        }
        Ok(())
    }

    /// Adds the columns that the table lacks, and widens types if its properties allow it.
    fn merge_schema(&mut self, rows: &Schema, ids: &dyn Ids) -> Result<bool> {
        let current = self.protocol_and_metadata()?.1.schema()?;
        let merged = merge(&current, &columns_of_rows(rows, &current)?, self.widens_types()?);
        if merged == *current {
            return Ok(false);
        }
        self.set_metadata(MetadataChange { schema: Some(merged), ..MetadataChange::default() }, ids)?;
        Ok(true)
    }

    /// Whether a column is widened for values of a wider type.
    ///
    /// # Errors
    /// `Corrupt` for a property that cannot be read.
    pub(crate) fn widens_types(&self) -> Result<bool> {
        let (protocol, metadata) = self.protocol_and_metadata()?;
        let features = feature::supported(protocol);
        let has_feature = ["typeWidening", "typeWidening-preview"].iter().any(|name| features.contains(*name));
        Ok(has_feature && Properties::of(metadata).is_true("delta.enableTypeWidening")?)
    }

    /// Replaces the table's columns by those of the rows, and the partitioning if another one is given.
    fn overwrite_schema(&mut self, rows: &Schema, by: Option<&Vec<String>>, ids: &dyn Ids) -> Result<bool> {
        let (protocol, before) = self.protocol_and_metadata()?;
        let current = before.schema()?;
        let mut metadata = before.clone();
        check_new_geometries(rows.fields(), &StructType::default())?;
        let replaced = overwrite(&current, &from_rows_schema(rows)?);
        let schema = name_new_columns(&replaced, &mut metadata, &mut || ids.unique())?;
        metadata.partition_columns = by.unwrap_or(&before.partition_columns).clone();
        if let Some(gone) = metadata.partition_columns.iter().find(|name| schema.field(name).is_none()) {
            let hint = if by.is_none() { "; pass the new partition columns as partition_by" } else { "" };
            return Err(Error::invalid(format!(
                "the table would be partitioned by `{gone}`, and the data has no such column{hint}"
            )));
        }
        validation::check_replaced(before, &schema, &mut metadata)?;
        self.check_clustering(&schema)?;
        metadata.schema_string = json::to_json(&schema);
        if schema == *current && metadata.partition_columns == before.partition_columns {
            return Ok(false);
        }
        let upgraded = feature::upgraded(protocol, (&current, &schema), &BTreeMap::new())?;
        feature::check_writable(upgraded.as_ref().unwrap_or(protocol), &metadata, &schema)?;
        self.table.protocol = upgraded.or(self.table.protocol.take());
        self.table.metadata = Some(metadata);
        self.derived = Derived::default();
        Ok(true)
    }

    /// Refuses a schema without the clustering columns.
    fn check_clustering(&self, schema: &StructType) -> Result<()> {
        let Some(base) = &self.base.state else { return Ok(()) };
        let mapping = Properties::of(&base.state.metadata).column_mapping_mode()?;
        match base.state.clustering.iter().find(|column| mapping.logical_path(schema, column).is_none()) {
            None => Ok(()),
            Some(column) => {
                let current = base.state.metadata.schema()?;
                let shown = mapping.logical_path(&current, column).unwrap_or_else(|| column.clone());
                Err(Error::invalid(format!(
                    "the table is clustered by `{}`, and the data has no such column of the same type; cluster the table \
                     by others first",
                    path::print(&shown)
                )))
            }
        }
    }
}

/// The columns of the rows. If the table has a column already, rows may have it in an Arrow type that no table has, since
/// the values may fit.
fn columns_of_rows(rows: &Schema, current: &StructType) -> Result<StructType> {
    check_new_geometries(rows.fields(), current)?;
    let mut fields = Vec::with_capacity(rows.fields().len());
    for field in rows.fields() {
        match from_rows_schema(&Schema::new(vec![field.clone()])) {
            Ok(one) => fields.extend(one.fields),
            Err(error) if current.field(field.name()).is_none() => return Err(error),
            Err(_) => {}
        }
    }
    Ok(StructType::new(fields))
}
