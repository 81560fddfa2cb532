//! The steps of a transaction that concern no rows: a new table, its metadata, features, domains.
//!
//! PROTOCOL.md: "Change Metadata", "Protocol Evolution", "Domain Metadata".

use std::collections::BTreeMap;

use deltic_protocol::action::{DomainMetadata, Metadata, Protocol};
use deltic_protocol::alter::{CLUSTERING_FEATURE, clustering_paths, constraint_key, name_new_columns};
use deltic_protocol::property::{Properties, stored};
use deltic_protocol::schema::{StructType, json};
use deltic_protocol::validation::MAX_COLUMN_ID;
use deltic_protocol::{feature, validation};
use serde_json::{Map, json};

use super::write::find;
use super::{
    CreateMode, Derived, HandleCache, HandleState, Ids, TableDefinition, Transaction, TransactionOptions,
    check_writable,
};
use crate::error::{Error, Result};
use crate::log::LogSource;

mod alter;
mod copy;
mod drop_feature;
mod restore;

impl Transaction {
    /// Begins a transaction that creates an empty table, or replaces an existing one by an empty one. If the mode
    /// keeps the existing one, it does nothing.
    ///
    /// # Errors
    /// `Invalid` if no table can have the schema, or the existing table is append-only; `TableExists` if there is a
    /// table already and `NotFound` if there is none, by the mode; `Unsupported` if deltic cannot write it.
    pub async fn create(
        log: &LogSource,
        cache: HandleCache,
        table: TableDefinition,
        mode: CreateMode,
        ids: &dyn Ids,
        now_ms: i64,
    ) -> Result<Self> {
        let options = TransactionOptions { operation: mode.operation().to_owned(), ..TransactionOptions::default() };
        let mut transaction = Self::new(log, options)?;
        match (find(log, cache.latest.as_ref()).await?, mode) {
            (Some(_), CreateMode::Error) => return Err(transaction.in_table(Error::table_exists())),
            (Some(snapshot), CreateMode::Ignore) => {
                transaction.already_committed_version = Some(snapshot.version());
                return Ok(transaction);
            }
            (None, CreateMode::Replace) => {
                let message = "there is no table to replace; create one, or use the mode `create_or_replace`";
                return Err(transaction.in_table(Error::not_found(message)));
            }
            (None, _) => {}
            (Some(snapshot), CreateMode::Replace | CreateMode::CreateOrReplace) => {
                transaction.set_base(HandleState::load(&snapshot).await?, &snapshot);
                transaction.check_writable().map_err(|e| transaction.in_table(e))?;
                transaction.overwrite()?;
            }
        }
        let cluster_by = table.cluster_by.clone();
        transaction.define(table, ids, now_ms).map_err(|e| transaction.in_table(e))?;
        if transaction.base.state.is_some() {
            // The new table keeps the features of the existing one.
            transaction.check_writable().map_err(|e| transaction.in_table(e))?;
        }
        transaction.record_definition(&cluster_by);
        transaction.txn_id = ids.unique();
        Ok(transaction)
    }

    /// Sets the protocol and metadata of a new table; if it replaces an existing one, with what the history needs.
    pub(in crate::transaction::builder) fn define(
        &mut self,
        mut table: TableDefinition,
        ids: &dyn Ids,
        now_ms: i64,
    ) -> Result<()> {
        for (name, expression) in &table.constraints {
            table.properties.insert(constraint_key(name), expression.clone());
        }
        if !table.cluster_by.is_empty() {
            table.properties.insert(CLUSTERING_FEATURE.to_owned(), "supported".to_owned());
        }
        let replaced = self.base.state.as_ref().map(|base| &base.state);
        let protocol = match replaced {
            None => Some(feature::protocol_for(&table.schema, &table.properties)?),
            Some(old) => {
                let (nothing, schema) = (StructType::default(), &table.schema);
                feature::upgraded(&old.protocol, (&nothing, schema), &table.properties)?
            }
        };
        let mut metadata = Metadata {
            id: ids.unique(),
            name: table.name,
            description: table.description,
            format: Default::default(),
            schema_string: String::new(),
            partition_columns: Vec::new(),
            created_time: Some(now_ms),
            configuration: stored(&table.properties),
        };
        if let Some(largest) = table.largest_column_id {
            metadata.configuration.insert(MAX_COLUMN_ID.to_owned(), largest.to_string());
        }
        if let Some(old) = replaced {
            keep_history(&old.metadata, &mut metadata)?;
        }
        let schema = name_new_columns(&table.schema, &mut metadata, &mut || ids.unique())?;
        validation::check_new(&schema, &mut table.partition_by, &metadata.configuration)?;
        metadata.schema_string = json::to_json(&schema);
        metadata.partition_columns = table.partition_by;
        let clustering = clustering_paths(&schema, &metadata, &table.cluster_by)?;
        if !(self.clustering().is_empty() && clustering.is_empty()) {
            self.set_clustering(Some(clustering).filter(|columns| !columns.is_empty()));
        }
        (self.table.metadata, self.table.protocol) = (Some(metadata), protocol);
        self.derived = Derived::default();
        let (protocol, metadata) = self.protocol_and_metadata()?;
        feature::check_rules(protocol, metadata, &schema)
    }

