//! Steps that change the table's metadata and not its rows.
//!
//! Each step is computed on the result of the steps before it, so that several become one commit. They come before rows are
//! added or changed; only the schema evolution of a merge may come later, since it leaves files valid that have been written.
//!
//! PROTOCOL.md: "Change Metadata", "Protocol Evolution".

use deltic_protocol::action::{DomainMetadata, Metadata, Protocol};
use deltic_protocol::alter::{Alteration, Before, MetadataChange, alter};
use deltic_protocol::commit::{CLUSTERING_DOMAIN, ReadSet};
use deltic_protocol::feature;
use deltic_protocol::property::{IsolationLevel, Properties};
use serde_json::{Map, Value, json};

use super::super::{Derived, Ids, Transaction};
use crate::error::{Error, Result};

/// The operation in the history if there are several steps.
const SEVERAL: &str = "TRANSACTION";

impl Transaction {
    /// Changes the table's metadata, and adds the features that this needs to the protocol.
    ///
    /// # Errors
    /// `Invalid` if the new metadata is invalid or cannot follow the old one, or if rows were written under the old one;
    /// `Unsupported` if deltic could not write the table afterwards.
    pub fn alter(&mut self, alteration: &Alteration, ids: &dyn Ids) -> Result<()> {
        if self.already_committed_version.is_some() {
            return Ok(());
        }
        self.refuse_after_rows("change the metadata")?;
        self.altered(alteration, ids).map_err(|e| self.in_table(e))
    }

    /// As [`Transaction::alter`], also if rows were written before: they must be valid under the new metadata, too.
    pub(in crate::transaction::builder) fn altered(&mut self, alteration: &Alteration, ids: &dyn Ids) -> Result<()> {
        let before = self.before()?;
        let Before { protocol, metadata, .. } = before;
        let altered = alter(before, alteration, &mut || ids.unique())?;
        let after = Properties::of(&altered.metadata);
        let enables = after.is_true("delta.enableRowTracking")?
            && !Properties::of(metadata).is_true("delta.enableRowTracking")?;
        if enables && !self.base.all_files_have_row_ids && self.base.state.is_some() {
            let message = "enabling row tracking gives ids to existing files, which takes several commits: call \
                           `Table.enable_row_tracking`";
            return Err(Error::invalid(message));
        }
        let schema = altered.metadata.schema()?;
        feature::check_writable(altered.protocol.as_ref().unwrap_or(protocol), &altered.metadata, &schema)?;
        let is_changed = altered.metadata != *metadata;
        if is_changed || altered.protocol.is_some() {
            let metadata = if is_changed { Some(altered.metadata) } else { self.table.metadata.take() };
            (self.table.metadata, self.table.protocol) = (metadata, altered.protocol.or(self.table.protocol.take()));
        }
        if let Some(columns) = altered.clustering {
            self.set_clustering(Some(columns));
        }
        self.derived = Derived::default();
        if !matches!(alteration, Alteration::Set(_)) {
            self.history.operations.push((altered.operation, altered.parameters));
        }
        Ok(())
    }

    /// The table that the next step changes.
    pub(in crate::transaction::builder) fn before(&self) -> Result<Before<'_>> {
        let (protocol, metadata) = self.protocol_and_metadata()?;
        let version = self.base.state.as_ref().map_or(0, |base| base.state.version.saturating_add(1));
        Ok(Before { protocol, metadata, clustering: self.clustering(), version })
    }

    /// Refuses a change of the metadata after rows were written.
    pub(in crate::transaction::builder) fn refuse_after_rows(&self, what: &str) -> Result<()> {
        match self.files.added.is_empty() && self.files.rows.is_empty() {
            true => Ok(()),
            false => {
                let message =
                    format!("rows were written under the old metadata in this transaction; {what} before writing rows");
                Err(self.in_table(Error::invalid(message)))
            }
        }
    }

    /// Sets the metadata and, if given, the protocol of the table.
    pub(in crate::transaction::builder) fn set_table(&mut self, metadata: Metadata, protocol: Option<Protocol>) {
        self.table.metadata = Some(metadata);
        self.table.protocol = protocol.or(self.table.protocol.take());
        self.derived = Derived::default();
    }

    /// Records the operation of a step for the history.
    pub(in crate::transaction::builder) fn record_operation(
        &mut self,
        operation: &'static str,
        parameters: Map<String, Value>,
    ) {
        self.history.operations.push((operation, parameters));
    }

    /// Sets a domain that only writers set.
    pub(in crate::transaction::builder) fn set_own_domain(&mut self, domain: DomainMetadata) {
        self.table.domains.insert(domain.domain.clone(), domain);
    }

    /// Adds to the read set, and sets the isolation level.
    pub(crate) fn read_whole_table(&mut self, read: ReadSet, isolation: IsolationLevel) {
        self.read.extend(read);
        self.isolation = Some(isolation);
    }

    /// Physical paths of the columns by which the table will be clustered.
    pub(in crate::transaction::builder) fn clustering(&self) -> &[Vec<String>] {
        let of_base = || self.base.state.as_ref().map_or(&[][..], |base| &base.state.clustering);
        self.table.clustering.as_deref().unwrap_or_else(of_base)
    }

    /// Clusters the table by these columns; none removes the domain of clustering.
    pub(in crate::transaction::builder) fn set_clustering(&mut self, columns: Option<Vec<Vec<String>>>) {
        let removed = columns.is_none();
        let configuration = match &columns {
            Some(columns) => json!({"clusteringColumns": columns, "domainName": CLUSTERING_DOMAIN}).to_string(),
            None => String::new(),
        };
        let domain = CLUSTERING_DOMAIN.to_owned();
        self.table.domains.insert(domain.clone(), DomainMetadata { domain, configuration, removed });
        self.table.clustering = Some(columns.unwrap_or_default());
        self.derived = Derived::default();
    }

    /// Changes the table's metadata as a whole.
    ///
    /// # Errors
    /// As [`Transaction::alter`].
    pub fn set_metadata(&mut self, change: MetadataChange, ids: &dyn Ids) -> Result<()> {
        self.alter(&Alteration::Set(change), ids)
    }

    /// Name and parameters of the operation: the caller's, or otherwise those of its steps.
    pub(in crate::transaction::builder) fn take_operation(&mut self) -> (String, Map<String, Value>) {
        let (operation, parameters) =
            (std::mem::take(&mut self.options.operation), std::mem::take(&mut self.history.parameters));
        let mut operations = std::mem::take(&mut self.history.operations);
        let (name, steps) = match (operations.pop(), operations.is_empty()) {
            (None, _) => (SEVERAL, Map::new()),
            (Some((name, parameters)), true) => (name, parameters),
            (Some(last), false) => {
                let all = operations.into_iter().chain([last]);
                let steps: Vec<Value> = all
                    .map(|(name, parameters)| json!({"operation": name, "operationParameters": parameters}))
                    .collect();
                (SEVERAL, Map::from_iter([("operations".to_owned(), json!(json!(steps).to_string()))]))
            }
        };
        let operation = if operation.is_empty() { name.to_owned() } else { operation };
        (operation, if parameters.is_empty() { steps } else { parameters })
    }
}
