//! Removes a feature from the protocol, if the newest version has no trace of it left.
//!
//! Traces in files are searched here; if there are any, the drop is refused with advice, except for row ids, which are
//! removed by adding the files again. The read set is the whole table, since a concurrent writer may use the feature.
//!
//! PROTOCOL.md: "Protocol Evolution", "Disabled Features".

use arrow_array::Array;
use deltic_protocol::action::{Action, DomainMetadata};
use deltic_protocol::alter::{Altered, disabled, find_droppable, renamed_column, widened_column, without_feature};
use deltic_protocol::commit::{Actions, ROW_TRACKING_DOMAIN, ReadSet};
use deltic_protocol::property::{IsolationLevel, Properties};
use deltic_protocol::schema::assign::count_ids;
use deltic_protocol::validation::MAX_COLUMN_ID;
use futures::TryStreamExt;
use serde_json::json;

use super::super::Transaction;
use super::super::whole_files::add_again;
use crate::checkpoint::read::AddColumns;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;

impl Transaction {
    /// Drops a feature whose traces in older versions do no harm.
    ///
    /// # Errors
    /// `Invalid` if the table does not have the feature or it cannot be dropped, if traces of it are left, with what to do,
    /// or if dropping it needs several commits.
    pub async fn drop_feature(&mut self, name: &str) -> Result<()> {
        if self.already_committed_version.is_some() {
            return Ok(());
        }
        self.snapshot().await?;
        if self.guards_history(name).map_err(|e| self.in_table(e))? {
            let message = format!(
                "dropping the feature `{name}` takes several commits, since readers of older versions need it: call \
                 `Table.drop_feature`"
            );
            return Err(self.in_table(Error::invalid(message)));
        }
        self.drop_from_protocol(name, false).await
    }

    /// Whether checkpoints must keep readers from older versions before this feature is dropped.
    pub(crate) fn guards_history(&self, name: &str) -> Result<bool> {
        Ok(find_droppable(self.before()?, name)?.guards_history)
    }

    /// Removes a feature from the metadata, but not from the protocol. Returns whether there was anything to remove.
    pub(crate) async fn disable_feature(&mut self, name: &str) -> Result<bool> {
        let snapshot = self.snapshot().await?;
        // Deletion vectors are removed later, when no writer adds new ones.
        if name != "deletionVectors" {
            refuse_traces(&snapshot, name).await.map_err(|e| self.in_table(e))?;
        }
        let before = self.before()?;
        let droppable = find_droppable(before, name).map_err(|e| self.in_table(e))?;
        let metadata = disabled(before.metadata, droppable).map_err(|e| self.in_table(e))?;
        if metadata == *before.metadata {
            return Ok(false);
        }
        let gone = before.metadata.configuration.keys().filter(|key| !metadata.configuration.contains_key(*key));
        let gone: Vec<&String> = gone.collect();
        let parameters = [("properties", json!(json!(gone).to_string())), ("ifExists", json!(true))];
        let parameters = parameters.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        self.read_everything();
        self.record_operation("UNSET TBLPROPERTIES", parameters);
        self.set_table(metadata, None);
        Ok(true)
    }

    /// Drops a feature. `guards`: whether there are checkpoints that keep readers from older versions.
    pub(crate) async fn drop_from_protocol(&mut self, name: &str, guards: bool) -> Result<()> {
        self.refuse_after_rows("drop features")?;
        let snapshot = self.snapshot().await?;
        refuse_traces(&snapshot, name).await.map_err(|e| self.in_table(e))?;
        let altered = without_feature(self.before()?, name, guards).map_err(|e| self.in_table(e))?;
        let Altered { metadata, protocol, operation, parameters, .. } = altered;
        match name {
            "rowTracking" => {
                if !self.files.removed.is_empty() {
                    let message = "the transaction has removed files already, and dropping `rowTracking` adds all files of the \
                                   table again; commit first";
                    return Err(self.in_table(Error::invalid(message)));
                }
                self.re_add(without_ids(&snapshot).await.map_err(|e| self.in_table(e))?);
                let domain = ROW_TRACKING_DOMAIN.to_owned();
                let removed = DomainMetadata { domain: domain.clone(), configuration: String::new(), removed: true };
                self.set_own_domain(removed);
            }
            "domainMetadata" if self.table.domains.values().any(|domain| !domain.removed) => {
                let message = "the transaction has set a metadata domain already; drop `domainMetadata` in another one";
                return Err(self.in_table(Error::invalid(message)));
            }
            "clustering" => self.set_clustering(None),
            _ => {}
        }
        self.read_everything();
        self.record_operation(operation, parameters);
        self.set_table(metadata, protocol);
        Ok(())
    }

