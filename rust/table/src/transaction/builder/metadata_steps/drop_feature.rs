//! Removes a feature from the protocol, if the newest version has no trace of it left.
//!
//! Traces in files are searched here; if there are any, the drop is refused with advice, except for row ids, which are
//! removed by adding the files again. The read set is the whole table, since a concurrent writer may use the feature.
//!
//! PROTOCOL.md: "Protocol Evolution", "Disabled Features".

use std::collections::BTreeMap;

use arrow_array::Array;
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::action::{Action, DomainMetadata, Metadata};
use deltic_protocol::alter::{
    Altered, Dropping, OldLog, disabled, find_droppable, logical_clustering, renamed_column, widened_column,
    without_feature, without_properties,
};
use deltic_protocol::commit::{Actions, ROW_TRACKING_DOMAIN, ReadSet};
use deltic_protocol::property::{IsolationLevel, Properties};
use deltic_protocol::schema::assign::count_ids;
use deltic_protocol::schema::mapping::ColumnMapping;
use deltic_protocol::schema::widen::TYPE_CHANGES;
use deltic_protocol::schema::{DataType, PrimitiveType, StructField};
use futures::{TryStreamExt, stream};
use serde_json::{Map, json};

use super::super::Transaction;
use super::super::whole_files::add_again;
use crate::checkpoint::read::AddColumns;
use crate::error::{Error, Result};
use crate::scan::dropped_columns::KnownColumns;
use crate::snapshot::Snapshot;

/// What to do if files use a feature again.
const REWRITE: &str = "rewrite them (`Table.drop_feature`, once more if another writer has added some meanwhile)";

