//! Sets of paths for lookups only: hundreds of thousands of files, which are never listed.
//!
//! A member is kept as 128 bits: two hashes with secret keys of this process. The collision probability in a set of a million
//! members is one in 10^26.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::LazyLock;

use hashbrown::HashTable;
use sha2::{Digest, Sha256};

use super::canonical_path;

static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);

/// A set of hashes of its members.
#[derive(Clone, Default)]
pub struct Fingerprints(HashTable<u128>);

impl Fingerprints {
    /// Adds a member. Returns whether it is new.
    pub fn insert<T: Hash>(&mut self, member: &T) -> bool {
        self.take(fingerprint(member))
    }

    /// Whether the member is there.
    pub fn contains<T: Hash>(&self, member: &T) -> bool {
        let key = fingerprint(member);
        self.0.find(hash(&key), |other| *other == key).is_some()
    }

    /// Adds the members of another set.
    pub fn extend(&mut self, other: Self) {
        if self.0.is_empty() {
            *self = other;
            return;
        }
        for key in other.0 {
            self.take(key);
        }
    }

    /// Whether no member is in both sets.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        let (few, many) = if self.len() < other.len() { (self, other) } else { (other, self) };
        few.0.iter().all(|key| many.0.find(hash(key), |found| found == key).is_none())
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, key: u128) -> bool {
        match self.0.entry(hash(&key), |other| *other == key, hash) {
            hashbrown::hash_table::Entry::Occupied(_) => false,
            hashbrown::hash_table::Entry::Vacant(slot) => {
                slot.insert(key);
                true
            }
        }
    }
}

impl std::fmt::Debug for Fingerprints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} members", self.len())
    }
}

impl PartialEq for Fingerprints {
    fn eq(&self, other: &Self) -> bool {
        let has = |key: &u128| other.0.find(hash(key), |found| found == key).is_some();
        self.len() == other.len() && self.0.iter().all(has)
    }
}

/// Values by paths. All spellings of a path are the same ([`canonical_path`]).
#[derive(Debug, Clone)]
pub struct PathMap<V>(HashTable<(u128, V)>);

impl<V> Default for PathMap<V> {
    fn default() -> Self {
        Self(HashTable::new())
    }
}

impl<V> PathMap<V> {
    /// Sets the value of a path, as spelled in a log.
    pub fn insert(&mut self, path: &str, value: V) {
        self.set(fingerprint(&canonical_path(path).as_ref()), value);
    }

    /// The value of a path.
    pub fn get(&self, path: &str) -> Option<&V> {
        let key = fingerprint(&canonical_path(path).as_ref());
        self.0.find(hash(&key), |(other, _)| *other == key).map(|(_, value)| value)
    }

    /// Adds the paths and values of another map.
    pub fn extend(&mut self, other: Self) {
        if self.0.is_empty() {
            *self = other;
            return;
        }
        for (key, value) in other.0 {
            self.set(key, value);
        }
    }

    fn set(&mut self, key: u128, value: V) {
        match self.0.entry(hash(&key), |(other, _)| *other == key, |(key, _)| hash(key)) {
            hashbrown::hash_table::Entry::Occupied(mut slot) => slot.get_mut().1 = value,
            hashbrown::hash_table::Entry::Vacant(slot) => {
                slot.insert((key, value));
            }
        }
    }
}

/// A hash of a path that is the same in every process that has the salt. Callers must tolerate that two paths have the same
/// hash: of a million paths, the probability is one in ten million.
pub fn salted_hash(salt: &str, path: &str) -> u64 {
    let digest = Sha256::new().chain_update(salt).chain_update([0]).chain_update(path).finalize();
    digest.iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

fn fingerprint<T: Hash>(member: &T) -> u128 {
    let [high, low] = KEYS.each_ref().map(|key| u128::from(key.hash_one(member)));
    high << 64 | low
}

/// The lower half.
fn hash(key: &u128) -> u64 {
    *key as u64
}

/// A set of paths. All spellings of a path are the same ([`canonical_path`]).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PathSet(Fingerprints);

impl PathSet {
    /// Adds a path, as spelled in a log. Returns whether it is new.
    pub fn insert(&mut self, path: &str) -> bool {
        self.0.insert(&canonical_path(path).as_ref())
    }

    /// Whether the path is there.
    pub fn contains(&self, path: &str) -> bool {
        self.0.contains(&canonical_path(path).as_ref())
    }

    /// Adds the paths of another set.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Number of paths.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<P: Borrow<str>> FromIterator<P> for PathSet {
    fn from_iter<I: IntoIterator<Item = P>>(paths: I) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(path.borrow());
        }
        set
    }
}
