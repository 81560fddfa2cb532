//! What a transaction sets beside rows: a new table, its metadata, features, domains.
//!
//! PROTOCOL.md: "Change Metadata", "Protocol Evolution", "Domain Metadata".

use std::collections::BTreeMap;

use deltic_protocol::action::{DomainMetadata, Metadata, Protocol};
use deltic_protocol::property::{Properties, check_settable, check_unset, is_instruction, stored};
use deltic_protocol::schema::{StructType, evolve, json};
use deltic_protocol::{feature, validation};
use serde_json::json;

use super::write::find;
use super::{Ids, Known, TableDefinition, Transaction, TransactionOptions, check_writable};
use crate::error::{Error, Result};
use crate::storage::Storage;

/// New names for a table's metadata; what is `None` stays.
#[derive(Debug, Clone, Default)]
pub struct MetadataChange {
    /// Name for people.
    pub name: Option<String>,
    /// Description for people.
    pub description: Option<String>,
    /// The schema, whole.
    pub schema: Option<StructType>,
    /// Properties to set.
    pub properties: BTreeMap<String, String>,
    /// Properties to take away.
    pub unset: Vec<String>,
}

impl Transaction {
    /// Begins a transaction that creates an empty table.
    ///
    /// # Errors
    /// `Invalid` if the schema cannot be a table's; `TableExists` if there is a table already.
    pub async fn create(
        storage: &Storage,
        known: Known,
        table: TableDefinition,
        (ids, now_ms): (&dyn Ids, i64),
    ) -> Result<Self> {
        let options = TransactionOptions { operation: "CREATE TABLE".to_owned(), ..TransactionOptions::default() };
        let mut begun = Self::new(storage, options)?;
        if find(storage, known.latest.as_ref()).await?.is_some() {
            return Err(begun.placed(Error::table_exists()));
        }
        let parameters = [
            ("isManaged", json!("false")),
            ("description", json!(table.description)),
            ("partitionBy", json!(json!(table.partition_by).to_string())),
            ("properties", json!(json!(table.properties).to_string())),
        ];
        begun.parameters = parameters.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        begun.define(table, (ids, now_ms)).map_err(|e| begun.placed(e))?;
        begun.txn_id = ids.unique();
        Ok(begun)
    }

    /// Gives a new table its protocol and metadata.
    pub(super) fn define(&mut self, mut table: TableDefinition, (ids, now_ms): (&dyn Ids, i64)) -> Result<()> {
        let protocol = feature::protocol_for(&table.schema, &table.properties)?;
        let mut configuration = stored(&table.properties);
        validation::check_new(&table.schema, &mut table.partition_by, &configuration)?;
        name_row_tracking_columns(&mut configuration, ids)?;
        self.metadata = Some(Metadata {
            id: ids.unique(),
            name: table.name,
            description: table.description,
            format: Default::default(),
            schema_string: json::print(&table.schema),
            partition_columns: table.partition_by,
            created_time: Some(now_ms),
            configuration,
        });
        self.protocol = Some(protocol);
        self.shape = None;
        Ok(())
    }

    /// Says that every live file of the version that is read has row ids, and that those to come will.
    pub(crate) fn every_file_has_ids(&mut self) {
        self.has_ids = true;
    }

    /// Columns are resolved by the metadata of the snapshot, so who changes it reads first.
    pub(super) fn refuse_after_metadata(&self, what: &str) -> Result<()> {
        match &self.metadata {
            None => Ok(()),
            Some(_) => {
                let message = format!("the metadata was changed in this transaction already; {what} before that");
                Err(self.placed(Error::invalid(message)))
            }
        }
    }

    /// Changes the table's metadata, adding to the protocol what new properties need.
    ///
    /// # Errors
    /// `Invalid` if no table may have such metadata or go to it from what it has, if the metadata was changed in this
    /// transaction already, or if rows were written under the old one.
    pub fn set_metadata(&mut self, change: MetadataChange, ids: &dyn Ids) -> Result<()> {
        if self.replayed.is_some() {
            return Ok(());
        }
        if self.metadata.is_some() {
            let message = "the metadata was changed in this transaction already; change it once";
            return Err(self.placed(Error::invalid(message)));
        }
        if !self.added.is_empty() || !self.rows.is_empty() {
            let message =
                "rows were written under the old metadata in this transaction; change the metadata before that";
            return Err(self.placed(Error::invalid(message)));
        }
        let (after, protocol) = self.changed(change, ids).map_err(|e| self.placed(e))?;
        self.protocol = protocol.or(self.protocol.take());
        self.metadata = Some(after);
        (self.shape, self.planned) = (None, None);
        Ok(())
    }

