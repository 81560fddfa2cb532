//! Lists all files below a folder of the local disk.
//!
//! A link to a folder is not followed: it may lead out of the folder, or form a cycle. Such an entry can be made an error
//! instead. Proved by `links_to_folders_are_not_followed` and [`crate::conformance::check`].

use std::fs::{self, DirEntry, ReadDir};
use std::path::PathBuf;
use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use rustix::io::Errno;

use super::disk::{LocalDisk, blocking, entry, failed, is_missing};
use crate::counts::Tally;
use crate::error::{Error, Result};
use crate::listing::Entry;

/// How many files are read in one task.
const FILES_PER_TASK: usize = 1000;

/// The state of a walk.
struct Walk {
    root: PathBuf,
    /// Folders to come, relative to the root, with a slash at the end.
    folders: Vec<String>,
    /// The folder that is being read.
    open: Option<(String, ReadDir)>,
    /// Whether an entry that would be left out is an error.
    is_strict: bool,
    tally: Arc<Tally>,
}

impl LocalDisk {
    /// Files by their path below `dir`, some at a time.
    pub(crate) fn list_recursive(&self, dir: String, is_strict: bool) -> BoxStream<'static, Result<Vec<Entry>>> {
        let (root, folders, tally) = (PathBuf::from(dir), vec![String::new()], self.tally.clone());
        let walk = Walk { root, folders, open: None, is_strict, tally };
        stream::try_unfold(walk, |mut walk| blocking(move || Ok(walk.some()?.map(|found| (found, walk))))).boxed()
    }

    /// Files and folders directly in `dir` by their names, some at a time.
    pub(crate) fn list_folder(&self, dir: String) -> BoxStream<'static, Result<(Vec<Entry>, Vec<String>)>> {
        let (root, tally) = (PathBuf::from(dir), self.tally.clone());
        let walk = Walk { root, folders: Vec::new(), open: None, is_strict: false, tally };
        let begun = |mut walk: Walk| blocking(move || walk.open(String::new()).map(|()| walk));
        let some = |mut walk: Walk| blocking(move || Ok(walk.some_here()?.map(|found| (found, walk))));
        stream::once(begun(walk)).map_ok(move |walk| stream::try_unfold(walk, some)).try_flatten().boxed()
    }
}

impl Walk {
    /// The next files; `None` if there are no more.
    fn some(&mut self) -> Result<Option<Vec<Entry>>> {
        let mut found = Vec::new();
        while found.len() < FILES_PER_TASK {
            let Some((prefix, items)) = &mut self.open else {
                let Some(prefix) = self.folders.pop() else { break };
                self.open(prefix)?;
                continue;
            };
            match items.next() {
                None => self.open = None,
                Some(Err(e)) => return Err(failed("list", &self.root.join(prefix), e)),
                Some(Ok(item)) => {
                    if !look(&item, prefix, &mut found, &mut self.folders)? && self.is_strict {
                        return Err(unlisted(&item));
                    }
                }
            }
        }
        Ok((!found.is_empty()).then_some(found))
    }

    /// Begins to read a folder.
    fn open(&mut self, prefix: String) -> Result<()> {
        let path = self.root.join(&prefix);
        self.tally.list();
        match fs::read_dir(&path) {
            Ok(items) => self.open = Some((prefix, items)),
            // It was deleted since, or is a file.
            Err(e) if is_missing(&e) => {}
            Err(e) => return Err(failed("list", &path, e)),
        }
        Ok(())
    }

    /// The next files and folders of the folder that is open; `None` if there are no more.
    fn some_here(&mut self) -> Result<Option<(Vec<Entry>, Vec<String>)>> {
        let Some((prefix, items)) = &mut self.open else { return Ok(None) };
        let (mut found, mut folders) = (Vec::new(), Vec::new());
        let mut looked_at = false;
        for item in items.by_ref().take(FILES_PER_TASK) {
            looked_at = true;
            let item = item.map_err(|e| failed("list", &self.root.join(&*prefix), e))?;
            look(&item, prefix, &mut found, &mut folders)?;
        }
        for folder in &mut folders {
            folder.pop();
        }
        Ok(looked_at.then_some((found, folders)))
    }
}

/// Adds a file or a folder. Returns false if it is something else.
fn look(item: &DirEntry, prefix: &str, found: &mut Vec<Entry>, folders: &mut Vec<String>) -> Result<bool> {
    // A file whose name is not UTF-8 cannot be read or deleted here.
    let Ok(name) = item.file_name().into_string() else { return Ok(false) };
    let because = |e| failed("read", &item.path(), e);
    let kind = match item.file_type() {
        Err(e) if is_missing(&e) => return Ok(true),
        kind => kind.map_err(because)?,
    };
    if kind.is_dir() {
        folders.push(format!("{prefix}{name}/"));
        return Ok(true);
    }
    let metadata = match kind.is_symlink() {
        // A broken link is not a file.
        true => match fs::metadata(item.path()) {
            Err(e) if is_missing(&e) || Errno::from_io_error(&e) == Some(Errno::LOOP) => None,
            metadata => Some(metadata.map_err(because)?),
        },
        false => match item.metadata() {
            Err(e) if is_missing(&e) => return Ok(true),
            metadata => Some(metadata.map_err(because)?),
        },
    };
    let file = metadata.filter(fs::Metadata::is_file).map(|metadata| entry(format!("{prefix}{name}"), &metadata));
    let is_file = file.is_some();
    found.extend(file);
    Ok(is_file)
}

fn unlisted(item: &DirEntry) -> Error {
    Error::invalid(
        "it is a link to a folder, no file at all, or has a name that is not UTF-8, so that it would be left out; put files \
         in its place, or move it elsewhere",
    )
    .in_file(item.path().to_string_lossy())
}