    /// Makes every concurrent commit a conflict.
    fn read_everything(&mut self) {
        self.read_whole_table(ReadSet::AllFiles, IsolationLevel::Serializable);
    }
}

/// Refuses a feature that the files or domains of a version use.
async fn refuse_traces(snapshot: &Snapshot, name: &str) -> Result<()> {
    let (schema, mapping) = (&snapshot.shape().schema, snapshot.shape().mapping);
    let in_use = |what: String, how: &str| {
        Err(Error::invalid(format!("the feature `{name}` cannot be dropped: {what}; {how} first")))
    };
    let again = "write the rows into a table that is replaced (`deltic.create(mode=\"replace\")`)";
    match name {
        "deletionVectors" => match with_vectors(snapshot).await? {
            0 => Ok(()),
            files => in_use(format!("{files} files have deletion vectors"), "rewrite them without (`Table.purge`)"),
        },
        "columnMapping" if snapshot.num_files().await? > 0 => {
            if let Some(column) = renamed_column(schema, mapping) {
                return in_use(format!("files have the column `{column}` under another name"), again);
            }
            let largest = Properties::of(snapshot.metadata()).get(MAX_COLUMN_ID).and_then(|id| id.trim().parse().ok());
            match largest {
                // Without column mapping, a new column with the name of a dropped one would show its old values, which
                // files still have.
                Some(largest) if count_ids(schema) < largest => {
                    in_use("files may have columns that were dropped".to_owned(), again)
                }
                _ => Ok(()),
            }
        }
        "typeWidening" | "typeWidening-preview" if snapshot.num_files().await? > 0 => match widened_column(schema) {
            Some(column) => in_use(format!("files may have the column `{column}` in a narrower type"), again),
            None => Ok(()),
        },
        "domainMetadata" => match snapshot.domains().await?.into_iter().next() {
            Some(domain) => in_use(format!("the table has the metadata domain `{}`", domain.domain), "remove it"),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// How many files have a deletion vector.
async fn with_vectors(snapshot: &Snapshot) -> Result<usize> {
    let columns = AddColumns { members: vec!["path", "deletionVector"], ..AddColumns::default() };
    let mut live = std::pin::pin!(snapshot.live_files(&columns).await?);
    let mut found = 0;
    while let Some(adds) = live.try_next().await? {
        for row in 0..adds.len() {
            found += usize::from(adds.deletion_vector(row)?.is_some());
        }
    }
    Ok(found)
}

/// The files that have row ids, without them.
async fn without_ids(snapshot: &Snapshot) -> Result<Actions> {
    let mut actions = Actions::re_add();
    let mut live = std::pin::pin!(snapshot.live_files(&AddColumns::all()).await?);
    while let Some(adds) = live.try_next().await? {
        let has = |name: &str, row: usize| adds.int64(name).is_some_and(|ids| ids.is_valid(row));
        let rows = (0..adds.len()).filter(|row| has("baseRowId", *row) || has("defaultRowCommitVersion", *row));
        for mut add in add_again(&adds, rows)? {
            (add.base_row_id, add.default_row_commit_version) = (None, None);
            actions.push(Action::Add(add))?;
        }
    }
    Ok(actions)
}
