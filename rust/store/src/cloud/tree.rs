//! Lists all files below a folder of a bucket: page by page if the store has pages, otherwise folder by folder.
//!
//! Proved by [`crate::conformance::check`], with pages of two keys as well.

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::ObjectMeta;
use object_store::list::PaginatedListOptions;

use super::remote::{Remote, entry, key};
use crate::error::{Error, Result};
use crate::listing::Entry;

/// The most levels of folders, since a faulty server may list them without end.
const MAX_DEPTH: usize = 256;
/// The most pages of folders that are read to divide a listing into ranges of names, the most ranges, and how many of them
/// are listed at once.
const MAX_FOLDER_PAGES: usize = 16;
const MAX_RANGES: usize = 64;
const CONCURRENT_LISTS: usize = 8;

/// Keys from one on, up to another one, which is excluded.
#[derive(Default, Clone)]
struct KeyRange {
    from: Option<String>,
    to: Option<String>,
}

impl KeyRange {
    fn contains(&self, key: &str) -> bool {
        self.from.as_deref().is_none_or(|from| from <= key) && !self.is_before(key)
    }

    fn is_before(&self, key: &str) -> bool {
        self.to.as_deref().is_some_and(|to| to <= key)
    }
}

/// The next page to request.
enum Page {
    First,
    After(String),
    None,
}

