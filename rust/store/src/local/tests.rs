//! Tests of the local disk: names are taken once, no sync is forgotten, and failures say what to do.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use super::disk::MIN_BYTES_FOR_THREAD;
use super::naming::{Refused, give_name_by, rename_if_absent};
use super::*;

#[test]
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn exclusive_rename_refuses_a_taken_name() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("a"), "a").unwrap();
    fs::write(at("b"), "b").unwrap();
    assert_eq!(rename_if_absent(&at("a"), &at("b")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read(at("b")).unwrap(), b"b");
    rename_if_absent(&at("a"), &at("c")).unwrap();
    assert_eq!(fs::read(at("c")).unwrap(), b"a");
}

#[tokio::test]
async fn a_file_that_is_written_loses_hadoops_checksum() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let disk = LocalDisk { durable: true, tally: Arc::default() };
    let prepare = || {
        for name in ["a", ".a.crc", ".b.crc", "a.crc", ".a.b.crc"] {
            fs::write(at(name), "old").unwrap();
        }
    };
    let check = |what: &str| {
        assert_eq!(fs::read(at("a")).unwrap(), b"new", "{what}");
        let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".a.b.crc", ".b.crc", "a", "a.crc"], "{what}");
    };
    prepare();
    disk.put(at("a"), Bytes::from("new")).await.unwrap();
    check("put");
    for is_synced_first in [true, false] {
        prepare();
        let mut writer = disk.create_file(at("a"));
        writer.write(Bytes::from("new")).await.unwrap();
        if is_synced_first {
            writer.finish().await.unwrap();
        } else {
            writer.finish_unsynced(true).await.unwrap().1.wait().await.unwrap();
        }
        check("create_file");
    }
    prepare();
    fs::remove_file(at("a")).unwrap();
    assert!(matches!(disk.put_if_absent(at("a"), Body::from(Bytes::from("new"))).await.unwrap(), Put::Created));
    check("put_if_absent");
    // With its suffix the name would be too long for a file.
    disk.put(at(&"x".repeat(252)), Bytes::new()).await.unwrap();
}

#[test]
#[cfg(unix)]
fn only_what_is_known_to_pass_is_waited_for() {
    use rustix::io::Errno;
    for (errno, expected) in [
        (Errno::PERM, Refused::ThisWay),
        (Errno::OPNOTSUPP, Refused::ThisWay),
        (Errno::NOSYS, Refused::ThisWay),
        (Errno::MLINK, Refused::ThisWay),
        (Errno::XDEV, Refused::ThisWay),
        (Errno::INVAL, Refused::ThisWay),
        (Errno::IO, Refused::ThisWay),
        (Errno::from_raw_os_error(524), Refused::ThisWay),
        (Errno::ACCESS, Refused::ForGood),
        (Errno::NOENT, Refused::ForGood),
        (Errno::NOSPC, Refused::ForGood),
        (Errno::EXIST, Refused::Taken),
        (Errno::INTR, Refused::Passing),
        (Errno::TIMEDOUT, Refused::Passing),
        (Errno::STALE, Refused::Passing),
    ] {
        assert_eq!(Refused::of(&io::Error::from(errno)), expected, "{errno:?}");
    }
}

#[test]
#[cfg(unix)]
fn a_name_that_cannot_be_given_is_an_error_at_once() {
    use rustix::io::Errno;
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("1.json");
    let outcome = |errno: Errno| {
        let mut temporary = Temporary::create(&target, false).unwrap();
        temporary.not_renamed(&target, errno.into(), Errno::PERM.into())
    };
    for errno in [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP] {
        let error = outcome(errno).unwrap_err();
        assert!(matches!(error.kind(), crate::error::Kind::Unsupported { .. }), "{errno:?}: {error}");
    }
    for errno in [Errno::IO, Errno::from_raw_os_error(524), Errno::NOSPC] {
        let error = outcome(errno).unwrap_err();
        assert_eq!(*error.kind(), crate::error::Kind::Storage { retryable: false }, "{errno:?}: {error}");
    }
    assert!(matches!(outcome(Errno::EXIST), Ok(Put::Exists)));
    assert!(matches!(outcome(Errno::TIMEDOUT), Ok(Put::Unknown(_))));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no temporary file stays");
    // A rename that was done despite an error.
    let mut temporary = Temporary::create(&target, false).unwrap();
    fs::rename(&temporary.path, &target).unwrap();
    assert!(matches!(temporary.not_renamed(&target, Errno::IO.into(), Errno::PERM.into()), Ok(Put::Unknown(_))));
    drop(temporary);
    assert!(target.exists());
}

