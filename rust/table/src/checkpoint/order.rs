//! The order of file actions in a checkpoint, so that row groups and sidecars hold neighbours and others can be skipped.
//!
//! Files go by the columns that the table is clustered by, else by its partition columns, unknown first, then by path.
//! Rows are sorted in runs of bounded size as they come: what was in order stays in order, and memory does not grow with
//! the table. Tables with neither kind of column keep the order in which files came, which follows time.
//!
//! PROTOCOL.md: "Clustered Table", "Checkpoint Schema".

use std::pin::Pin;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::SortOptions;
use arrow_select::interleave::interleave_record_batch;
use deltic_protocol::action::DomainMetadata;
use deltic_protocol::log_bounds::TableShape;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use serde::Deserialize;

use super::encode::{PIECE_ROWS, blocking};
use crate::error::{Error, Result};

/// Rows sorted together.
const RUN_ROWS: usize = 500_000;
/// Bytes in memory of rows sorted together.
const RUN_BYTES: usize = 256 * 1024 * 1024;
/// The metadata domain that says by which columns a table is clustered.
const CLUSTERING_DOMAIN: &str = "delta.clustering";

/// What file actions are sorted by.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Order {
    /// Members below `add`, as they stand in the checkpoint.
    keys: Vec<Vec<String>>,
    /// Physical paths of the clustering columns.
    clustering: Vec<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Clustering {
    clustering_columns: Vec<Vec<String>>,
}

impl Order {
    /// The order for a table; `None` if it has no layout that files could follow.
    pub(super) fn of(shape: &TableShape, domains: &[DomainMetadata]) -> Result<Option<Self>> {
        let domain = domains.iter().find(|domain| domain.domain == CLUSTERING_DOMAIN && !domain.removed);
        // What cannot be read gives no order; it is not for a checkpoint to complain.
        let clustering: Option<Clustering> = domain.and_then(|domain| serde_json::from_str(&domain.configuration).ok());
        let clustering = clustering.map(|c| c.clustering_columns).unwrap_or_default();
        let below = |head: &[&str], path: &[String]| -> Vec<String> {
            head.iter().map(|name| (*name).to_owned()).chain(path.iter().cloned()).collect()
        };
        let mut keys: Vec<_> = clustering.iter().map(|path| below(&["stats_parsed", "minValues"], path)).collect();
        if keys.is_empty() {
            for name in &shape.partition_columns {
                let leaf = shape.partition_leaf(name)?;
                keys.push(below(&["partitionValues_parsed"], &leaf.path));
            }
        }
        Ok((!keys.is_empty()).then_some(Self { keys, clustering }))
    }

    /// Physical paths of the clustering columns.
    pub(super) fn clustering(&self) -> &[Vec<String>] {
        &self.clustering
    }

    /// Rows with the members of `add` as columns, in this order within runs of bounded size.
    pub(super) fn sorted(
        self,
        rows: impl Stream<Item = Result<RecordBatch>> + Send,
    ) -> impl Stream<Item = Result<RecordBatch>> + Send {
        let input = Box::pin(rows.fuse());
        stream::try_unfold((self, input, None), |(order, mut input, run)| async move {
            let run = match run {
                Some(run) => run,
                None => match order.next_run(&mut input).await? {
                    Some(run) => run,
                    None => return Ok(None),
                },
            };
            let (piece, rest) = blocking(move || run.piece()).await?;
            Ok(Some((piece, (order, input, rest))))
        })
    }

    async fn next_run<S: Stream<Item = Result<RecordBatch>> + Send>(
        &self,
        input: &mut Pin<Box<S>>,
    ) -> Result<Option<Run>> {
        let (mut pieces, mut rows, mut bytes) = (Vec::new(), 0, 0_usize);
        while rows < RUN_ROWS && bytes < RUN_BYTES {
            let Some(piece) = input.try_next().await? else { break };
            rows += piece.num_rows();
            let memory = |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or_default();
            bytes = bytes.saturating_add(piece.columns().iter().map(memory).sum());
            pieces.push(piece);
        }
        if rows == 0 {
            return Ok(None);
        }
        let order = self.clone();
        blocking(move || Run::new(&order, pieces).map(Some)).await
    }

    /// What to compare of each row, the path last.
    fn columns(&self, rows: &RecordBatch) -> Vec<Option<ArrayRef>> {
        let find = |path: &[String]| {
            let (first, rest) = path.split_first()?;
            let mut found = rows.column_by_name(first)?.clone();
            for name in rest {
                let child = found.as_struct_opt()?.column_by_name(name)?.clone();
                found = child;
            }
            (!found.data_type().is_nested()).then_some(found)
        };
        let path = rows.column_by_name("path").cloned();
        self.keys.iter().map(|key| find(key)).chain([path]).collect()
    }
}

/// Rows in memory, and their order.
struct Run {
    pieces: Vec<RecordBatch>,
    order: Vec<(usize, usize)>,
    /// How many of them were handed out.
    done: usize,
}

impl Run {
    fn new(order: &Order, pieces: Vec<RecordBatch>) -> Result<Self> {
        let mut converter: Option<RowConverter> = None;
        let mut keys: Vec<Rows> = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            // All pieces have the columns of one checkpoint, so that the same ones are there in each.
            let columns: Vec<ArrayRef> = order.columns(piece).into_iter().flatten().collect();
            let converter = match &mut converter {
                Some(converter) => converter,
                None => {
                    let options = SortOptions { descending: false, nulls_first: true };
                    let field = |c: &ArrayRef| SortField::new_with_options(c.data_type().clone(), options);
                    converter.insert(RowConverter::new(columns.iter().map(field).collect())?)
                }
            };
            keys.push(converter.convert_columns(&columns)?);
        }
        let rows = keys.iter().enumerate().flat_map(|(piece, rows)| (0..rows.num_rows()).map(move |row| (piece, row)));
        let mut sorted: Vec<(usize, usize)> = rows.collect();
        let key = |(piece, row): (usize, usize)| keys.get(piece).map(|rows| rows.row(row));
        sorted.sort_by(|a, b| key(*a).cmp(&key(*b)));
        Ok(Self { pieces, order: sorted, done: 0 })
    }

    /// The next rows in order, and the run if there are more.
    fn piece(mut self) -> Result<(RecordBatch, Option<Self>)> {
        let end = self.order.len().min(self.done + PIECE_ROWS);
        let chosen = self.order.get(self.done..end).ok_or_else(|| Error::internal("a run was sorted twice"))?;
        let pieces: Vec<&RecordBatch> = self.pieces.iter().collect();
        let piece = interleave_record_batch(&pieces, chosen)?;
        self.done = end;
        Ok((piece, (end < self.order.len()).then_some(self)))
    }
}