impl Remote {
    /// Files by their path below `dir`, some at a time.
    pub(crate) fn list_recursive(&self, dir: String) -> BoxStream<'static, Result<Vec<Entry>>> {
        let remote = self.clone();
        let listing = async move {
            let has_pages = remote.clients()?.pages.is_some();
            Ok::<_, Error>(if has_pages { remote.pages_below(&dir) } else { remote.folders_below(dir) })
        };
        stream::once(listing).try_flatten().boxed()
    }

    /// Files and folders directly in `dir` by their names, some at a time.
    pub(crate) fn list_folder(&self, dir: String) -> BoxStream<'static, Result<(Vec<Entry>, Vec<String>)>> {
        let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        stream::try_unfold((self.clone(), prefix, Page::First), |(remote, prefix, page)| async move {
            let page_token = match page {
                Page::First => None,
                Page::After(token) => Some(token),
                Page::None => return Ok(None),
            };
            let clients = remote.clients()?;
            remote.tally().list();
            let (listed, page) = if let Some(pages) = &clients.pages {
                let delimiter = Some("/".into());
                let options = PaginatedListOptions { delimiter, page_token: page_token.clone(), ..Default::default() };
                let listed = pages.list_paginated(Some(prefix.as_str()).filter(|prefix| !prefix.is_empty()), options);
                let listed = listed.await.map_err(|e| remote.fail("list", e))?;
                match listed.page_token {
                    None => (listed.result, Page::None),
                    token if token == page_token => return Err(same_page()),
                    Some(token) => (listed.result, Page::After(token)),
                }
            } else {
                let at = if prefix.is_empty() { None } else { Some(key(prefix.trim_end_matches('/'))?) };
                let listed =
                    clients.store.list_with_delimiter(at.as_ref()).await.map_err(|e| remote.fail("list", e))?;
                (listed, Page::None)
            };
            let name = |folder: &str| {
                let name = folder.strip_prefix(&prefix)?.trim_end_matches('/');
                // Other names of a server do not belong to this folder.
                (!name.is_empty() && !name.contains('/')).then(|| name.to_owned())
            };
            let folders = listed.common_prefixes.iter().filter_map(|folder| name(folder.as_ref())).collect();
            let files = below(&prefix, &listed.objects);
            Ok(Some(((files, folders), (remote, prefix, page))))
        })
        .boxed()
    }

    /// As [`Remote::list_recursive`], but several ranges of names between the folders of `dir` are listed at once. Without
    /// such folders, or if a listing cannot begin at a name, it lists one page after the other.
    pub(crate) fn list_in_ranges(&self, dir: String) -> BoxStream<'static, Result<Vec<Entry>>> {
        let remote = self.clone();
        let listing = async move {
            if remote.clients()?.pages.is_none() || !remote.clients()?.offsets {
                return Ok(remote.list_recursive(dir));
            }
            let mut pages = remote.clone().pages_below(&dir);
            let first = pages.try_next().await?.unwrap_or_default();
            let second = pages.try_next().await?;
            let Some(second) = second else { return Ok(stream::iter([Ok(first)]).boxed()) };
            let ranges = remote.ranges_of(&dir).await?;
            if ranges.len() == 1 {
                return Ok(stream::iter([Ok(first), Ok(second)]).chain(pages).boxed());
            }
            let listed = ranges.into_iter().map(move |range| remote.clone().pages_within(&dir, range));
            Ok::<_, Error>(stream::iter(listed).flatten_unordered(CONCURRENT_LISTS).boxed())
        };
        stream::once(listing).try_flatten().boxed()
    }

    /// Ranges that cover all keys below `dir`.
    async fn ranges_of(&self, dir: &str) -> Result<Vec<KeyRange>> {
        let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let mut pages = self.list_folder(dir.to_owned()).take(MAX_FOLDER_PAGES);
        let mut starts: Vec<String> = Vec::new();
        while let Some((_, found)) = pages.try_next().await? {
            if found.is_empty() {
                break;
            }
            starts.extend(found.iter().map(|folder| format!("{prefix}{folder}/")));
        }
        // The folder `a` is listed before `a.b`, but `a.b/` sorts before `a/`.
        starts.sort_unstable();
        starts.dedup();
        let step = starts.len().div_ceil(MAX_RANGES).max(1);
        let mut ranges = vec![KeyRange::default()];
        for start in starts.into_iter().step_by(step).skip(1) {
            if let Some(last) = ranges.last_mut() {
                last.to = Some(start.clone());
            }
            ranges.push(KeyRange { from: Some(start), to: None });
        }
        Ok(ranges)
    }

    fn pages_below(self, dir: &str) -> BoxStream<'static, Result<Vec<Entry>>> {
        self.pages_within(dir, KeyRange::default())
    }

    fn pages_within(self, dir: &str, range: KeyRange) -> BoxStream<'static, Result<Vec<Entry>>> {
        let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let from = (self, prefix, range, Page::First);
        stream::try_unfold(from, |(remote, prefix, range, page)| async move {
            let (page_token, offset) = match page {
                Page::First => (None, range.from.clone()),
                Page::After(token) => (Some(token), None),
                Page::None => return Ok(None),
            };
            let clients = remote.clients()?;
            let pages = clients.pages.as_ref().ok_or_else(|| Error::internal("a store lost its pages"))?;
            let options = PaginatedListOptions { offset, page_token: page_token.clone(), ..Default::default() };
            remote.tally().list();
            let listed = pages.list_paginated(Some(prefix.as_str()).filter(|prefix| !prefix.is_empty()), options);
            let listed = listed.await.map_err(|e| remote.fail("list", e))?;
            let mut objects = listed.result.objects;
            let is_last = objects.last().is_some_and(|object| range.is_before(object.location.as_ref()));
            objects.retain(|object| range.contains(object.location.as_ref()));
            let page = match listed.page_token {
                _ if is_last => Page::None,
                None => Page::None,
                token if token == page_token => return Err(same_page()),
                Some(token) => Page::After(token),
            };
            Ok(Some((below(&prefix, &objects), (remote, prefix, range, page))))
        })
        .boxed()
    }

    fn folders_below(self, dir: String) -> BoxStream<'static, Result<Vec<Entry>>> {
        let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        stream::try_unfold((self, prefix, vec![dir]), |(remote, prefix, mut folders)| async move {
            let Some(folder) = folders.pop() else { return Ok(None) };
            let clients = remote.clients()?;
            let at = if folder.is_empty() { None } else { Some(key(&folder)?) };
            remote.tally().list();
            let listed = clients.store.list_with_delimiter(at.as_ref()).await.map_err(|e| remote.fail("list", e))?;
            let within = if folder.is_empty() { folder } else { folder + "/" };
            for folder in &listed.common_prefixes {
                let name = folder.as_ref().strip_prefix(&within).unwrap_or_default();
                // Other names of a server would be listed twice, or do not belong to this folder.
                if !name.is_empty() && !name.contains('/') {
                    folders.push(folder.as_ref().to_owned());
                }
            }
            if folders.last().is_some_and(|folder| folder.split('/').count() > MAX_DEPTH) {
                return Err(Error::storage(false, "the store lists folders that are nested without end"));
            }
            Ok(Some((below(&prefix, &listed.objects), (remote, prefix, folders))))
        })
        .boxed()
    }
}

/// The error of a listing that would never end.
pub(super) fn same_page() -> Error {
    Error::storage(false, "the store answers every page of a listing with the same one")
}

fn below(prefix: &str, objects: &[ObjectMeta]) -> Vec<Entry> {
    let named = |object: &ObjectMeta| {
        let name = object.location.as_ref().strip_prefix(prefix).filter(|name| !name.is_empty())?;
        Some(entry(name.to_owned(), object))
    };
    objects.iter().filter_map(named).collect()
}