#[test]
#[cfg(unix)]
fn what_a_link_fails_with_is_waited_for_or_told_at_once() {
    use rustix::io::Errno;
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("1.json");
    let named = |link: &dyn Fn(&Path, &Path) -> io::Result<()>, rename: &dyn Fn(&Path, &Path) -> io::Result<()>| {
        let mut temporary = Temporary::create(&target, false).unwrap();
        temporary.write(b"{}").unwrap();
        let put = give_name_by(temporary, &target, false, link, rename);
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        for name in &names {
            fs::remove_file(name).unwrap();
        }
        assert!(names.is_empty() || names == [target.clone()], "a temporary file stays: {names:?}");
        (put, !names.is_empty())
    };
    let fails = |errno: Errno| move |_: &Path, _: &Path| -> io::Result<()> { Err(errno.into()) };
    let renames = |from: &Path, to: &Path| fs::rename(from, to);
    let may_not_rename = |_: &Path, _: &Path| -> io::Result<()> { panic!("no other way is tried") };
    let links = |from: &Path, to: &Path| fs::hard_link(from, to);
    assert!(matches!(named(&links, &may_not_rename), (Ok(Put::Created), true)));
    // If links are not supported, whatever the error, a rename gives the name.
    for errno in [Errno::PERM, Errno::OPNOTSUPP, Errno::INVAL, Errno::IO, Errno::from_raw_os_error(524)] {
        assert!(matches!(named(&fails(errno), &renames), (Ok(Put::Created), true)), "{errno:?}");
        assert!(matches!(named(&fails(errno), &fails(Errno::EXIST)), (Ok(Put::Exists), false)), "{errno:?}");
        let (refused, there) = named(&fails(errno), &fails(Errno::INVAL));
        assert!(refused.is_err() && !there, "{errno:?}");
    }
    for errno in [Errno::ACCESS, Errno::NOENT, Errno::NOSPC, Errno::DQUOT, Errno::ROFS] {
        assert!(matches!(named(&fails(errno), &may_not_rename), (Err(_), false)), "{errno:?}");
    }
    for errno in [Errno::TIMEDOUT, Errno::STALE, Errno::AGAIN, Errno::INTR] {
        assert!(matches!(named(&fails(errno), &may_not_rename), (Ok(Put::Unknown(_)), false)), "{errno:?}");
    }
    assert!(matches!(named(&fails(Errno::EXIST), &may_not_rename), (Ok(Put::Exists), false)));
    // A link that was made despite an error.
    let links_and_fails = |from: &Path, to: &Path| fs::hard_link(from, to).and(Err(Errno::IO.into()));
    assert!(matches!(named(&links_and_fails, &may_not_rename), (Ok(Put::Created), true)));
}

#[tokio::test]
#[cfg(unix)]
async fn a_link_that_fails_each_time_fails_the_put() {
    let folder = tempfile::tempdir().unwrap();
    // The name is too long: the temporary file is written, and the link fails.
    let path = folder.path().join("1".repeat(300)).to_str().unwrap().to_owned();
    let disk = LocalDisk { durable: false, tally: Arc::default() };
    let error = disk.put_if_absent(path, Bytes::from("{}").into()).await.unwrap_err();
    assert_eq!(*error.kind(), crate::error::Kind::Storage { retryable: false }, "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn unfinished_files_of_the_dead_are_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let id = uuid::Uuid::new_v4();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    for (name, is_old) in [
        (format!(".tmp-{id}"), true),
        (format!(".tmp-{}", uuid::Uuid::new_v4()), false),
        (".tmp-notes".to_owned(), true),
        ("part-0.parquet".to_owned(), true),
    ] {
        let file = File::create(at(&name)).unwrap();
        if is_old {
            file.set_modified(old).unwrap();
        }
    }
    fs::create_dir(at(&format!(".tmp-{}", uuid::Uuid::new_v4()))).unwrap();
    let disk = LocalDisk { durable: true, tally: Arc::default() };
    let before = UNIX_EPOCH.elapsed().unwrap().as_millis() as i64 - 30_000;
    let dir = folder.path().to_str().unwrap().to_owned();
    assert_eq!(disk.delete_unfinished(dir.clone(), before).await.unwrap(), 1);
    assert!(!at(&format!(".tmp-{id}")).exists() && at(".tmp-notes").exists() && at("part-0.parquet").exists());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    assert_eq!(disk.delete_unfinished(dir + "/nothing", before).await.unwrap(), 0);
}

