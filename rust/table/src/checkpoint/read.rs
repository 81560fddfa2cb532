//! Reading checkpoints of every shape: one file, parts, UUID-named, JSON or Parquet, with sidecars.
//!
//! Opening reads footers (and a JSON top level); actions are decoded on demand, one row group a task, only the leaves
//! that are asked for. Row groups that hold none of the wanted actions, by their null counts, are not fetched.
//!
//! PROTOCOL.md: "Checkpoints", "Sidecar Files".

use std::sync::Arc;

use arrow_array::{Array, BooleanArray, RecordBatch, cast::AsArray};
use arrow_cast::cast;
use arrow_schema::Schema;
use arrow_select::filter::filter_record_batch;
use deltic_protocol::action::batch::{ADD_SCHEMA, AddBatch, KeyBatch, Origin};
use deltic_protocol::action::json::{CommitActions, Wanted, parse_commit};
use deltic_protocol::action::rows::StateActions;
use deltic_protocol::log::name::{CheckpointFormat, LOG_DIR, SIDECARS_DIR};
use deltic_protocol::log::segment::{Checkpoint, CheckpointKind};
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use parquet::file::metadata::RowGroupMetaData;

use super::part::Part;
use crate::error::{Error, Result};
use crate::storage::{Storage, decode_path};

/// Row groups in work at once; fetching one overlaps decoding others.
const CONCURRENT_ROW_GROUPS: usize = 4;

/// What to decode of each `add`.
#[derive(Debug, Clone, Default)]
pub struct AddColumns {
    /// Members of `add`, without the statistics.
    pub members: Vec<&'static str>,
    /// Leaf columns, by physical path, whose statistics are wanted: typed ones where there are, else the JSON text.
    pub stats: Vec<Vec<String>>,
    /// Whether the number of records (with no column's statistics) is wanted too.
    pub num_records: bool,
    /// Whether the JSON text is wanted as it is.
    pub stats_text: bool,
}

/// A checkpoint whose footers are known.
#[derive(Debug)]
pub struct OpenCheckpoint {
    version: u64,
    state: StateActions,
    /// File actions of a JSON top level.
    inline: Option<CommitActions>,
    /// Parquet files with file actions: the checkpoint's own, then its sidecars.
    parts: Vec<Arc<Part>>,
    sidecars: Vec<(String, u64)>,
}

impl OpenCheckpoint {
    /// Reads the footers, and all actions but files.
    pub async fn open(storage: &Storage, checkpoint: &Checkpoint) -> Result<Self> {
        let version = checkpoint.version;
        Self::open_files(storage, checkpoint).await.map_err(|e| e.at_version(version).in_table(storage.location()))
    }

    async fn open_files(storage: &Storage, checkpoint: &Checkpoint) -> Result<Self> {
        let version = checkpoint.version;
        let paths: Vec<(String, u64)> =
            checkpoint.files.iter().map(|f| (format!("{LOG_DIR}/{}", f.file_name), f.size)).collect();
        let mut open =
            Self { version, state: StateActions::default(), inline: None, parts: Vec::new(), sidecars: Vec::new() };
        match checkpoint.kind {
            CheckpointKind::Uuid(CheckpointFormat::Json) => {
                for (path, _) in &paths {
                    let bytes = storage.get(path).await?;
                    let actions = parse_commit(&bytes, Origin::Checkpoint(version), Wanted::All);
                    open.take_json(actions.map_err(|e| e.in_file(path))?);
                }
            }
            CheckpointKind::Uuid(CheckpointFormat::Parquet) | CheckpointKind::Classic | CheckpointKind::MultiPart => {
                open.parts = Part::open_all(storage, paths).await?;
                open.state = state_actions(&open.parts).await?;
            }
        }
        let sidecars = std::mem::take(&mut open.state.sidecars);
        let sidecar = |s: &deltic_protocol::action::Sidecar| -> Result<(String, u64)> {
            let size = u64::try_from(s.size_in_bytes).map_err(|_| Error::corrupt("a sidecar has a negative size"))?;
            let path = if s.path.contains('/') { decode_path(&s.path)? } else { sidecar_path(&decode_path(&s.path)?) };
            Ok((path, size))
        };
        open.sidecars = sidecars.iter().map(sidecar).collect::<Result<Vec<_>>>()?;
        open.parts.extend(Part::open_all(storage, open.sidecars.clone()).await?);
        Ok(open)
    }

