//! Tests of names, listings of folders and of trees, and deletions.

use bytes::Bytes;
use futures::stream::TryStreamExt;

use crate::error::Kind;
use crate::listing::Listed;
use crate::storage::Storage;

pub(super) async fn missing(storage: &Storage) {
    assert!(list(storage, "", "").await.is_empty());
    assert!(list(storage, "no/folder", "x").await.is_empty());
    storage.delete("no/file").await.unwrap();
    for error in [
        storage.get("no/file").await.unwrap_err(),
        storage.get_range("no/file", 0..1).await.unwrap_err(),
        storage.get_suffix("no/file", 1).await.unwrap_err(),
        storage.head("no/file").await.unwrap_err(),
    ] {
        assert!(error.is_not_found(), "{error}");
        assert_eq!((error.path(), error.table()), (Some("no/file"), Some(storage.location())));
    }
}

/// Keys are used unchanged. `without`: characters that the store does not allow in them.
pub(super) async fn strange_keys(storage: &Storage, without: &str) {
    let mut keys = vec![
        "a b.parquet",
        "a%20b.parquet",
        "a%2Fb.parquet",
        "100%",
        "p=a+b/q=%25/x.parquet",
        "größe=日本/é.parquet",
        "t=10:30:00/x:y",
        "q?x=1#y&z;$@!*'()[]{}^~|\"<>`\\",
        "q?x=1#y&z;$@!*'()[]{}^~|\"<>`",
        "...",
        ".hidden",
    ];
    keys.retain(|key| !key.contains(|c| without.contains(c)));
    for key in &keys {
        storage.put(key, Bytes::from(*key)).await.unwrap();
    }
    for &key in &keys {
        assert_eq!(storage.get(key).await.unwrap(), key);
        assert_eq!(storage.head(key).await.unwrap().size, key.len() as u64);
        let (dir, name) = key.rsplit_once('/').unwrap_or(("", key));
        assert_eq!(list(storage, dir, name).await.first().map(String::as_str), Some(key));
    }
    let mut direct: Vec<&str> = keys.iter().copied().filter(|key| !key.contains('/')).collect();
    direct.sort_unstable();
    assert_eq!(list(storage, "", "").await, direct);
    for key in keys {
        storage.delete(key).await.unwrap();
        assert!(storage.get(key).await.unwrap_err().is_not_found());
    }
}

pub(super) async fn listing(storage: &Storage) {
    for name in ["10.json", "02.json", "9.json", "02.checkpoint", "_last_checkpoint", "sub/05.json", "03.json.d/x"] {
        storage.put(&format!("log/{name}"), Bytes::from_static(b"..")).await.unwrap();
    }
    storage.put("log2/05.json", Bytes::new()).await.unwrap();
    let all = ["log/02.checkpoint", "log/02.json", "log/10.json", "log/9.json", "log/_last_checkpoint"];
    for (start_at, from) in [("", 0), ("02.checkpoint", 0), ("02.d", 1), ("02.json", 1), ("02.jsonx", 2), ("a", 5)] {
        assert_eq!(list(storage, "log", start_at).await, &all[from..], "{start_at}");
    }
    assert_eq!(list(storage, "log/", "9").await, &all[3..]);
    assert_eq!(list(storage, "./log", "a").await, [""; 0]);
    let meta = storage.list_from("log", "9.json").await.unwrap().remove(0);
    assert_eq!(meta, storage.head("log/9.json").await.unwrap());
    assert_eq!(meta.size, 2);
    assert!(meta.modified_ms > 1_700_000_000_000, "{meta:?}");
}

async fn tree(storage: &Storage, dir: &str) -> Vec<String> {
    let mut paths: Vec<String> =
        storage.list_recursive(dir).map_ok(|meta| meta.path).try_collect().await.expect("a listing");
    paths.sort();
    let mut in_ranges: Vec<String> =
        storage.list_in_ranges(dir).map_ok(|meta| meta.path).try_collect().await.expect("a listing in ranges");
    in_ranges.sort();
    assert_eq!(in_ranges, paths, "{dir}");
    paths
}

