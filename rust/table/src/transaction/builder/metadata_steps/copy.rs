//! Makes a table equal to a version of another table.
//!
//! Clustering columns are copied, and the highest row id, so that rows keep their ids. The `txn` actions of the
//! other table and its other domains are not copied. The read set is the whole table that is replaced.
//!
//! PROTOCOL.md: "Change Metadata", "Row Tracking", "Clustered Table".

use std::collections::BTreeMap;

use deltic_protocol::action::DomainMetadata;
use deltic_protocol::alter::{Alteration, copied};
use deltic_protocol::commit::{Actions, ROW_TRACKING_DOMAIN, ReadSet};
use deltic_protocol::feature;
use deltic_protocol::property::{IsolationLevel, Properties};
use serde_json::json;

use super::super::write::find;
use super::super::{HandleCache, HandleState, Ids, Mode, Transaction, TransactionOptions};
use crate::commit::load_table_state;
use crate::error::{Error, Result};
use crate::log::LogSource;
use crate::snapshot::Snapshot;

/// The properties with the names of the columns for ids and versions of copied rows.
const ROW_COLUMNS: [&str; 2] =
    ["delta.rowTracking.materializedRowIdColumnName", "delta.rowTracking.materializedRowCommitVersionColumnName"];

impl Transaction {
    /// Begins a transaction that makes a new table, or with `replaces` an existing one, equal to `source`.
    ///
    /// # Errors
    /// `TableExists` if there is one and it is not to be replaced; those of [`copied`].
    pub(crate) async fn copy_of(
        source: &Snapshot,
        log: &LogSource,
        cache: HandleCache,
        options: TransactionOptions,
        replaces: bool,
        ids: &dyn Ids,
    ) -> Result<Self> {
        let mut transaction = Self::new(log, options)?;
        match find(log, cache.latest.as_ref()).await? {
            Some(_) if !replaces => return Err(transaction.in_table(Error::table_exists())),
            Some(snapshot) => transaction.set_base(HandleState::load(&snapshot).await?, &snapshot),
            None => transaction.write.mode = if replaces { Mode::Append } else { Mode::Error },
        }
        transaction.check_already_committed().await?;
        let existing = transaction.base.state.as_ref().map(|base| (&base.state.protocol, &base.state.metadata));
        let of_source = (source.protocol(), source.metadata());
        let (protocol, metadata) = copied(of_source, existing, ids.unique()).map_err(|e| transaction.in_table(e))?;
        transaction.set_table(metadata, protocol);
        // All files have ids of the source, or get ids in this commit.
        transaction.every_file_has_ids();
        transaction.txn_id = ids.unique();
        transaction.now_ms = cache.now_ms;
        transaction.read_whole_table(ReadSet::AllFiles, IsolationLevel::Serializable);
        Ok(transaction)
    }

    /// Sets properties of a copy that the source does not have. If only these enable row tracking, its columns keep the
    /// names of the table that is replaced.
    ///
    /// # Errors
    /// As [`Transaction::alter`].
    pub(crate) fn set_properties_of_copy(
        &mut self,
        properties: &BTreeMap<String, String>,
        ids: &dyn Ids,
    ) -> Result<()> {
        let of_source: Vec<&str> = match &self.table.metadata {
            Some(metadata) => ROW_COLUMNS.into_iter().filter(|key| metadata.configuration.contains_key(*key)).collect(),
            None => Vec::new(),
        };
        self.alter(&Alteration::SetProperties(properties.clone()), ids)?;
        let (Some(base), Some(metadata)) = (&self.base.state, &mut self.table.metadata) else { return Ok(()) };
        for key in ROW_COLUMNS.into_iter().filter(|key| !of_source.contains(key)) {
            if let (Some(name), Some(new)) =
                (base.state.metadata.configuration.get(key), metadata.configuration.get_mut(key))
            {
                new.clone_from(name);
            }
        }
        Ok(())
    }

    /// Whether the commit gives row ids to files that have none.
    ///
    /// # Errors
    /// `Corrupt` if a property cannot be read.
    pub(crate) fn gives_row_ids(&self) -> Result<bool> {
        let (protocol, metadata) = self.protocol_and_metadata()?;
        let is_suspended = Properties::of(metadata).is_true("delta.rowTrackingSuspended")?;
        Ok(feature::supported(protocol).contains("rowTracking") && !is_suspended)
    }

    /// The version that is replaced, if there is one.
    pub(crate) fn replaced(&self) -> Option<&Snapshot> {
        self.base.snapshot.as_ref()
    }

    /// Sets the files of a copy. Returns whether it differs from the table that is replaced.
    ///
    /// # Errors
    /// `Invalid` if that is append-only and files would be removed; those of reading the log.
    pub(crate) async fn become_like(&mut self, source: &Snapshot, files: Actions) -> Result<bool> {
        let existing = self.base.state.as_ref().map(|base| &base.state);
        if let Some(state) = existing.filter(|_| files.num_removed() > 0)
            && Properties::of(&state.metadata).append_only()?
        {
            let message = "the existing table is append-only (`delta.appendOnly`), so its files cannot be removed";
            return Err(self.in_table(Error::invalid(message)));
        }
        let state = load_table_state(source).await?;
        let is_same = existing.is_some_and(|existing| self.table.metadata.as_ref() == Some(&existing.metadata))
            && self.table.protocol.is_none()
            && files.is_empty()
            && self.clustering() == state.clustering;
        let tracks_rows = feature::supported(self.protocol_and_metadata()?.0).contains("rowTracking");
        if self.clustering() != state.clustering {
            self.set_clustering(Some(state.clustering));
        }
        let before = self.base.state.as_ref().and_then(|base| base.state.row_id_watermark);
        if let Some(id) = state.row_id_watermark.max(before).filter(|_| tracks_rows) {
            self.set_highest_row_id(id);
        }
        self.set_files(files);
        Ok(!is_same)
    }

    /// Records that files have row ids up to this one.
    pub(super) fn set_highest_row_id(&mut self, id: i64) {
        let configuration = json!({"rowIdHighWaterMark": id}).to_string();
        let domain = ROW_TRACKING_DOMAIN.to_owned();
        self.set_own_domain(DomainMetadata { domain, configuration, removed: false });
    }
}
