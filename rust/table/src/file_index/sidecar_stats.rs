//! Statistics in the tags of a sidecar: bounds of the columns and paths of its files, so that it need not be opened.
//!
//! The format is deltic's own, under one key, and untrusted: it has the file name and the size of its sidecar, so
//! that tags copied to another file are ignored, and values that cannot be read count as unknown. Bounds are those of the
//! sidecar's footer, and no narrower.
//!
//! PROTOCOL.md: "Sidecar File Information".

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use deltic_protocol::action::Sidecar;
use deltic_protocol::predicate::Column;
use deltic_protocol::prune::Bounds;
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::DataType;
use deltic_protocol::stats::read::Leaf;
use serde::{Deserialize, Serialize};

use super::column::{IndexColumn, PartitionColumn};
use super::groups::{ContainerBounds, of_groups};
use crate::checkpoint::action_file::ActionFile;

/// The key among the tags.
pub(crate) const TAG: &str = "deltic.bounds";
/// Longer strings are left out, since every reader reads the tags.
const MAX_STRING_BYTES: usize = 256;

/// Statistics of the files of one sidecar.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SidecarStats {
    /// Name of the sidecar.
    file: String,
    /// Its size in bytes.
    size: i64,
    /// How many files it lists.
    pub(crate) files: u64,
    /// The least and the greatest path, if every path has the canonical spelling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) paths: Option<(String, String)>,
    /// Bounds of columns.
    #[serde(default)]
    columns: Vec<SidecarColumn>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SidecarColumn {
    /// Its physical names, beginning at the top level.
    path: Vec<String>,
    /// Whether it is a partition column.
    #[serde(default)]
    partition: bool,
    /// The type of the values in the strings.
    r#type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max: Option<String>,
}

impl SidecarStats {
    /// The statistics in the tags of a sidecar; `None` if there are none, or if they are of another file.
    pub(crate) fn of(sidecar: &Sidecar) -> Option<Self> {
        let json = sidecar.tags.as_ref()?.get(TAG)?.as_ref()?;
        let stats: Self = serde_json::from_str(json).ok()?;
        (stats.file == sidecar.path && stats.size == sidecar.size_in_bytes).then_some(stats)
    }

    /// The statistics of a sidecar with this number of files, with the bounds of `columns` from its footer.
    pub(crate) fn new(
        file: String,
        files: u64,
        paths: Option<(String, String)>,
        part: &Arc<ActionFile>,
        columns: &[IndexColumn],
    ) -> Self {
        let groups: Vec<(Arc<ActionFile>, usize)> =
            part.groups_with("add", "path").into_iter().map(|group| (part.clone(), group)).collect();
        let claim = |column: &IndexColumn| {
            let (leaf, partition) = leaf_of(column)?;
            let wanted = [(leaf.path.clone(), column.clone())];
            let bounds = of_groups(&groups, &wanted);
            let data_type = DataType::Primitive(leaf.data_type.clone());
            let logical = Column { path: leaf.path.clone(), index: 0, data_type };
            let min = extreme(bounds.min(&logical).ok()??, false);
            let max = extreme(bounds.max(&logical).ok()??, true);
            let has_bound = min.is_some() || max.is_some();
            let (path, r#type) = (leaf.path.clone(), leaf.data_type.to_string());
            has_bound.then_some(SidecarColumn { path, partition, r#type, min, max })
        };
        let size = i64::try_from(part.size()).unwrap_or(-1);
        let paths = paths.filter(|(min, max)| min.len() <= MAX_STRING_BYTES && max.len() <= MAX_STRING_BYTES);
        Self { file, size, files, paths, columns: columns.iter().filter_map(claim).collect() }
    }

    /// The statistics of a copy of the sidecar, with this name.
    pub(crate) fn of_copy(self, name: &str) -> Self {
        Self { file: name.to_owned(), ..self }
    }

    /// The value of the tag.
    pub(crate) fn print(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }

    fn bound(&self, column: &IndexColumn, upper: bool) -> Option<ArrayRef> {
        let (leaf, partition) = leaf_of(column)?;
        let name = leaf.data_type.to_string();
        let is_it = |c: &&SidecarColumn| c.partition == partition && c.path == leaf.path && c.r#type == name;
        let claim = self.columns.iter().find(is_it)?;
        let bound = if upper { claim.max.as_ref() } else { claim.min.as_ref() };
        let value = Scalar::parse(bound?, &leaf.data_type).filter(|value| !value.is_nan())?;
        Scalar::to_column(&[value], &leaf.data_type).ok()
    }
}

fn leaf_of(column: &IndexColumn) -> Option<(&Leaf, bool)> {
    match column {
        IndexColumn::Partition(PartitionColumn { leaf, .. }) => Some((leaf, true)),
        IndexColumn::Bounds { leaf, .. } => Some((leaf, false)),
        IndexColumn::Presence
        | IndexColumn::Path
        | IndexColumn::Size
        | IndexColumn::ModificationTime
        | IndexColumn::DeletionVector => None,
    }
}

/// The least or greatest of all bounds, as a string, if all are known and the type has a string form.
fn extreme(bounds: ArrayRef, upper: bool) -> Option<String> {
    let mut found: Option<Scalar> = None;
    for row in 0..bounds.len() {
        let value = Scalar::from_array(&bounds, row).ok()?;
        if value == Scalar::Null || value.is_nan() || matches!(value, Scalar::Binary(_)) {
            return None;
        }
        let is_beyond = match &found {
            Some(found) if upper => value.compare(found)?.is_gt(),
            Some(found) => value.compare(found)?.is_lt(),
            None => true,
        };
        if is_beyond {
            found = Some(value);
        }
    }
    found.map(|value| value.to_string()).filter(|string| string.len() <= MAX_STRING_BYTES)
}

/// Bounds of whole files of a checkpoint, from their tags.
pub(super) fn of_files<'a>(
    files: &'a [Option<SidecarStats>],
    columns: &'a [(Vec<String>, IndexColumn)],
) -> ContainerBounds<'a, impl Fn(usize, &IndexColumn, bool) -> Option<ArrayRef>> {
    ContainerBounds::new(files.len(), columns, |at, column, upper| files.get(at)?.as_ref()?.bound(column, upper))
}