/// Every file at any depth, including hidden ones, and none outside of the folder.
pub(super) async fn trees(storage: &Storage) {
    assert!(tree(storage, "tree").await.is_empty());
    let mut all = ["tree/a", "tree/.hidden/x", "tree/_meta/.y", "tree/p=1/q=%20/é", "tree/p=1/r", "tree/a.d/e/f/g/h"]
        .map(str::to_owned)
        .to_vec();
    all.extend((0..11).map(|i| format!("tree/p={i}/part")));
    // These characters sort before `/`.
    all.extend(["tree/p=1 x/part", "tree/p=1-x/part", "tree/p=1.x/part"].map(str::to_owned));
    for path in &all {
        storage.put(path, Bytes::from(path.clone())).await.unwrap();
    }
    storage.put("tree2/x", Bytes::new()).await.unwrap();
    all.sort();
    let before = storage.counts();
    assert_eq!(tree(storage, "tree").await, all);
    assert!(storage.counts().since(&before).lists > 0);
    assert_eq!(tree(storage, "tree/p=1").await, ["tree/p=1/part", "tree/p=1/q=%20/é", "tree/p=1/r"]);
    assert_eq!(tree(storage, "tree/p=1/").await.len(), 3);
    assert_eq!(tree(storage, "tree/a").await, [""; 0], "a file is not a folder");
    let root = tree(storage, "").await;
    assert!(all.iter().all(|path| root.contains(path)) && root.contains(&"tree2/x".to_owned()));
    let listed: Vec<_> = storage.list_recursive("tree/p=2").try_collect().await.unwrap();
    assert_eq!(listed, [storage.head("tree/p=2/part").await.unwrap()]);
    for (dir, files, folders) in [("tree", 1, 17), ("tree/p=1", 2, 1), ("nothing", 0, 0)] {
        let found: Vec<Listed> = storage.list_folder(dir).try_collect().await.expect("a listing");
        let below = |path: &str| path.strip_prefix(&format!("{dir}/")).is_some_and(|name| !name.contains('/'));
        let is_file = |listed: &&Listed| matches!(listed, Listed::File(file) if below(&file.path));
        let is_folder = |listed: &&Listed| matches!(listed, Listed::Folder(path) if below(path));
        let counts = (found.iter().filter(is_file).count(), found.iter().filter(is_folder).count());
        assert_eq!((counts, found.len()), ((files, folders), files + folders), "{dir}: {found:?}");
    }
    let error = storage.list_recursive("../x").try_collect::<Vec<_>>().await.unwrap_err();
    assert_eq!(error.kind(), &Kind::Corrupt);
}

/// One outcome for each path, in their order.
pub(super) async fn deleting(storage: &Storage, without: &str) {
    assert!(storage.delete_many(&[]).await.is_empty());
    let mut paths: Vec<String> = (0..40).map(|i| format!("many/{i}")).collect();
    let strange = ["many/a&b <c> \"d\"", "many/a%20b", "many/é"];
    paths.extend(strange.into_iter().filter(|path| !path.contains(|c| without.contains(c))).map(str::to_owned));
    for path in &paths {
        storage.put(path, Bytes::from_static(b"x")).await.unwrap();
    }
    storage.put("many/stays", Bytes::new()).await.unwrap();
    let count = paths.len();
    paths.insert(3, "many/never/there".to_owned());
    paths.insert(5, "../outside".to_owned());
    paths.push(paths[0].clone());
    let before = storage.counts();
    let outcomes = storage.delete_many(&paths).await;
    assert_eq!(outcomes.len(), paths.len());
    for (path, outcome) in paths.iter().zip(&outcomes) {
        match outcome {
            Err(e) if path == "../outside" => {
                assert_eq!(
                    (e.kind(), e.path(), e.table()),
                    (&Kind::Corrupt, Some("../outside"), Some(storage.location()))
                );
            }
            outcome => assert!(outcome.is_ok() && path != "../outside", "{path}: {outcome:?}"),
        }
    }
    let deletes = storage.counts().since(&before).deletes;
    assert!((1..=count as u64 + 2).contains(&deletes), "{deletes}");
    assert_eq!(tree(storage, "many").await, ["many/stays"]);
}

pub(super) async fn list(storage: &Storage, dir: &str, start_at: &str) -> Vec<String> {
    storage.list_from(dir, start_at).await.unwrap().into_iter().map(|meta| meta.path).collect()
}
