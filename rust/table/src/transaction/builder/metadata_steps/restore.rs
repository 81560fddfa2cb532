//! Going back to an older version of the table.
//!
//! Clustering columns are those of that version; other domains stay, and so does what applications have committed. What was
//! read is the whole table, and the metadata is written even if it is the same: whoever changes either meanwhile is in the
//! way.
//!
//! PROTOCOL.md: "Change Metadata", "Clustered Table", "Domain Metadata".

use deltic_protocol::alter::restored;
use deltic_protocol::commit::{Actions, ReadSet};
use deltic_protocol::feature;
use deltic_protocol::property::{IsolationLevel, Properties};
use serde_json::{Map, Value};

use super::super::Transaction;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::transaction::state_of;

impl Transaction {
    /// Makes the table what `old` is. `files`: those of it that come back, and those of the base that go.
    ///
    /// # Errors
    /// `Invalid` if the table is append-only and files go, or for what [`restored`] refuses; `Unsupported` if deltic could not
    /// write the table then.
    pub(crate) async fn return_to(&mut self, old: &Snapshot, files: Actions, lowers_protocol: bool) -> Result<()> {
        let newest = self.snapshot().await?;
        self.returned_to((&newest, old), files, lowers_protocol).await.map_err(|e| self.in_table(e))
    }

    async fn returned_to(
        &mut self,
        (newest, old): (&Snapshot, &Snapshot),
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
        let state = state_of(old).await?;
        if state.clustering != self.clustering() {
            self.set_clustering(Some(state.clustering));
        }
        let given = self.base.as_ref().and_then(|base| base.state.row_id_watermark);
        if let Some(id) = state.row_id_watermark.filter(|_| state.row_id_watermark > given) {
            // Row tracking was dropped meanwhile, and counts anew.
            self.set_highest_row_id(id);
        }
        self.set_files(files);
        self.read_whole_table(ReadSet::EveryFile, IsolationLevel::Serializable);
        self.set_table(metadata, protocol);
        Ok(())
    }

    /// Adds and removes files that exist, as they are: those that are added are not deleted if the commit fails. A transaction
    /// that does so does nothing else to files.
    pub(crate) fn set_files(&mut self, files: Actions) {
        self.set_files = Some(files);
    }

    /// What history is operations in numbers of a transaction that sets files.
    pub(crate) fn count(&mut self, metrics: Map<String, Value>) {
        self.options.metrics = metrics;
    }
}
