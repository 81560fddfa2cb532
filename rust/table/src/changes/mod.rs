//! The change data feed: which rows each commit inserted, updated and deleted.
//!
//! [`ChangeFeed::plan`] decides which commits are read, and makes the checks that are possible before reading them;
//! [`ChangeFeed::read`] is a lazy stream over them, oldest first, that opens a bounded number of commits and files at a
//! time. A commit with change files is read from those alone; the changes of others follow from the files that
//! they add and remove (`files`). Rows have the schema of the range's last version (`shape`).
//!
//! Invariant: a range in which the feed was off somewhere, or whose rows do not fit that schema, fails with the version
//! that is the reason, and never gives fewer rows. If the reason is inside the range, the stream fails when it gets there.
//! Proved by `tests/rust/table/changes.rs`.
//!
//! PROTOCOL.md: "Add CDC File", "Reader Requirements for AddCDCFile", "Change Data Files".

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_buffer::BooleanBuffer;
use arrow_schema::SchemaRef;
use deltic_protocol::predicate::{BoundPredicate, keep};
use deltic_protocol::schema::{DataType, StructField, StructType, TableSchema};
use futures::{Stream, StreamExt};

use crate::error::{Error, Result};
use crate::log::LogSource;
use crate::scan::filter::ScanFilter;
use crate::scan::read::{ReadOptions, Reader};
use crate::scan::row_tracking;
use crate::scan::task::{CHANGE_TYPE, ReadSpec};
use crate::snapshot::Snapshot;

mod columns;
mod commits;
mod files;
mod range;
mod shape;

pub use columns::{COMMIT_TIMESTAMP, COMMIT_VERSION};
use commits::{Commit, TableAtCommit};
pub use range::Bound;

/// The changes between two versions, both included. Cloning is cheap beside reading.
#[derive(Debug, Clone)]
pub struct ChangeFeed {
    log: LogSource,
    spec: ReadSpec,
    schema: SchemaRef,
    versions: Option<RangeInclusive<u64>>,
    /// The table at the first commit, and the schema of the rows; `None` if no commit is read.
    first: Option<TableAtCommit>,
    commits: Vec<Commit>,
}

impl ChangeFeed {
    /// Plans the feed from `start` (version 0) to `end` (the newest version): of `columns` (all of the table's and the
    /// feed's own three), the rows that make `filter` TRUE. Both may name any of these columns.
    ///
    /// # Errors
    /// `NotFound` for versions that are not or no longer in the log; `Invalid` for a range that ends before it starts,
    /// in which the feed was off, or whose first schema does not fit into the last, and for columns or filters that do
    /// not fit; otherwise those of [`Snapshot::open`].
    pub async fn plan(
        log: &LogSource,
        start: Option<Bound>,
        end: Option<Bound>,
        columns: Option<&[String]>,
        filter: Option<&str>,
    ) -> Result<Self> {
        let feed = Self::plan_range(log, start.unwrap_or(Bound::Version(0)), end, columns, filter).await;
        feed.map_err(|e| e.in_table(log.location()))
    }

    async fn plan_range(
        log: &LogSource,
        start: Bound,
        end: Option<Bound>,
        columns: Option<&[String]>,
        filter: Option<&str>,
    ) -> Result<Self> {
        let range = range::resolve(log, start, end).await?;
        let last = Snapshot::open(log, range.last()).await?;
        let mut spec = read_spec(&last, columns)?;
        // Binds columns and filter, so that a mistake in them is an error before anything is read.
        let schema = Reader::new(log.storage().clone(), spec.clone())?.schema();
        spec.filter = ScanFilter::bind_some(filter, &spec.schema)?;
        let mut feed = Self { log: log.clone(), spec, schema, versions: None, first: None, commits: Vec::new() };
        let Some(versions) = range.versions(last.version())? else { return Ok(feed) };
        feed.versions = Some(versions.clone());
        feed.commits = commits::list(log, versions, last.metadata()).await?;
        if let Some(filter) = &feed.spec.filter {
            trim(&mut feed.commits, &*filter.bound(&feed.spec.schema)?)?;
        }
        if let Some(commit) = feed.commits.first() {
            let first = match commit.version() {
                version if version == last.version() => last.clone(),
                version => Snapshot::open(log, Some(version)).await?,
            };
            feed.first = Some(TableAtCommit::new(&first, &last)?);
        }
        Ok(feed)
    }

