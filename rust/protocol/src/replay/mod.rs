//! Reconciliation: the newest action on a logical file is valid.
//!
//! A logical file is a path with a deletion vector id. Actions are passed newest version first; a file that the
//! [`Replay`] already contains is superseded. Commits are inserted, checkpoints are only looked up (nothing comes after them,
//! and a checkpoint holds a logical file once).
//!
//! Nothing is allocated for a row: the hash table holds positions in the batches and compares bytes there; only
//! paths that need decoding are copied.
//!
//! PROTOCOL.md: "Action Reconciliation".

use std::borrow::Cow;
use std::ops::Range;

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use percent_encoding::percent_decode_str;

use crate::action::batch::KeyBatch;

pub mod logical;
pub mod paths;
pub mod retention;

/// The logical files seen so far, newest first.
#[derive(Debug, Default)]
pub struct Replay {
    /// With a random key: paths are untrusted, and with a known hash they could be made to collide.
    state: ahash::RandomState,
    seen: HashTable<Position>,
    batches: Vec<KeyBatch>,
}

#[derive(Debug, Clone, Copy)]
struct Position {
    /// Hash of the file at that position. It saves reading the file's key again, which is seldom in the processor's cache.
    hash: u32,
    batch: u32,
    row: u32,
}

type Key<'a> = (Cow<'a, str>, Option<(&'a str, &'a str, Option<i32>)>);

/// The index of a batch of a [`Replay`].
#[derive(Debug, Clone, Copy)]
pub struct BatchId(u32);

impl Replay {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many files were seen.
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// Whether both have seen a common file.
    pub fn overlaps(&self, other: &Self) -> bool {
        other.batches.iter().any(|keys| self.not_contained(keys).count_set_bits() < keys.len())
    }

    /// Whether nothing was seen, so that nothing older can be superseded.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Inserts the files of a commit. A bit is set for each file that no newer action (nor an earlier row) mentioned.
    pub fn insert(&mut self, keys: &KeyBatch) -> BooleanBuffer {
        let mut newest = BooleanBufferBuilder::new(keys.len());
        let batch_id = self.add_batch(keys.clone());
        self.insert_rows(batch_id, 0..keys.len(), &mut newest);
        newest.finish()
    }

    /// Adds the files of several commits as a batch, of which [`Replay::insert_rows`] inserts some rows at a time.
    pub fn add_batch(&mut self, keys: KeyBatch) -> BatchId {
        let batch_id = BatchId(u32::try_from(self.batches.len()).unwrap_or(u32::MAX));
        self.batches.push(keys);
        batch_id
    }

    /// Inserts rows of a batch, and appends the bits that [`Replay::insert`] returns for them.
    pub fn insert_rows(&mut self, batch_id: BatchId, rows: Range<usize>, newest: &mut BooleanBufferBuilder) {
        let Self { state, seen, batches } = self;
        let Some(keys) = batches.get(batch_id.0 as usize) else { return };
        for row in rows {
            let lookup = LookupKey::new(state, key(keys, row));
            let slot = seen.entry(lookup.mixed_hash(), |p| lookup.is_at(batches, p), |p| mix_hash(p.hash));
            newest.append(matches!(slot, Entry::Vacant(_)));
            if let Entry::Vacant(slot) = slot {
                let row = u32::try_from(row).unwrap_or(u32::MAX);
                slot.insert(Position { hash: lookup.hash, batch: batch_id.0, row });
            }
        }
    }

