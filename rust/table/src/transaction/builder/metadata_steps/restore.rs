//! Restores an older version of the table.
//!
//! Clustering columns are those of that version; other domains and `txn` actions stay. The
//! read set is the whole table, and the metadata is written even if it is the same: any concurrent change of either is a
//! conflict.
//!
//! PROTOCOL.md: "Change Metadata", "Clustered Table", "Domain Metadata".

use deltic_protocol::alter::restored;
use deltic_protocol::commit::{Actions, ReadSet};
use deltic_protocol::feature;
use deltic_protocol::property::{IsolationLevel, Properties};
use serde_json::{Map, Value};

use super::super::Transaction;
use crate::commit::load_table_state;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;

impl Transaction {
    /// Makes the table equal to `old`. `files`: `add` actions of files that come back, and `remove` actions of files of the
    /// base.
    ///
    /// # Errors
    /// `Invalid` if the table is append-only and files would be removed, or for what [`restored`] refuses; `Unsupported` if
    /// deltic could not write the table afterwards.
    pub(crate) async fn return_to(&mut self, old: &Snapshot, files: Actions, lowers_protocol: bool) -> Result<()> {
        let newest = self.snapshot().await?;
        self.returned_to(&newest, old, files, lowers_protocol).await.map_err(|e| self.in_table(e))
    }

    async fn returned_to(
        &mut self,
        newest: &Snapshot,
        old: &Snapshot,
        files: Actions,
        lowers_protocol: bool,
    ) -> Result<()> {
        if files.num_removed() > 0 && Properties::of(newest.metadata()).append_only()? {
            let message =
                "the table is append-only (`delta.appendOnly`), so files that were added since cannot be removed";
            return Err(Error::invalid(message));
        }
        let of = |snapshot: &Snapshot| (snapshot.protocol().clone(), snapshot.metadata().clone());
        let (now, then) = (of(newest), of(old));
        let (protocol, metadata) = restored((&now.0, &now.1), (&then.0, &then.1), lowers_protocol)?;
        let after = feature::supported(protocol.as_ref().unwrap_or(&now.0));
        if !after.contains("domainMetadata")
            && let Some(domain) = newest.domains().await?.into_iter().next()
        {
            return Err(Error::invalid(format!(
                "the protocol cannot be lowered: the table has the metadata domain `{}`, which the older one has no feature \
                 for; restore without protocol_downgrade_allowed",
                domain.domain
            )));
        }
        let state = load_table_state(old).await?;
        if state.clustering != self.clustering() {
            self.set_clustering(Some(state.clustering));
        }
        let watermark = self.base.state.as_ref().and_then(|base| base.state.row_id_watermark);
        if let Some(id) = state.row_id_watermark.filter(|_| state.row_id_watermark > watermark) {
            // Row tracking was dropped since, and begins to count again.
            self.set_highest_row_id(id);
        }
        self.set_files(files);
        self.read_whole_table(ReadSet::AllFiles, IsolationLevel::Serializable);
        self.set_table(metadata, protocol);
        Ok(())
    }

    /// Adds and removes existing files: those that are added are not deleted if the commit fails. A transaction
    /// with this step has no other steps that change files.
    pub(crate) fn set_files(&mut self, files: Actions) {
        self.files.only_file_actions = Some(files);
    }

    /// Sets the operation metrics of a transaction that sets files.
    pub(crate) fn count(&mut self, metrics: Map<String, Value>) {
        self.options.metrics = metrics;
    }
}