    /// The versions that were asked for; `None` for a range between two commits.
    pub fn versions(&self) -> Option<RangeInclusive<u64>> {
        self.versions.clone()
    }

    /// Schema of the rows.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The changes, in the order of the versions. To be polled inside a tokio runtime. Ends after the first error.
    pub fn read(&self, options: ReadOptions) -> Result<impl Stream<Item = Result<RecordBatch>> + Send + use<>> {
        let reader = Reader::new(self.log.storage().clone(), self.spec.clone())?;
        let tasks = commits::tasks(self.log.clone(), self.commits.clone(), self.first.clone());
        let location = self.log.location().to_owned();
        Ok(reader.read_stream(tasks, options).map(move |rows| {
            rows.map_err(|e| if e.is_not_found() { missing_file(e) } else { e }.in_table(location.clone()))
        }))
    }
}

/// A file of the range is not there any more.
fn missing_file(missing: Error) -> Error {
    let message = "a file with changes is gone, most likely because VACUUM removed it; start at a later version, whose \
                   files are still there";
    let error = Error::version_not_found(message, None, None);
    match missing.path() {
        Some(path) => error.in_file(path),
        None => error,
    }
}

/// The columns that the feed adds to the table's.
fn feed_columns() -> [StructField; 3] {
    [
        StructField::new(CHANGE_TYPE, DataType::STRING, false),
        StructField::new(COMMIT_VERSION, DataType::LONG, false),
        StructField::new(COMMIT_TIMESTAMP, DataType::TIMESTAMP, false),
    ]
}

/// The read spec, without the filter.
fn read_spec(last: &Snapshot, columns: Option<&[String]>) -> Result<ReadSpec> {
    let shape = last.shape();
    let mut schema = StructType::clone(&shape.schema);
    let own: BTreeSet<String> = feed_columns().iter().map(|field| field.name.to_lowercase()).collect();
    if let Some(taken) = schema.fields.iter().find(|field| own.contains(&field.name.to_lowercase())) {
        return Err(Error::invalid(format!(
            "the table has a column `{}`, which is the name of a column of the change data feed; rename it",
            taken.name
        ))
        .at_version(last.version()));
    }
    schema.fields.extend(feed_columns());
    if let Some(name) =
        columns.iter().copied().flatten().find(|name| row_tracking::is_column(name) && schema.field(name).is_none())
    {
        return Err(Error::unsupported(name, format!("the change data feed has no column `{name}`; leave it out")));
    }
    let schema = TableSchema::from(schema);
    let all = || schema.fields.iter().map(|field| field.name.clone()).collect();
    let columns = columns.map_or_else(all, <[String]>::to_vec);
    Ok(ReadSpec { schema, ..ReadSpec::new(shape, columns) })
}

/// Drops commits at both ends whose versions the filter rules out, so that they are not fetched. Those in between
/// stay, because of their protocol and metadata; their files are ruled out one by one.
fn trim(commits: &mut Vec<Commit>, bound: &BoundPredicate) -> Result<()> {
    let by_version = |conjunct: &&BoundPredicate| {
        let columns = conjunct.columns();
        !columns.is_empty() && columns.iter().all(|column| column.path == [COMMIT_VERSION])
    };
    let versions = commits.iter().map(|commit| i64::try_from(commit.version()).unwrap_or(i64::MAX));
    let versions: ArrayRef = Arc::new(Int64Array::from_iter_values(versions));
    let batch = RecordBatch::try_from_iter([(COMMIT_VERSION, versions)])?;
    let mut wanted = BooleanBuffer::new_set(commits.len());
    for conjunct in bound.split_conjuncts().into_iter().filter(by_version) {
        wanted = &wanted & keep(&conjunct.evaluate(&batch)?).values();
    }
    let mut wanted = wanted.set_indices();
    let Some(first) = wanted.next() else {
        commits.clear();
        return Ok(());
    };
    commits.truncate(wanted.last().unwrap_or(first).saturating_add(1));
    commits.drain(..first);
    Ok(())
}