    fn take_json(&mut self, actions: CommitActions) {
        self.state = StateActions {
            protocol: actions.protocol.clone(),
            metadata: actions.metadata.clone(),
            txns: actions.txns.clone(),
            domains: actions.domains.clone(),
            sidecars: actions.sidecars.clone(),
            checkpoint_metadata: actions.checkpoint_metadata.clone(),
        };
        self.inline = Some(actions);
    }

    /// The version that the checkpoint holds.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All actions but files.
    pub fn state(&self) -> &StateActions {
        &self.state
    }

    /// Paths and sizes of its sidecars.
    pub fn sidecars(&self) -> &[(String, u64)] {
        &self.sidecars
    }

    /// The files that were live, batch by batch.
    pub fn adds(&self, columns: &AddColumns) -> impl Stream<Item = Result<AddBatch>> + Send + use<> {
        let origin = Origin::Checkpoint(self.version);
        let inline: Vec<_> = self.inline.iter().map(|actions| Ok(actions.adds.clone())).collect();
        let mut tasks = Vec::new();
        for part in &self.parts {
            let projection = Projection::of(part, columns);
            for group in part.groups_with("add", "path") {
                tasks.push((part.clone(), group, projection.clone()));
            }
        }
        let read = move |(part, group, projection): (Arc<Part>, usize, Projection)| async move {
            let wanted = move |path: &[String]| projection.wants(path);
            let batches = part.read(group, &wanted).await?;
            let batches = batches.iter().map(|rows| add_batch(origin, rows));
            batches.collect::<Result<Vec<_>>>().map_err(|e| e.in_file(part.path()))
        };
        let parts = stream::iter(tasks).map(read).buffered(CONCURRENT_ROW_GROUPS);
        stream::iter(inline).chain(parts.map_ok(|batches| stream::iter(batches.into_iter().map(Ok))).try_flatten())
    }

    /// The tombstones, as the columns of `remove`, batch by batch.
    pub fn removes(&self) -> impl Stream<Item = Result<(KeyBatch, RecordBatch)>> + Send + use<> {
        let inline: Vec<_> = self.inline.iter().map(|a| Ok((a.removes.clone(), a.remove_rows.clone()))).collect();
        let tasks: Vec<_> = self
            .parts
            .iter()
            .flat_map(|part| part.groups_with("remove", "path").into_iter().map(|group| (part.clone(), group)))
            .collect();
        let read = |(part, group): (Arc<Part>, usize)| async move {
            let wanted = |path: &[String]| path.first().is_some_and(|root| root == "remove");
            let keyed = |rows: &RecordBatch| {
                let rows = action_rows(rows, "remove")?;
                Ok((KeyBatch::new(&rows)?, rows))
            };
            let batches = part.read(group, &wanted).await?;
            batches.iter().map(keyed).collect::<Result<Vec<_>>>().map_err(|e| e.in_file(part.path()))
        };
        let parts = stream::iter(tasks).map(read).buffered(CONCURRENT_ROW_GROUPS);
        stream::iter(inline).chain(parts.map_ok(|batches| stream::iter(batches.into_iter().map(Ok))).try_flatten())
    }
}

fn sidecar_path(name: &str) -> String {
    format!("{LOG_DIR}/{SIDECARS_DIR}/{name}")
}

/// Everything but files, from the row groups that may hold any.
async fn state_actions(parts: &[Arc<Part>]) -> Result<StateActions> {
    let mut state = StateActions::default();
    for part in parts {
        let mut groups: Vec<usize> =
            StateActions::COLUMNS.iter().flat_map(|(root, key)| part.groups_with(root, key)).collect();
        groups.sort_unstable();
        groups.dedup();
        for group in groups {
            let wanted = |path: &[String]| {
                path.first().is_some_and(|root| StateActions::COLUMNS.iter().any(|(name, _)| name == root))
            };
            for rows in part.read(group, &wanted).await? {
                state.take(&rows).map_err(|e| e.in_file(part.path()))?;
            }
        }
    }
    Ok(state)
}

