//! The files of a version that OPTIMIZE may rewrite.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch, RecordBatchOptions};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{Field, Schema};
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::action::{Add, PartitionValues};
use deltic_protocol::log_bounds::{LogBounds, TableShape, statistics};
use deltic_protocol::predicate::{BoundPredicate, keep, parse};
use deltic_protocol::prune;
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};

use crate::checkpoint::read::AddColumns;
use crate::error::{Error, Result};
use crate::scan::plan::files_in_partitions::files_in;
use crate::snapshot::Snapshot;

/// A live file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Candidate {
    /// Its `add` action, without statistics.
    pub(super) add: Add,
    /// Rows in the Parquet file, deleted ones included, if the statistics say.
    pub(super) physical_rows: Option<u64>,
}

impl Candidate {
    /// Its size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        u64::try_from(self.add.size).unwrap_or_default()
    }

    /// How many of its rows are deleted.
    pub(super) fn deleted(&self) -> u64 {
        let cardinality = self.add.deletion_vector.as_ref().map_or(0, |vector| vector.cardinality);
        u64::try_from(cardinality).unwrap_or_default()
    }

    /// The value of a tag.
    pub(super) fn tag(&self, name: &str) -> Option<&str> {
        self.add.tags.as_ref()?.get(name)?.as_deref()
    }
}

/// The files of a version.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Live files.
    pub(super) total: u64,
    /// Live files in the requested partitions.
    pub(super) considered: u64,
    /// Those of them that may be rewritten.
    pub(super) candidates: Vec<Candidate>,
}

/// A condition that chooses partitions.
///
/// # Errors
/// `Invalid` if it does not parse, does not fit the columns, or asks about other columns.
pub(super) fn partition_filter(text: Option<&str>, shape: &TableShape) -> Result<Option<BoundPredicate>> {
    let Some(text) = text else { return Ok(None) };
    let bound = parse(text)?.bind(&shape.schema)?;
    let is_other = |name: &&String| !shape.is_partition_column(name);
    let columns = bound.columns();
    if let Some(column) = columns.iter().filter_map(|column| column.path.first()).find(is_other) {
        let partitions = match shape.partition_columns.is_empty() {
            true => "the table has none".to_owned(),
            false => format!("those are {}", shape.partition_columns.join(", ")),
        };
        return Err(Error::invalid(format!(
            "OPTIMIZE takes whole files, so its condition is about partition columns ({partitions}), and `{column}` is \
             not one; leave it out of the condition"
        )));
    }
    Ok(Some(bound))
}

/// Lists the live files. Of those that match `filter`, it collects the ones for which `may_be_rewritten` is true.
pub(super) async fn list(
    snapshot: &Snapshot,
    filter: Option<&BoundPredicate>,
    mut may_be_rewritten: impl FnMut(&Candidate) -> bool,
) -> Result<Listed> {
    let mut live = std::pin::pin!(snapshot.live_files(&columns()).await?);
    let mut listed = Listed::default();
    while let Some(adds) = live.try_next().await? {
        listed.total += adds.len() as u64;
        let adds = match filter {
            Some(filter) => {
                let bounds = LogBounds::of_partitions(&adds, snapshot.shape(), &filter.columns())?;
                let adds = adds.filter(prune::keep(filter, &bounds)?)?;
                adds.filter(matching(filter, &adds, snapshot.shape())?)?
            }
            None => adds,
        };
        listed.take(&adds, &mut may_be_rewritten)?;
    }
    Ok(listed)
}

/// The files for whose partition values the condition is TRUE. It is evaluated, since pruning by bounds skips expressions.
fn matching(filter: &BoundPredicate, adds: &AddBatch, shape: &TableShape) -> Result<BooleanBuffer> {
    let columns = filter.columns();
    let names: BTreeSet<&String> = columns.iter().filter_map(|column| column.path.first()).collect();
    let (mut fields, mut values) = (Vec::new(), Vec::new());
    for name in names {
        let array = shape.partition_values(adds, name)?;
        fields.push(Field::new(name, array.data_type().clone(), true));
        values.push(array);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(adds.len()));
    let rows = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), values, &options)?;
    Ok(keep(&filter.evaluate(&rows)?).values().clone())
}

/// Lists the live files of these partitions.
pub(super) async fn list_in(
    snapshot: &Snapshot,
    partitions: &BTreeSet<PartitionValues>,
    mut may_be_rewritten: impl FnMut(&Candidate) -> bool,
) -> Result<Listed> {
    let mut listed = Listed::default();
    for adds in files_in(snapshot, partitions, &columns()).await? {
        listed.total += adds.len() as u64;
        listed.take(&adds, &mut may_be_rewritten)?;
    }
    Ok(listed)
}

fn columns() -> AddColumns {
    let members = vec![
        "path",
        "partitionValues",
        "size",
        "modificationTime",
        "deletionVector",
        "baseRowId",
        "defaultRowCommitVersion",
        "tags",
        "clusteringProvider",
    ];
    AddColumns { members, num_records: true, ..AddColumns::default() }
}

impl Listed {
    fn take(&mut self, adds: &AddBatch, may_be_rewritten: &mut impl FnMut(&Candidate) -> bool) -> Result<()> {
        self.considered += adds.len() as u64;
        let counts = statistics(adds, &[])?.num_records;
        for row in 0..adds.len() {
            let physical_rows =
                counts.is_valid(row).then(|| counts.value(row)).and_then(|rows| u64::try_from(rows).ok());
            let candidate = Candidate { add: adds.sized_add(row)?, physical_rows };
            if may_be_rewritten(&candidate) {
                self.candidates.push(Candidate { add: Add { stats: None, ..candidate.add }, physical_rows });
            }
        }
        Ok(())
    }
}