    /// The metadata after a change, and the protocol if that has to change for it.
    fn changed(&self, change: MetadataChange, ids: &dyn Ids) -> Result<(Metadata, Option<Protocol>)> {
        let (protocol, before) = self.after()?;
        check_settable(&change.properties)?;
        let mut after = before.clone();
        after.name = change.name.or(after.name);
        after.description = change.description.or(after.description);
        if let Some(schema) = &change.schema {
            let known = before.schema()?;
            after.schema_string = json::print(&evolve::replace(&known, schema));
        }
        for key in &change.unset {
            check_unset(key)?;
            if is_instruction(key) || after.configuration.remove(key).is_none() {
                return Err(Error::invalid(format!("the property `{key}` is not set, so it cannot be unset")));
            }
        }
        after.configuration.extend(stored(&change.properties));
        name_row_tracking_columns(&mut after.configuration, ids)?;
        validation::check_change(before, &after)?;
        let enables = Properties::of(&after).is_true("delta.enableRowTracking")?
            && !Properties::of(before).is_true("delta.enableRowTracking")?;
        if enables && !self.has_ids {
            let message = "row tracking is enabled on a table by giving ids to the files that it has, which takes several \
                           commits: call `Table.enable_row_tracking`";
            return Err(Error::invalid(message));
        }
        let schema = after.schema()?;
        let upgraded = feature::upgraded(protocol, &schema, &change.properties)?;
        feature::check_writable(upgraded.as_ref().unwrap_or(protocol), &after, &schema)?;
        Ok((after, upgraded))
    }

    /// Adds a feature to the table's protocol.
    ///
    /// # Errors
    /// `Invalid` if there is no such feature or the table has not the ones that it needs, `Unsupported` if deltic does not
    /// follow it, or could not write the table with it.
    pub fn add_feature(&mut self, name: &str) -> Result<()> {
        if self.replayed.is_some() {
            return Ok(());
        }
        let upgraded = self.with_feature(name).map_err(|e| self.placed(e))?;
        if upgraded.is_some() {
            self.protocol = upgraded;
            (self.shape, self.planned) = (None, None);
        }
        Ok(())
    }

    fn with_feature(&mut self, name: &str) -> Result<Option<Protocol>> {
        let properties = BTreeMap::from([(format!("delta.feature.{name}"), "supported".to_owned())]);
        let shape = self.shape_after()?;
        let (protocol, metadata) = self.after()?;
        let upgraded = feature::upgraded(protocol, &shape.schema, &properties)?;
        if let Some(upgraded) = &upgraded {
            check_writable((upgraded, metadata), &shape)?;
        }
        Ok(upgraded)
    }

    /// Sets the configuration of a metadata domain, or removes the domain.
    ///
    /// # Errors
    /// `Invalid` for a domain that only writers set, and if the table does not have the feature `domainMetadata`.
    pub fn set_domain(&mut self, domain: &str, configuration: Option<&str>) -> Result<()> {
        if self.replayed.is_some() {
            return Ok(());
        }
        if domain.is_empty() || domain.get(..6).is_some_and(|head| head.eq_ignore_ascii_case("delta.")) {
            let message =
                format!("the metadata domain `{domain}` cannot be set: names that begin with `delta.` are taken");
            return Err(self.placed(Error::invalid(message)));
        }
        if !feature::supported(self.after()?.0).contains("domainMetadata") {
            let message = "the table does not have the feature `domainMetadata`; add it first (`add_feature`)";
            return Err(self.placed(Error::invalid(message)));
        }
        let (name, removed) = (domain.to_owned(), configuration.is_none());
        let configuration = configuration.unwrap_or_default().to_owned();
        self.domains.insert(name.clone(), DomainMetadata { domain: name, configuration, removed });
        Ok(())
    }
}

/// Where row tracking is enabled, rewritten files keep ids in columns whose names no other column has.
fn name_row_tracking_columns(configuration: &mut BTreeMap<String, String>, ids: &dyn Ids) -> Result<()> {
    if Properties::new(configuration).is_true("delta.enableRowTracking")? {
        for (key, prefix) in [
            ("delta.rowTracking.materializedRowIdColumnName", "_row-id-col-"),
            ("delta.rowTracking.materializedRowCommitVersionColumnName", "_row-commit-version-col-"),
        ] {
            configuration.entry(key.to_owned()).or_insert_with(|| format!("{prefix}{}", ids.unique()));
        }
    }
    Ok(())
}
