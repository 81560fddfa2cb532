//! Transactions based on the cached state of a handle ([`HandleState`]), and how they adapt if the table has changed since.
//!
//! Before its commit is put, such a transaction asks the store only whether the base version's commit still exists. If the
//! cached state does not allow a step, the current table is read; appended files are committed to that one if they fit it.
//!
//! PROTOCOL.md: "Commit Protocol", "Schema Evolution".

use std::collections::BTreeSet;

use deltic_protocol::action::Metadata;
use deltic_protocol::commit::{METADATA_ONLY_PROPERTIES, ReadSet};
use deltic_protocol::schema::StructField;

use super::options::Overwrites;
use super::{BaseVersion, FileChanges, HandleState, History, Transaction, Write, check_writable};
use crate::error::Result;
use crate::snapshot::Snapshot;

/// Properties besides those of [`METADATA_ONLY_PROPERTIES`] that make no demands on data files.
const PROPERTIES_WITHOUT_FILE_EFFECT: [&str; 2] = ["delta.appendOnly", "delta.columnMapping.maxColumnId"];

impl Transaction {
    /// Takes a step. If the cached state does not allow it, the table is read, and the step is taken again.
    ///
    /// # Errors
    /// Those of the step and of [`Transaction::snapshot`].
    pub async fn take_step<T>(&mut self, step: impl Fn(&mut Self) -> Result<T>) -> Result<T> {
        match step(self) {
            Err(_) if self.uses_cached_state() => {
                self.snapshot().await?;
                step(self)
            }
            done => done,
        }
    }

    /// A copy for [`Transaction::retry_on_newest_version`], if this only adds rows and is based on a cached state.
    pub(super) fn copy_for_retry(&self) -> Option<Self> {
        let reads_nothing = matches!(self.read, ReadSet::Nothing) && self.options.app_id.is_none();
        let only_adds = self.files.only_adds()
            && self.write.overwrites == Overwrites::Nothing
            && self.table.is_empty()
            && reads_nothing;
        (only_adds && self.uses_cached_state()).then(|| Self {
            base: BaseVersion { snapshot: None, latest: None, ..self.base.clone() },
            write: Write {
                is_write: self.write.is_write,
                engine_evaluates: self.write.engine_evaluates,
                rearrange_only: self.write.rearrange_only,
                file_options: self.write.file_options.clone(),
                ..Write::default()
            },
            files: FileChanges { added: self.files.added.clone(), ..FileChanges::default() },
            history: History { parameters: self.history.parameters.clone(), ..History::default() },
            txn_id: self.txn_id.clone(),
            ..Self::empty(self.log.clone(), self.options.clone(), self.isolation)
        })
    }

    /// The transaction with the same rows, based on the newest version; `None` if their files do not fit the table any more.
    ///
    /// # Errors
    /// `NotFound` if there is no table any more, `Unsupported` if deltic cannot write it.
    pub(super) async fn on_newest_version(mut self) -> Result<Option<Self>> {
        // Opened anew rather than refreshed: there may be a new table at the location.
        let snapshot = Snapshot::open(&self.log, None).await?;
        let state = HandleState::load(&snapshot).await?;
        let after = &state.state;
        check_writable(&after.protocol, &after.metadata, snapshot.shape()).map_err(|e| self.in_table(e))?;
        let Some(before) = self.base.state.as_ref().map(|base| &base.state) else { return Ok(None) };
        let has_statistics = after.clustering.iter().all(|column| before.clustering.contains(column));
        if !has_statistics || !accepts_files_of(&before.metadata, &after.metadata).map_err(|e| self.in_table(e))? {
            return Ok(None);
        }
        self.set_base(state, &snapshot);
        Ok(Some(self))
    }
}

/// Whether files that were written for a table with metadata `before` fit a table with `after`: it may have more
/// nullable columns.
fn accepts_files_of(before: &Metadata, after: &Metadata) -> Result<bool> {
    let keys: BTreeSet<&String> = before.configuration.keys().chain(after.configuration.keys()).collect();
    let same_properties = keys.into_iter().all(|key| {
        let is_free = !key.starts_with("delta.")
            || METADATA_ONLY_PROPERTIES.contains(&key.as_str())
            || PROPERTIES_WITHOUT_FILE_EFFECT.contains(&key.as_str());
        is_free || before.configuration.get(key) == after.configuration.get(key)
    });
    if !same_properties || before.partition_columns != after.partition_columns {
        return Ok(false);
    }
    let (before, after) = (before.schema()?, after.schema()?);
    let is_harmless_key = |key: &String| key == "comment" || key.starts_with("delta.columnMapping.");
    let is_optional_column = |field: &StructField| field.nullable && field.metadata.keys().all(is_harmless_key);
    let keeps = before.fields.iter().all(|field| after.fields.contains(field));
    Ok(keeps && after.fields.iter().all(|field| before.fields.contains(field) || is_optional_column(field)))
}