    /// Records the definition of a table for the history.
    fn record_definition(&mut self, cluster_by: &[String]) {
        let Some(metadata) = &self.table.metadata else { return };
        let parameters = [
            ("clusterBy", json!(json!(cluster_by).to_string())),
            ("isManaged", json!("false")),
            ("description", json!(metadata.description)),
            ("partitionBy", json!(json!(metadata.partition_columns).to_string())),
            ("properties", json!(json!(metadata.configuration).to_string())),
        ];
        self.history.parameters = parameters.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    }

    /// Records that every live file of the base has row ids, and so will new files.
    pub(crate) fn every_file_has_ids(&mut self) {
        self.base.all_files_have_row_ids = true;
    }

    /// Adds a feature to the table's protocol.
    ///
    /// # Errors
    /// `Invalid` if there is no such feature or the table lacks features that it needs, `Unsupported` if deltic does not
    /// know it, or could not write the table with it.
    pub fn add_feature(&mut self, name: &str) -> Result<()> {
        if self.already_committed_version.is_some() {
            return Ok(());
        }
        let upgraded = self.with_feature(name).map_err(|e| self.in_table(e))?;
        if upgraded.is_some() {
            self.table.protocol = upgraded;
            self.derived = Derived::default();
        }
        let protocol = json!(json!(self.protocol_and_metadata()?.0).to_string());
        self.history.operations.push(("UPGRADE PROTOCOL", Map::from_iter([("newProtocol".to_owned(), protocol)])));
        Ok(())
    }

    fn with_feature(&mut self, name: &str) -> Result<Option<Protocol>> {
        let properties = BTreeMap::from([(format!("delta.feature.{name}"), "supported".to_owned())]);
        let shape = self.shape_after()?;
        let (protocol, metadata) = self.protocol_and_metadata()?;
        let schema = &*shape.schema;
        let upgraded = feature::upgraded(protocol, (schema, schema), &properties)?;
        if let Some(upgraded) = &upgraded {
            check_writable(upgraded, metadata, &shape)?;
        }
        Ok(upgraded)
    }

    /// Sets the configuration of a metadata domain, or removes the domain.
    ///
    /// # Errors
    /// `Invalid` for a domain that only writers set, and if the table does not have the feature `domainMetadata`.
    pub fn set_domain(&mut self, domain: &str, configuration: Option<&str>) -> Result<()> {
        if self.already_committed_version.is_some() {
            return Ok(());
        }
        if domain.is_empty() || domain.get(..6).is_some_and(|head| head.eq_ignore_ascii_case("delta.")) {
            let message =
                format!("the metadata domain `{domain}` cannot be set: names that begin with `delta.` are reserved");
            return Err(self.in_table(Error::invalid(message)));
        }
        if !feature::supported(self.protocol_and_metadata()?.0).contains("domainMetadata") {
            let message = "the table does not have the feature `domainMetadata`; add it first (`add_feature`)";
            return Err(self.in_table(Error::invalid(message)));
        }
        let (name, removed) = (domain.to_owned(), configuration.is_none());
        let configuration = configuration.unwrap_or_default().to_owned();
        self.table.domains.insert(name.clone(), DomainMetadata { domain: name, configuration, removed });
        Ok(())
    }
}

/// Keeps properties that older versions still need when a new table replaces theirs.
fn keep_history(old: &Metadata, new: &mut Metadata) -> Result<()> {
    let keep = |new: &mut Metadata, key: &str| {
        if let Some(value) = old.configuration.get(key) {
            new.configuration.insert(key.to_owned(), value.clone());
        }
    };
    keep(new, "delta.requireCheckpointProtectionBeforeVersion");
    // Column ids that were assigned are not assigned again.
    keep(new, MAX_COLUMN_ID);
    let carries_time = |metadata: &Metadata| Properties::of(metadata).is_true("delta.enableInCommitTimestamps");
    if carries_time(old)? && carries_time(new)? {
        keep(new, "delta.inCommitTimestampEnablementVersion");
        keep(new, "delta.inCommitTimestampEnablementTimestamp");
    }
    Ok(())
}
