//! Reconciliation: the newest reference to a logical file wins.
//!
//! A logical file is a path with a deletion vector id. Actions are fed newest version first; whatever the
//! [`Replay`] has seen already is superseded. Commits are remembered, checkpoints only ask (nothing comes after them,
//! and a checkpoint holds a logical file once).
//!
//! No allocation per row: the table holds positions into the batches it was fed and compares bytes there; only
//! paths that need decoding are copied.
//!
//! PROTOCOL.md: "Action Reconciliation".

use std::borrow::Cow;

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use hashbrown::HashTable;
use percent_encoding::percent_decode_str;

use crate::action::batch::KeyBatch;

pub mod paths;

/// The logical files seen so far, newest first.
#[derive(Debug, Default)]
pub struct Replay {
    /// Keyed with random state: paths are untrusted, and a known hash would let them collide on purpose.
    state: ahash::RandomState,
    seen: HashTable<Position>,
    batches: Vec<KeyBatch>,
}

#[derive(Debug, Clone, Copy)]
struct Position {
    batch: u32,
    row: u32,
}

type Key<'a> = (Cow<'a, str>, Option<(&'a str, &'a str, Option<i32>)>);

impl Replay {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes room for so many more files.
    pub fn reserve(&mut self, files: usize) {
        let Self { state, seen, batches } = self;
        let at = |p: &Position| batches.get(p.batch as usize).map(|b| key(b, p.row as usize));
        seen.reserve(files, |p| at(p).map_or(0, |k| hash(state, &k)));
    }

    /// How many files were seen.
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// Whether a file that the other saw was seen here, too.
    pub fn overlaps(&self, other: &Self) -> bool {
        other.batches.iter().any(|keys| self.unseen(keys).count_set_bits() < keys.len())
    }

    /// Whether nothing was seen, so that nothing older can be superseded.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Remembers the files of a commit. A bit is set for each that no newer action (nor an earlier row) mentioned.
    pub fn remember(&mut self, keys: &KeyBatch) -> BooleanBuffer {
        let mut newest = BooleanBufferBuilder::new(keys.len());
        let batch = u32::try_from(self.batches.len()).unwrap_or(u32::MAX);
        self.batches.push(keys.clone());
        let Self { state, seen, batches } = self;
        let at = |p: &Position| batches.get(p.batch as usize).map(|b| key(b, p.row as usize));
        for row in 0..keys.len() {
            let sought = key(keys, row);
            let hash = hash(state, &sought);
            let is_new = seen.find(hash, |p| at(p).as_ref() == Some(&sought)).is_none();
            if is_new {
                let position = Position { batch, row: u32::try_from(row).unwrap_or(u32::MAX) };
                seen.insert_unique(hash, position, |p| at(p).map_or(0, |k| self::hash(state, &k)));
            }
            newest.append(is_new);
        }
        newest.finish()
    }

    /// Several, newest first, as one.
    pub fn joined<'r>(newest_first: impl IntoIterator<Item = &'r std::sync::Arc<Self>>) -> Self {
        let mut joined = Self::new();
        for batch in newest_first.into_iter().flat_map(|replay| &replay.batches) {
            joined.remember(batch);
        }
        joined
    }

    /// Whether the file with this path, as it stands in the log, and this deletion vector was mentioned.
    pub fn saw(&self, path: &str, deletion_vector: Option<(&str, &str, Option<i32>)>) -> bool {
        let at = |p: &Position| self.batches.get(p.batch as usize).map(|b| key(b, p.row as usize));
        let sought = (canonical_path(path), deletion_vector);
        self.seen.find(hash(&self.state, &sought), |p| at(p).as_ref() == Some(&sought)).is_some()
    }

    /// A bit for each file that no newer action mentioned. Remembers nothing, so batches may be asked in parallel.
    pub fn unseen(&self, keys: &KeyBatch) -> BooleanBuffer {
        if self.seen.is_empty() {
            return BooleanBuffer::new_set(keys.len());
        }
        let at = |p: &Position| self.batches.get(p.batch as usize).map(|b| key(b, p.row as usize));
        BooleanBuffer::collect_bool(keys.len(), |row| {
            let sought = key(keys, row);
            self.seen.find(hash(&self.state, &sought), |p| at(p).as_ref() == Some(&sought)).is_none()
        })
    }
}

fn key(keys: &KeyBatch, row: usize) -> Key<'_> {
    (canonical_path(keys.path(row)), keys.deletion_vector(row))
}

fn hash(state: &ahash::RandomState, key: &Key<'_>) -> u64 {
    state.hash_one(key)
}

/// One spelling for the spellings of one path: percent-decoded, and absolute local paths without `file:`.
pub fn canonical_path(path: &str) -> Cow<'_, str> {
    // Plain names, all but a few, have neither an escape nor a scheme.
    if memchr::memchr2(b'%', b':', path.as_bytes()).is_none() {
        return Cow::Borrowed(path);
    }
    let decode = |text| percent_decode_str(text).decode_utf8().unwrap_or(Cow::Borrowed(text));
    // Without a slash behind it, `file:` is the beginning of a name.
    match path.strip_prefix("file:").filter(|rest| rest.starts_with('/')) {
        Some(rest) => Cow::Owned(format!("/{}", decode(rest.trim_start_matches('/')))),
        None => decode(path),
    }
}