/// Footers that are read at once.
const CONCURRENT_FOOTERS: usize = 64;

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
        let why = match self.old_log(name).map_err(|e| self.in_table(e))? {
            OldLog::Kept => return self.drop_from_protocol(name, Dropping::KeepsLog).await,
            OldLog::ProtectedOrDeleted => "takes several commits, since readers of older versions need it",
            OldLog::Deleted => "deletes old versions first",
        };
        let message = format!("dropping the feature `{name}` {why}: call `Table.drop_feature`");
        Err(self.in_table(Error::invalid(message)))
    }

    /// What happens to the log of older versions when this feature is dropped.
    pub(crate) fn old_log(&self, name: &str) -> Result<OldLog> {
        Ok(find_droppable(self.before()?, name)?.old_log)
    }

    /// Removes the properties that enable a feature, so that no writer begins to use it. Returns whether there were any.
    ///
    /// # Errors
    /// `Invalid` if files cannot be rewritten so that the feature can be dropped.
    pub(crate) async fn unset_feature(&mut self, name: &str) -> Result<bool> {
        let snapshot = self.snapshot().await?;
        refuse_former_dates(&snapshot, name).map_err(|e| self.in_table(e))?;
        let before = self.before()?;
        let droppable = find_droppable(before, name).map_err(|e| self.in_table(e))?;
        let metadata = without_properties(before.metadata, droppable);
        self.change_properties(metadata)
    }

    /// Removes a feature from the metadata, but not from the protocol. Returns whether there was anything to remove.
    /// `checked`: a version of which it is known that its files have no traces.
    pub(crate) async fn disable_feature(&mut self, name: &str, checked: Option<u64>) -> Result<bool> {
        let snapshot = self.snapshot().await?;
        // Deletion vectors are removed later, when no writer adds new ones.
        if name != "deletionVectors" && checked != Some(snapshot.version()) {
            refuse_traces(&snapshot, name).await.map_err(|e| self.in_table(e))?;
        }
        let before = self.before()?;
        let droppable = find_droppable(before, name).map_err(|e| self.in_table(e))?;
        let metadata = disabled(before.metadata, droppable).map_err(|e| self.in_table(e))?;
        self.change_properties(metadata)
    }

    /// Why files do not have just the columns of the schema, under their names there; `None` if they do.
    ///
    /// # Errors
    /// Those of reading the log.
    pub(crate) async fn mapped_files(&mut self) -> Result<Option<String>> {
        let snapshot = self.snapshot().await?;
        mapped_files(&snapshot).await.map_err(|e| self.in_table(e))
    }

    /// Removes column mapping from the metadata. The caller replaces every file by one with the names of the schema.
    ///
    /// # Errors
    /// `Invalid` if a name needs column mapping.
    pub(crate) fn remove_column_mapping(&mut self) -> Result<()> {
        let before = self.before()?;
        let droppable = find_droppable(before, "columnMapping").map_err(|e| self.in_table(e))?;
        let metadata = disabled(before.metadata, droppable).map_err(|e| self.in_table(e))?;
        let clustering = logical_clustering(before)?;
        if clustering != before.clustering {
            self.set_clustering(Some(clustering));
        }
        self.read_everything();
        self.record_operation("REMOVE COLUMN MAPPING", Map::new());
        self.set_table(metadata, None);
        Ok(())
    }

    /// Replaces the metadata, and records the changed properties. Returns whether anything changes.
    fn change_properties(&mut self, metadata: Metadata) -> Result<bool> {
        let before = self.before()?;
        if metadata == *before.metadata {
            return Ok(false);
        }
        let (old, new) = (&before.metadata.configuration, &metadata.configuration);
        let gone: Vec<&String> = old.keys().filter(|key| !new.contains_key(*key)).collect();
        let set: BTreeMap<&String, &String> = new.iter().filter(|(key, value)| old.get(*key) != Some(value)).collect();
        let (operation, parameters) = match set.is_empty() {
            true => {
                let parameters = [("properties", json!(json!(gone).to_string())), ("ifExists", json!(true))];
                ("UNSET TBLPROPERTIES", parameters.to_vec())
            }
            false => ("SET TBLPROPERTIES", vec![("properties", json!(json!(set).to_string()))]),
        };
        let parameters = parameters.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        self.read_everything();
        self.record_operation(operation, parameters);
        self.set_table(metadata, None);
        Ok(true)
    }

    /// Drops a feature. What `dropping` says about the log must have been done.
    pub(crate) async fn drop_from_protocol(&mut self, name: &str, dropping: Dropping) -> Result<()> {
        self.refuse_after_rows("drop features")?;
        let snapshot = self.snapshot().await?;
        refuse_traces(&snapshot, name).await.map_err(|e| self.in_table(e))?;
        let altered = without_feature(self.before()?, name, dropping).map_err(|e| self.in_table(e))?;
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
    let schema = &snapshot.shape().schema;
    let in_use = |what: String, how: &str| {
        Err(Error::invalid(format!("the feature `{name}` cannot be dropped: {what}; {how} first")))
    };
    match name {
        "deletionVectors" => match with_vectors(snapshot).await? {
            0 => Ok(()),
            files => in_use(format!("{files} files have deletion vectors"), "rewrite them without (`Table.purge`)"),
        },
        "columnMapping" => match mapped_files(snapshot).await? {
            Some(why) => in_use(why, REWRITE),
            None => Ok(()),
        },
        "typeWidening" | "typeWidening-preview" => match widened_column(schema) {
            Some(column) if has_other_types(snapshot).await? => {
                in_use(format!("files have columns such as `{column}` in narrower types"), REWRITE)
            }
            Some(_) | None => Ok(()),
        },
        "domainMetadata" => match snapshot.domains().await?.into_iter().next() {
            Some(domain) => in_use(format!("the table has the metadata domain `{}`", domain.domain), "remove it"),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// As [`Transaction::mapped_files`].
async fn mapped_files(snapshot: &Snapshot) -> Result<Option<String>> {
    if snapshot.num_files().await? == 0 {
        return Ok(None);
    }
    let (schema, mapping) = (&snapshot.shape().schema, snapshot.shape().mapping);
    if let Some(column) = renamed_column(schema) {
        return Ok(Some(format!("files have the column `{column}` under another name")));
    }
    if mapping == ColumnMapping::Id {
        return Ok(Some("files may have columns under any name, since they are found by their ids".to_owned()));
    }
    let ids = count_ids(schema);
    if mapping == ColumnMapping::None && ids == 0 {
        // A version before column mapping was restored: the columns of its files are found by their names.
        return Ok(None);
    }
    // Without column mapping, a new column with the name of a dropped one would show its old values, which files still have.
    let may_have_dropped = match Properties::of(snapshot.metadata()).max_column_id()? {
        Some(largest) => usize::try_from(largest).is_ok_and(|largest| ids < largest),
        None => mapping != ColumnMapping::None,
    };
    Ok(may_have_dropped.then(|| "files may have columns that were dropped".to_owned()))
}

/// Refuses a partition column that was widened from `date`: partition values may be dates, which other clients do not read as
/// timestamps.
fn refuse_former_dates(snapshot: &Snapshot, name: &str) -> Result<()> {
    let shape = snapshot.shape();
    let is_former_date = |field: &&StructField| {
        shape.is_partition_column(&field.name)
            && field.metadata.contains_key(TYPE_CHANGES)
            && field.data_type == DataType::Primitive(PrimitiveType::TimestampNtz)
    };
    let Some(field) = shape.schema.fields.iter().find(is_former_date) else { return Ok(()) };
    Err(Error::invalid(format!(
        "the feature `{name}` cannot be dropped: partition values of the column `{}` may be dates without a time; write the \
         rows into a table that is replaced (`deltic.create(mode=\"replace\")`) first",
        field.name
    )))
}

/// Whether a file has a column in another type than the table. Footers are read.
async fn has_other_types(snapshot: &Snapshot) -> Result<bool> {
    let columns = &KnownColumns::of(snapshot)?;
    let live = snapshot.live_files(&AddColumns { members: vec!["path", "size"], ..AddColumns::default() }).await?;
    let files = live.map_ok(|adds| {
        let files: Result<Vec<_>> = (0..adds.len()).map(|row| path_and_size(&adds, row)).collect();
        stream::iter(files.map_or_else(|e| vec![Err(e)], |files| files.into_iter().map(Ok).collect()))
    });
    let look = |(path, size): (String, u64)| async move { columns.have_other_types(&path, size).await };
    let mut looked = std::pin::pin!(files.try_flatten().map_ok(look).try_buffered(CONCURRENT_FOOTERS));
    while let Some(differs) = looked.try_next().await? {
        if differs {
            return Ok(true);
        }
    }
    Ok(false)
}

fn path_and_size(adds: &AddBatch, row: usize) -> Result<(String, u64)> {
    let path = adds.path();
    let size = adds.int64("size").filter(|sizes| sizes.is_valid(row)).map(|sizes| sizes.value(row));
    match (path.is_valid(row).then(|| path.value(row)), size.and_then(|size| u64::try_from(size).ok())) {
        (Some(path), Some(size)) => Ok((path.to_owned(), size)),
        _ => Err(Error::corrupt("a file in the log has no path or no size")),
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
