//! Lists whole trees and deletes many files, for tables with millions of files.

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use super::{Backend, Storage};
use crate::cloud::remote::Remote;
use crate::error::{Error, Result};
use crate::listing::{FileMeta, Listed};
use crate::local::LocalDisk;

/// The requested files of one backend, by their index in the request.
struct Group<B> {
    backend: B,
    positions: Vec<usize>,
    keys: Vec<String>,
}

/// How files are listed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListMode {
    /// One page after the other.
    Paged,
    /// Several ranges of names at once.
    InRanges,
    /// Page by page; an entry that cannot be listed is an error.
    Strict,
}

impl Storage {
    /// All files below `dir`, at any depth, in no particular order. A missing folder has no files. An error ends the stream.
    ///
    /// Hidden files are listed, and so are unfinished ones. On a disk a link to a folder is not
    /// followed, and names that are not UTF-8 are left out. Files that are made or deleted meanwhile may or may not be listed.
    /// Memory holds a thousand files and the names of the remaining folders, not all files.
    pub fn list_recursive(&self, dir: &str) -> BoxStream<'static, Result<FileMeta>> {
        self.list_below(dir, ListMode::Paged)
    }

    /// As [`Storage::list_recursive`], with several requests at once if the store lists in the order of names. A store that
    /// violates this order may leave files out, so this is only for callers that keep files which are not listed.
    pub fn list_in_ranges(&self, dir: &str) -> BoxStream<'static, Result<FileMeta>> {
        self.list_below(dir, ListMode::InRanges)
    }

    /// As [`Storage::list_recursive`], but a link to a folder, a name that is not UTF-8 and other entries that would be
    /// left out on a disk is an error, `Invalid`.
    pub fn list_everything(&self, dir: &str) -> BoxStream<'static, Result<FileMeta>> {
        self.list_below(dir, ListMode::Strict)
    }

    /// Files and folders directly in `dir`, in no particular order; otherwise as [`Storage::list_recursive`]. Memory holds
    /// one page.
    pub fn list_folder(&self, dir: &str) -> BoxStream<'static, Result<Listed>> {
        let (storage, dir) = (self.clone(), dir.to_owned());
        let pages = match self.resolve(&dir) {
            Ok((Backend::Local(disk), key, _)) => disk.list_folder(key),
            Ok((Backend::Remote(remote), key, _)) => remote.list_folder(key),
            Err(e) => {
                let refused = Err(self.with_context(e, &dir));
                return stream::once(async { refused }).boxed();
            }
        };
        let prefix = if dir.is_empty() || dir.ends_with('/') { dir.clone() } else { format!("{dir}/") };
        pages
            .map_ok(move |(files, folders)| {
                let files: Vec<_> = files.into_iter().map(|file| Listed::File(file.below(&prefix))).collect();
                let folders: Vec<_> = folders.iter().map(|name| Listed::Folder(format!("{prefix}{name}"))).collect();
                stream::iter(files.into_iter().chain(folders).map(Ok))
            })
            .map_err(move |e| storage.with_context(e, &dir))
            .try_flatten()
            .boxed()
    }

    fn list_below(&self, dir: &str, way: ListMode) -> BoxStream<'static, Result<FileMeta>> {
        let (storage, dir) = (self.clone(), dir.to_owned());
        let (backend, key) = match self.resolve(&dir) {
            Ok((backend, key, _)) => (backend, key),
            Err(e) => {
                let refused = Err(self.with_context(e, &dir));
                return stream::once(async { refused }).boxed();
            }
        };
        let pages = match backend {
            Backend::Local(disk) => disk.list_recursive(key, way == ListMode::Strict),
            Backend::Remote(remote) if way == ListMode::InRanges => remote.list_in_ranges(key),
            Backend::Remote(remote) => remote.list_recursive(key),
        };
        let prefix = if dir.is_empty() || dir.ends_with('/') { dir.clone() } else { format!("{dir}/") };
        pages
            .map_ok(move |entries| {
                let prefix = prefix.clone();
                stream::iter(entries.into_iter().map(move |entry| Ok(entry.below(&prefix))))
            })
            .map_err(move |e| storage.with_context(e, &dir))
            .try_flatten()
            .boxed()
    }

    /// Deletes the files. Returns an outcome for each, in their order. A missing file counts as deleted, and a file that cannot
    /// be deleted does not affect the others. Stores that can do so delete many by one request.
    pub async fn delete_many(&self, paths: &[String]) -> Vec<Result<()>> {
        let mut outcomes: Vec<Option<Result<()>>> = Vec::with_capacity(paths.len());
        let (mut disks, mut buckets): (Vec<Group<LocalDisk>>, Vec<Group<Remote>>) = (Vec::new(), Vec::new());
        for (position, path) in paths.iter().enumerate() {
            outcomes.push(None);
            match self.resolve_file(path) {
                Ok((Backend::Local(disk), key)) => add(&mut disks, disk, |_, _| true, position, key),
                Ok((Backend::Remote(remote), key)) => add(&mut buckets, remote, Remote::is, position, key),
                Err(e) => set(&mut outcomes, position, Err(e)),
            }
        }
        for Group { backend, positions, keys } in disks {
            let deleted = backend.delete_many(keys).await;
            positions.into_iter().zip(deleted).for_each(|(position, outcome)| set(&mut outcomes, position, outcome));
        }
        for Group { backend, positions, keys } in buckets {
            let deleted = backend.delete_many(&keys).await;
            positions.into_iter().zip(deleted).for_each(|(position, outcome)| set(&mut outcomes, position, outcome));
        }
        let lost = || Err(Error::internal("a deletion has no outcome"));
        let placed = |(outcome, path): (Option<Result<()>>, &String)| {
            outcome.unwrap_or_else(lost).map_err(|e| self.with_context(e, path))
        };
        outcomes.into_iter().zip(paths).map(placed).collect()
    }
}

/// Adds a file to the group of its backend.
fn add<B>(groups: &mut Vec<Group<B>>, backend: B, is: impl Fn(&B, &B) -> bool, position: usize, key: String) {
    let at = groups.iter().position(|group| is(&group.backend, &backend)).unwrap_or_else(|| {
        groups.push(Group { backend, positions: Vec::new(), keys: Vec::new() });
        groups.len() - 1
    });
    if let Some(group) = groups.get_mut(at) {
        group.positions.push(position);
        group.keys.push(key);
    }
}

fn set(outcomes: &mut [Option<Result<()>>], position: usize, outcome: Result<()>) {
    if let Some(slot) = outcomes.get_mut(position) {
        *slot = Some(outcome);
    }
}