#[tokio::test]
async fn files_that_are_read_together_are_each_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: usize| folder.path().join(name.to_string()).to_str().unwrap().to_owned();
    let disk = LocalDisk { durable: true, tally: Arc::default() };
    for (files, length) in [(1, 10), (3, 0), (MAX_OPEN_FILES + 3, 70_000), (3, MAX_JOINED_BYTES as usize)] {
        let content = |name: usize| vec![name as u8; length + name];
        (0..files).for_each(|name| fs::write(path(name), content(name)).unwrap());
        let before = disk.tally.counts();
        let read = disk.get_all((0..files).map(path).collect()).await.unwrap();
        assert!(read.iter().enumerate().all(|(name, bytes)| *bytes == content(name)) && read.len() == files);
        let after = disk.tally.counts();
        let received: usize = read.iter().map(Bytes::len).sum();
        assert_eq!((after.gets - before.gets, after.bytes_read - before.bytes_read), (files as u64, received as u64));
    }
    let (at, error) = disk.get_all(vec![path(1), path(2), path(999)]).await.unwrap_err();
    assert_eq!((at, error.is_not_found()), (2, true));
}

#[tokio::test]
async fn what_refers_to_files_that_may_be_lost_does_not_appear() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let disk = LocalDisk { durable: true, tally: Arc::default() };
    let mut failed = Syncing::default();
    failed.push(tokio::spawn(async { Ok(()) }));
    failed.push(tokio::spawn(async { Err(Error::storage(false, "no space")) }));
    let error = disk.put_if_absent_after(path("a"), Bytes::from("1").into(), failed).await.unwrap_err();
    assert_eq!(error.message(), "no space");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let created = disk.put_if_absent_after(path("a"), Bytes::from("1").into(), Syncing::default()).await;
    assert!(matches!(created, Ok(Put::Created)));
}

#[test]
fn a_small_file_does_not_wait_for_the_pool_and_one_to_be_synced_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().max_blocking_threads(1).build().unwrap();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let soon = std::time::Duration::from_millis(200);
    runtime.block_on(async {
        let busy = tokio::task::spawn_blocking(move || held.recv());
        let durable = LocalDisk { durable: true, tally: Arc::default() };
        let hasty = durable.clone().not_durable();
        let put = |disk: LocalDisk, name: &str, length: u64| {
            let data = Bytes::from(vec![b' '; usize::try_from(length).unwrap()]);
            let place = path(name);
            async move { tokio::time::timeout(soon, disk.put_if_absent(place, data.into())).await }
        };
        assert!(matches!(put(hasty.clone(), "little", MIN_BYTES_FOR_THREAD - 1).await, Ok(Ok(Put::Created))));
        assert!(put(hasty, "large", MIN_BYTES_FOR_THREAD).await.is_err());
        assert!(put(durable.clone(), "synced", 1).await.is_err());
        let (size, syncing) = durable.create_file(path("named")).finish_unsynced(true).await.unwrap();
        assert_eq!((size, syncing.is_empty(), folder.path().join("named").exists()), (0, false, true));
        assert!(tokio::time::timeout(soon, syncing.wait()).await.is_err(), "nothing is durable before it is synced");
        release.send(()).unwrap();
        busy.await.unwrap().unwrap();
    });
}

#[test]
fn a_file_that_nobody_waits_for_does_not_stay() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().max_blocking_threads(1).build().unwrap();
    let (release, held) = std::sync::mpsc::channel::<()>();
    runtime.block_on(async {
        let busy = tokio::task::spawn_blocking(move || held.recv());
        let disk = LocalDisk { durable: true, tally: Arc::default() };
        let mut writer = disk.create_file(folder.path().join("named").to_str().unwrap().to_owned());
        writer.write(Bytes::from_static(b"rows")).await.unwrap();
        // The pool has the work, and finishes it after the caller has stopped waiting.
        assert!(
            tokio::time::timeout(std::time::Duration::from_millis(50), writer.finish_unsynced(false)).await.is_err()
        );
        release.send(()).unwrap();
        busy.await.unwrap().unwrap();
        tokio::task::spawn_blocking(|| ()).await.unwrap();
    });
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn failures_say_what_to_do() {
    let path = Path::new("/data/table/_delta_log/1.json");
    for (kind, action, expected, retryable) in [
        (ErrorKind::StorageFull, "write", "/data/table/_delta_log is full", false),
        (ErrorKind::PermissionDenied, "write", "write in the folder /data/table/_delta_log", false),
        (ErrorKind::PermissionDenied, "read", "no permission to read /data/table/_delta_log/1.json", false),
        (ErrorKind::ReadOnlyFilesystem, "write", "read-only", false),
        (ErrorKind::TimedOut, "read", "just now", true),
    ] {
        let error = failed(action, path, kind.into());
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(*error.kind(), crate::error::Kind::Storage { retryable }, "{error}");
    }
    assert!(failed("read", path, ErrorKind::NotFound.into()).is_not_found());
}
