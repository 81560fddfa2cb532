//! The Parquet file of a checkpoint: a table in memory whose log is this one file.
//!
//! An input that begins with `PAR1` is the file. In any other input, the first two bytes are the length of the file's
//! body, which follows, and the rest is the metadata; the trailer is added. So an input can grow and shrink and is
//! still a Parquet file.

use std::collections::HashMap;
use std::sync::LazyLock;

use arrow_array::{Array, StringArray};
use bytes::Bytes;
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::error::{Error, Kind};
use deltic_protocol::log::segment::{Checkpoint, CheckpointKind, LogFile};
use deltic_protocol::log_bounds::statistics;
use deltic_protocol::stats::json::complete;
use deltic_store::Storage;
use deltic_table::checkpoint::read::{AddColumns, OpenCheckpoint};
use deltic_table::error::Result;
use deltic_table::log::LogSource;
use deltic_table::scan::plan::ScanPlan;
use deltic_table::snapshot::Snapshot;
use futures::TryStreamExt;

const NAME: &str = "00000000000000000003.checkpoint.parquet";

static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_current_thread().enable_time().max_blocking_threads(2).build().unwrap()
});

pub(crate) fn run(data: &[u8]) {
    let file = file(data);
    let storage = Storage::open("memory://checkpoint", &HashMap::new()).unwrap();
    RUNTIME.block_on(async {
        let size = file.len() as u64;
        storage.put(&format!("_delta_log/{NAME}"), file).await.unwrap();
        if let Err(error) = read_checkpoint(&storage, size).await {
            check_error(&error);
        } else if let Err(error) = read_table(&storage).await {
            check_error(&error);
        }
    });
}

/// The file's bytes.
fn file(data: &[u8]) -> Bytes {
    match data.split_first_chunk::<2>() {
        Some((length, rest)) if !data.starts_with(b"PAR1") => {
            let (body, metadata) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
            let length = u32::try_from(metadata.len()).unwrap().to_le_bytes();
            Bytes::from([body, metadata, &length, b"PAR1"].concat())
        }
        Some(_) | None => Bytes::copy_from_slice(data),
    }
}

/// Bytes of a store are corrupt, not supported, or name files that are not there; the fault is never another's.
fn check_error(error: &Error) {
    let is_expected = matches!(
        error.kind(),
        Kind::Corrupt | Kind::Unsupported { .. } | Kind::NotFound | Kind::Storage { retryable: true }
    );
    assert!(is_expected, "{error:?}");
}

async fn read_checkpoint(storage: &Storage, size: u64) -> Result<()> {
    let files = vec![LogFile::parse(NAME, size, 0).unwrap()];
    let checkpoint = Checkpoint { version: 3, files, kind: CheckpointKind::Classic };
    let open = OpenCheckpoint::open(&LogSource::of(storage), &checkpoint).await?;
    // A sidecar may stand anywhere, other tables' stores included; those are not asked.
    if open.sidecars().iter().any(|(path, _)| path.contains(':') || path.starts_with('/')) {
        return Err(Error::corrupt("not followed"));
    }
    let typed = open.typed_stats().await?;
    let everything = AddColumns {
        members: vec![
            "path",
            "partitionValues",
            "size",
            "modificationTime",
            "dataChange",
            "tags",
            "deletionVector",
            "baseRowId",
            "defaultRowCommitVersion",
            "clusteringProvider",
        ],
        stats_json: true,
        stats_typed: true,
        ..AddColumns::default()
    };
    open.adds(&everything).try_for_each(async |adds| check_adds(&adds)).await?;
    let mut stats: Vec<_> = typed.into_iter().collect();
    stats.sort();
    let some = AddColumns { members: vec!["path"], stats, num_records: true, ..AddColumns::default() };
    open.adds(&some).try_for_each(async |adds| check_adds(&adds)).await?;
    open.removes()
        .try_for_each(async |(keys, rows)| {
            assert_eq!(keys.len(), rows.num_rows());
            Ok(())
        })
        .await
}

fn check_adds(adds: &AddBatch) -> Result<()> {
    assert_eq!(adds.keys()?.len(), adds.len());
    for row in 0..adds.len() {
        assert_eq!(adds.add(row)?.path, adds.path().value(row));
    }
    if let Some(typed) = adds.structure("stats_parsed") {
        let text: StringArray = complete(adds.stats()?.as_ref(), typed)?;
        assert_eq!(text.len(), adds.len());
    }
    Ok(())
}

async fn read_table(storage: &Storage) -> Result<()> {
    let snapshot = Snapshot::open(&LogSource::of(storage), None).await?;
    assert_eq!(snapshot.version(), 3);
    snapshot.txns().await?;
    snapshot.domains().await?;
    let files = snapshot.num_files().await?;
    let shape = snapshot.shape();
    let leaves: Vec<_> = shape.leaves()?.into_iter().map(|(_, leaf)| leaf).collect();
    let stats = leaves.iter().map(|leaf| leaf.path.clone()).collect();
    let columns =
        AddColumns { members: vec!["path", "partitionValues"], stats, num_records: true, ..AddColumns::default() };
    let live = snapshot.live_files(&columns).await?;
    let counted = live
        .try_fold(0, async |counted, adds| {
            assert_eq!(statistics(&adds, &leaves)?.num_records.len(), adds.len());
            Ok(counted + adds.len() as u64)
        })
        .await?;
    assert_eq!(counted, files);
    // What plans of few files keep serves those of others, and of all.
    let is_plain = |name: &&String| name.chars().all(|c| c.is_ascii_lowercase());
    let names = leaves.iter().filter(|leaf| leaf.path.len() == 1).filter_map(|leaf| leaf.path.first());
    for name in names.filter(is_plain).take(3) {
        for filter in [format!("`{name}` IS NULL"), format!("`{name}` IS NOT NULL")] {
            assert!(planned(&snapshot, Some(&filter)).await? <= files);
        }
    }
    assert_eq!(planned(&snapshot, None).await?, files);
    Ok(())
}

/// How many files a plan keeps, which it lists.
async fn planned(snapshot: &Snapshot, filter: Option<&str>) -> Result<u64> {
    let plan = ScanPlan::new(snapshot, None, filter).await?;
    let (_, batches) = plan.to_batches().await?;
    assert_eq!(batches.iter().map(|batch| batch.num_rows() as u64).sum::<u64>(), plan.files_kept);
    Ok(plan.files_kept)
}
