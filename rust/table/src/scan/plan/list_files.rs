//! The live files of a table with all that the log records of them, as columns.
//!
//! PROTOCOL.md: "Add File and Remove File", "Per-file Statistics".

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType as ArrowType, Field, Fields, Schema, SchemaRef};
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::log_bounds::statistics;
use deltic_protocol::schema::DataType;
use deltic_protocol::schema::arrow::to_arrow_type;
use deltic_protocol::stats::read::Leaf;
use futures::stream::{Stream, TryStreamExt};

use super::columns::{base_columns, base_fields, struct_field, structure};
use super::row_groups::{TASK_MEMBERS, on_worker_thread};
use super::{prune_adds, pruning};
use crate::checkpoint::read::AddColumns;
use crate::error::Result;
use crate::scan::filter::ScanFilter;
use crate::snapshot::Snapshot;

/// How many batches are made at once.
const CONCURRENT_BATCHES: usize = 4;

/// The live files with all that the log records of them, as typed columns, batch by batch.
///
/// Columns: `path`, `size`, `modification_time` (ms), `partition` (struct of typed values), `num_records`, `min`, `max`,
/// `null_count` (structs with one field for each leaf column, named by its path with dots, a part that has a dot or a
/// back-tick in back-ticks). A struct without fields is left out: `partition` of a table without partitions, the last
/// three if no column can have statistics.
pub async fn list_files(
    snapshot: &Snapshot,
    filter: Option<&str>,
) -> Result<(SchemaRef, impl Stream<Item = Result<RecordBatch>> + Send + use<>)> {
    let location = snapshot.storage().location().to_owned();
    let shape = snapshot.shape().clone();
    let pruning = ScanFilter::bind_some(filter, &shape.schema)
        .and_then(|filter| pruning(&shape, filter.as_ref()))
        .map_err(|e| e.in_table(&location))?;
    let leaves: Vec<(String, Leaf)> = shape.leaves()?.into_iter().map(|(path, leaf)| (dotted(&path), leaf)).collect();
    let wanted = AddColumns {
        members: [&["path"], TASK_MEMBERS.as_slice()].concat(),
        stats: leaves.iter().map(|(_, leaf)| leaf.path.clone()).collect(),
        num_records: true,
        ..AddColumns::default()
    };
    let bound = |(name, leaf): &(String, Leaf)| {
        Field::new(name, to_arrow_type(&DataType::Primitive(leaf.data_type.clone())), true)
    };
    let bounds: Fields = leaves.iter().map(bound).collect();
    let counts: Fields = leaves.iter().map(|(name, _)| Field::new(name, ArrowType::Int64, true)).collect();
    let mut fields = base_fields(&shape);
    fields.push(Field::new("num_records", ArrowType::Int64, true));
    let structs = [("min", &bounds), ("max", &bounds), ("null_count", &counts)];
    fields.extend(structs.into_iter().filter_map(|(name, fields)| struct_field(name, fields.clone())));
    let schema = Arc::new(Schema::new(fields));
    let leaves: Vec<_> = leaves.into_iter().map(|(_, leaf)| leaf).collect();
    let out = schema.clone();
    let describe = Arc::new(move |adds: AddBatch| {
        let (_, adds) = prune_adds(adds, &pruning, &shape)?;
        let mut columns = base_columns(&adds, &shape)?;
        let stats = statistics(&adds, &leaves)?;
        columns.push(Arc::new(stats.num_records));
        columns.extend(structure(&bounds, stats.leaves.iter().map(|l| l.min.clone()).collect())?);
        columns.extend(structure(&bounds, stats.leaves.iter().map(|l| l.max.clone()).collect())?);
        columns.extend(structure(&counts, stats.leaves.iter().map(|l| Arc::new(l.null_count.clone()) as _).collect())?);
        Ok(RecordBatch::try_new(out.clone(), columns)?)
    });
    let batch = move |adds| {
        let describe = describe.clone();
        on_worker_thread(move || describe(adds))
    };
    let batches = snapshot.live_files(&wanted).await?.map_ok(batch).try_buffered(CONCURRENT_BATCHES);
    Ok((schema, batches.map_err(move |e| e.in_table(&location))))
}

/// A path as names with dots between them. A name that has a dot or a back-tick is put in back-ticks, so that no two
/// paths are spelled alike.
fn dotted(path: &[String]) -> String {
    let part = |name: &String| match name.contains(['.', '`']) {
        true => format!("`{}`", name.replace('`', "``")),
        false => name.clone(),
    };
    path.iter().map(part).collect::<Vec<_>>().join(".")
}