/// The leaves of `add` to decode from one part.
#[derive(Debug, Clone)]
struct Projection {
    members: Vec<&'static str>,
    typed: Vec<Vec<String>>,
    num_records: bool,
    text: bool,
}

impl Projection {
    /// Typed statistics serve when every wanted column has some and they are filled; else the text.
    fn of(part: &Part, columns: &AddColumns) -> Self {
        let wants_stats = columns.num_records || !columns.stats.is_empty();
        let below = |bound: &str, leaf: &[String]| {
            let head = ["add", "stats_parsed", bound].map(str::to_owned);
            part.has_leaf(&[head.as_slice(), leaf].concat())
        };
        let count = ["add", "stats_parsed", "numRecords"].map(str::to_owned);
        let filled = part.has_leaf(&count) && !part.is_empty_leaf(&count);
        let known = |leaf: &Vec<String>| below("minValues", leaf) || below("nullCount", leaf);
        let typed = wants_stats && filled && columns.stats.iter().all(known);
        Self {
            members: columns.members.clone(),
            typed: if typed { columns.stats.clone() } else { Vec::new() },
            num_records: typed,
            text: columns.stats_text || (wants_stats && !typed),
        }
    }

    fn wants(&self, path: &[String]) -> bool {
        let Some((root, rest)) = path.split_first() else { return false };
        let Some((member, rest)) = rest.split_first() else { return false };
        if root != "add" {
            return false;
        }
        match member.as_str() {
            "stats" => self.text,
            "stats_parsed" => match rest.split_first() {
                Some((bound, [])) => self.num_records && bound == "numRecords",
                Some((bound, leaf)) => {
                    matches!(bound.as_str(), "minValues" | "maxValues" | "nullCount")
                        && self.typed.iter().any(|wanted| wanted == leaf)
                }
                None => false,
            },
            member => self.members.contains(&member),
        }
    }
}

/// The members of one kind of action as columns, rows of other actions left out.
fn action_rows(rows: &RecordBatch, action: &str) -> Result<RecordBatch> {
    let column = rows.column_by_name(action).and_then(|c| c.as_struct_opt());
    let Some(column) = column else {
        return Err(Error::corrupt(format!("the checkpoint's column `{action}` is missing or no struct")));
    };
    let path = column.column_by_name("path");
    let valid = path.map(|p| p.logical_nulls()).ok_or_else(|| Error::corrupt(format!("`{action}` has no path")))?;
    let fields = column.fields().clone();
    let rows = RecordBatch::try_new(
        Arc::new(Schema::new(fields.iter().map(|f| f.as_ref().clone().with_nullable(true)).collect::<Vec<_>>())),
        column.columns().to_vec(),
    )?;
    match valid {
        Some(nulls) if nulls.null_count() > 0 => {
            Ok(filter_record_batch(&rows, &BooleanArray::new(nulls.inner().clone(), None))?)
        }
        Some(_) | None => Ok(rows),
    }
}

fn add_batch(origin: Origin, rows: &RecordBatch) -> Result<AddBatch> {
    let rows = action_rows(rows, "add")?;
    // Writers differ in integer widths and text layouts; the members' own types are restored where that is lossless.
    let mut fields = rows.schema().fields().iter().map(|f| f.as_ref().clone()).collect::<Vec<_>>();
    let mut columns = rows.columns().to_vec();
    for (field, column) in fields.iter_mut().zip(&mut columns) {
        if let Ok(expected) = ADD_SCHEMA.field_with_name(field.name())
            && !expected.data_type().is_nested()
            && column.data_type() != expected.data_type()
        {
            *column = cast(column, expected.data_type())
                .map_err(|e| Error::corrupt(format!("`add.{}` cannot be read", field.name())).caused_by(e))?;
            *field = field.clone().with_data_type(expected.data_type().clone());
        }
    }
    AddBatch::new(origin, RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

/// Whether a row group may hold a non-null value in a leaf, by its statistics.
pub(super) fn may_hold(group: &RowGroupMetaData, leaf: usize) -> bool {
    let nulls = group.columns().get(leaf).and_then(|c| c.statistics()).and_then(|s| s.null_count_opt());
    nulls.is_none_or(|nulls| u64::try_from(group.num_rows()).is_ok_and(|rows| nulls < rows))
}