    /// Merges several replays, newest first.
    pub fn merge<'r>(newest_first: impl IntoIterator<Item = &'r std::sync::Arc<Self>>) -> Self {
        let mut merged = Self::new();
        for batch in newest_first.into_iter().flat_map(|replay| &replay.batches) {
            merged.insert(batch);
        }
        merged
    }

    /// Whether the file with this path, as in the log, and this deletion vector was inserted.
    pub fn contains(&self, path: &str, deletion_vector: Option<(&str, &str, Option<i32>)>) -> bool {
        self.contains_key(&LookupKey::new(&self.state, (canonical_path(path), deletion_vector)))
    }

    /// Sets a bit for each file that no newer action mentioned. It inserts nothing, so batches may be looked up in parallel.
    pub fn not_contained(&self, keys: &KeyBatch) -> BooleanBuffer {
        if self.seen.is_empty() {
            return BooleanBuffer::new_set(keys.len());
        }
        BooleanBuffer::collect_bool(keys.len(), |row| !self.contains_key(&LookupKey::new(&self.state, key(keys, row))))
    }

    fn contains_key(&self, lookup: &LookupKey<'_>) -> bool {
        self.seen.find(lookup.mixed_hash(), |p| lookup.is_at(&self.batches, p)).is_some()
    }
}

/// A file that is looked up.
struct LookupKey<'a> {
    key: Key<'a>,
    hash: u32,
}

impl<'a> LookupKey<'a> {
    fn new(state: &ahash::RandomState, key: Key<'a>) -> Self {
        // Half of the hash: of a million files about a hundred pairs have the same, and their paths are compared.
        let hash = (state.hash_one(&key) >> 32) as u32;
        Self { key, hash }
    }

    fn mixed_hash(&self) -> u64 {
        mix_hash(self.hash)
    }

    fn is_at(&self, batches: &[KeyBatch], position: &Position) -> bool {
        let found = || batches.get(position.batch as usize).map(|keys| key(keys, position.row as usize));
        self.hash == position.hash && found().as_ref() == Some(&self.key)
    }
}

/// A 64-bit hash of the half. The hash table uses the highest bits and the lowest bits; both depend on all bits of the half.
fn mix_hash(half: u32) -> u64 {
    u64::from(half).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn key(keys: &KeyBatch, row: usize) -> Key<'_> {
    (canonical_path(keys.path(row)), keys.deletion_vector(row))
}

/// The canonical spelling of a path: percent-decoded, without `.`, `..` and empty segments, and absolute local
/// paths without `file:`.
pub fn canonical_path(path: &str) -> Cow<'_, str> {
    if is_canonical(path) {
        return Cow::Borrowed(path);
    }
    // Without a slash after it, `file:` is the beginning of a name.
    let (root, rest) = match path.strip_prefix("file:").filter(|rest| rest.starts_with('/')) {
        Some(rest) => ("/", rest),
        None => split_root(path),
    };
    let rest = percent_decode_str(rest).decode_utf8().unwrap_or(Cow::Borrowed(rest));
    let mut path = String::with_capacity(root.len() + rest.len());
    path.push_str(root);
    let start = path.len();
    for segment in rest.split('/') {
        let last = path.get(start..).unwrap_or_default().rsplit('/').next().unwrap_or_default();
        match segment {
            "" | "." => {}
            ".." if !last.is_empty() && last != ".." => {
                let end = path.len() - last.len();
                path.truncate(if end > start { end - 1 } else { start });
            }
            name => {
                if path.len() > start {
                    path.push('/');
                }
                path.push_str(name);
            }
        }
    }
    Cow::Owned(path)
}

/// Whether a path has no escape, no scheme and no segment such as `.`, which is true of nearly all paths.
fn is_canonical(path: &str) -> bool {
    let bytes = path.as_bytes();
    let follows = |slash: usize| bytes.get(slash + 1);
    memchr::memchr2(b'%', b':', bytes).is_none()
        && bytes.first() != Some(&b'.')
        && memchr::memchr_iter(b'/', bytes).all(|slash| !matches!(follows(slash), None | Some(b'/' | b'.')))
}

/// The root of a path (scheme and authority of a URI with the slash after them, or the slash of an absolute path), and the
/// rest.
fn split_root(path: &str) -> (&str, &str) {
    let authority = path.split_once("://").filter(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    });
    let length = match authority {
        Some((scheme, rest)) => scheme.len() + "://".len() + rest.find('/').map_or(rest.len(), |slash| slash + 1),
        None => usize::from(path.starts_with('/')),
    };
    path.split_at_checked(length).unwrap_or(("", path))
}
