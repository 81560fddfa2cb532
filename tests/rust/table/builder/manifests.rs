//! Manifests after a commit: the requests that they cost.

use deltic_store::Counts;
use deltic_table::manifests::write_manifests;

use super::*;

/// The file of a partition.
fn file_in(partition: u64, path: &str) -> Value {
    add_with(path, json!({"partitionValues": {"p": partition.to_string()}}))
}

/// A table with so many partitions, a file each, a checkpoint and manifests, which it keeps up to date.
async fn with_partitions(partitions: u64) -> Sample {
    let sample = Sample::new();
    let enabled = json!({"delta.compatibility.symlinkFormatManifest.enabled": "true"});
    let columns = &[("p", "string"), ("x", "long")];
    let mut actions = vec![protocol(1, 2), metadata(columns, &["p"], enabled)];
    actions.extend((0..partitions).map(|partition| file_in(partition, &format!("f{partition}"))));
    sample.commit(0, &actions);
    deltic_table::checkpoint_writer::checkpoint(&sample.log, 0).await.unwrap();
    let written = write_manifests(&sample.open().await.unwrap(), false).await.unwrap();
    assert_eq!((written.files, written.written.len() as u64), (partitions, partitions));
    sample
}

/// Adds a file to each of these partitions; returns the requests and the new state.
async fn append_to(sample: &Sample, base: HandleState, to: std::ops::Range<u64>) -> (Counts, HandleState) {
    let version = base.state.version + 1;
    let before = sample.storage.counts();
    let mut transaction =
        Transaction::begin(&sample.log, handle_with(Some(base)), TransactionOptions::default(), &World).await.unwrap();
    let added = |partition: u64| {
        let action = file_in(partition, &format!("g{version}-{partition}"));
        DataFile { add: serde_json::from_value(action["add"].clone()).unwrap(), rows: 1, identities: BTreeMap::new() }
    };
    transaction.append(to.map(added).collect());
    let outcome = commit(transaction).await.unwrap().unwrap();
    assert!(outcome.post_commit.failed.is_empty(), "{:?}", outcome.post_commit.failed);
    (sample.storage.counts().since(&before), outcome.post_commit.handle_state)
}

fn manifest(sample: &Sample, partition: u64) -> Vec<String> {
    let text =
        std::fs::read_to_string(sample.path(&format!("_symlink_format_manifest/p={partition}/manifest"))).unwrap();
    let root = format!("file:{}/", sample.storage.location());
    text.lines().map(|line| line.strip_prefix(&root).unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_cost_follows_the_commit_and_not_the_table() {
    let mut all = Vec::new();
    for partitions in [20, 2000] {
        let sample = with_partitions(partitions).await;
        let base = HandleState::load(&sample.open().await.unwrap()).await.unwrap();
        let (_, base) = append_to(&sample, base, 3..4).await;
        let (one, base) = append_to(&sample, base, 3..4).await;
        assert_eq!(manifest(&sample, 3), ["f3", "g1-3", "g2-3"]);
        let (three, _) = append_to(&sample, base, 3..6).await;
        assert_eq!(manifest(&sample, 3), ["f3", "g1-3", "g2-3", "g3-3"]);
        assert_eq!(manifest(&sample, 5), ["f5", "g3-5"]);
        assert_eq!(manifest(&sample, 6), ["f6"]);
        all.push([one, three]);
    }
    for counts in &all {
        // The commit, its checksum and the manifests; the log before and after them, and whether there are manifests at all.
        let requests = counts.map(|counts| (counts.puts, counts.deletes, counts.lists, counts.gets, counts.bytes_read));
        assert_eq!(requests, [(3, 0, 3, 0, 0), (5, 0, 3, 0, 0)]);
    }
    for (few, many) in all[0].iter().zip(all[1]) {
        // Counts of files have more digits.
        assert!(many.bytes_written.abs_diff(few.bytes_written) < 100, "{few:?} {many:?}");
    }
}

#[tokio::test]
async fn a_commit_to_many_partitions_writes_all_their_manifests() {
    let sample = with_partitions(300).await;
    let base = HandleState::load(&sample.open().await.unwrap()).await.unwrap();
    let (counts, _) = append_to(&sample, base, 0..200).await;
    assert_eq!(counts.puts, 202);
    for partition in [0, 100, 199] {
        assert_eq!(manifest(&sample, partition), [format!("f{partition}"), format!("g1-{partition}")]);
    }
    assert_eq!(manifest(&sample, 200), ["f200"]);
}
