//! A cache of decoded columns, up to a limit of bytes.
//!
//! Whole columns are evicted, the one unused for longest first: half a column would have to be decoded again by the next
//! query anyway. Beyond some bytes, a plan that decodes a row group packs the columns of it that it does not use; rows of
//! a packed column are unpacked for each query that needs them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use arrow_array::BooleanArray;
use arrow_buffer::BooleanBuffer;
use arrow_select::filter::filter;

use super::column::IndexColumn;
use super::packed::Packed;
use super::values::Values;
use crate::error::{Error, Result};

/// Bytes kept by default: what a table of some millions of files needs for its paths and a few columns.
pub const DEFAULT_LIMIT: usize = 512 * 1024 * 1024;
/// A column that so many plans in a row did not use is evicted before all others.
const EVICT_AFTER_PLANS: u64 = 8;
/// Bytes of unpacked columns from which on those that a plan does not use are packed: packing costs more than
/// most queries.
const PACK_ABOVE_BYTES: usize = 64 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Cache {
    state: Mutex<State>,
    /// The process that made the cache. In a child the lock may be held for ever, by a thread that `fork` did not copy.
    pid: u32,
}

#[derive(Debug)]
struct State {
    limit: usize,
    bytes: usize,
    /// How many of the bytes are of columns that could be packed.
    unpacked: usize,
    /// How many plans there have been.
    plans: u64,
    columns: Vec<Cached>,
}

#[derive(Debug)]
struct Cached {
    column: IndexColumn,
    groups: Vec<Option<CachedColumn>>,
    bytes: usize,
    /// The number of the plan that used it last.
    last_used_plan: u64,
}

/// A column of a row group, with a place for every row.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "there is one for each column of a row group")]
pub(super) enum CachedColumn {
    /// As decoded; values of rows that were not requested may be missing.
    Plain(Values),
    Packed(Arc<Packed>),
}

impl CachedColumn {
    fn bytes(&self) -> usize {
        match self {
            Self::Plain(values) => values.bytes(),
            Self::Packed(packed) => packed.bytes(),
        }
    }

    /// Its bytes if it could be packed, otherwise 0.
    fn unpacked(&self) -> usize {
        match self {
            Self::Plain(Values::Encoded(_)) | Self::Packed(_) => 0,
            Self::Plain(values) => values.bytes(),
        }
    }

    /// Whether it is packed, so that reading rows costs time.
    pub(super) fn is_packed(&self) -> bool {
        matches!(self, Self::Packed(_))
    }

    /// `length` rows from `start` on.
    pub(super) fn range(&self, start: usize, length: usize) -> Result<Values> {
        match self {
            Self::Plain(values) => values.slice(start, length),
            Self::Packed(packed) => packed.range(start, length),
        }
    }

    /// The values at the set bits of `rows`, which has a bit for each row of the row group. Only for columns with one value
    /// for each file.
    pub(super) fn select(&self, rows: &BooleanBuffer) -> Result<Values> {
        match self {
            column if rows.count_set_bits() == rows.len() => column.range(0, rows.len()),
            Self::Plain(Values::Array(array)) => {
                Ok(Values::Array(filter(array, &BooleanArray::new(rows.clone(), None))?))
            }
            Self::Plain(Values::Encoded(encoded)) => {
                Ok(Values::Array(encoded.array(rows.set_indices(), rows.count_set_bits())?))
            }
            Self::Plain(_) => Err(Error::internal("only columns with one value a file are filtered")),
            Self::Packed(packed) => packed.select(rows),
        }
    }
}

impl Default for Cache {
    fn default() -> Self {
        let state = State { limit: DEFAULT_LIMIT, bytes: 0, unpacked: 0, plans: 0, columns: Vec::new() };
        Self { state: Mutex::new(state), pid: std::process::id() }
    }
}

impl Cache {
    pub(super) fn get(&self, column: &IndexColumn, group: usize) -> Option<CachedColumn> {
        let mut state = self.state()?;
        let plan = state.plans;
        let cached = state.columns.iter_mut().find(|c| serves(&c.column, column))?;
        cached.last_used_plan = plan;
        cached.groups.get(group).cloned().flatten()
    }

    /// Whether columns decoded from so many fetched bytes are likely to be kept.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        self.state().is_some_and(|state| bytes <= state.limit)
    }

    /// Keeps a column of a row group, if there is room.
    pub(super) fn put(&self, column: &IndexColumn, group: usize, values: &Values) {
        let Some(mut state) = self.state() else { return };
        let bytes = values.bytes();
        if bytes > state.limit {
            return;
        }
        let plan = state.plans;
        match state.columns.iter_mut().find(|c| c.column == *column) {
            // Two concurrent plans may have decoded the same column.
            Some(cached) if matches!(cached.groups.get(group), Some(Some(_))) => return,
            Some(cached) => cached.last_used_plan = plan,
            None => state.columns.push(Cached {
                column: column.clone(),
                groups: Vec::new(),
                bytes: 0,
                last_used_plan: plan,
            }),
        }
        if !state.make_room(column, bytes) {
            return;
        }
        let Some(cached) = state.columns.iter_mut().find(|c| c.column == *column) else { return };
        if cached.groups.len() <= group {
            cached.groups.resize(group + 1, None);
        }
        let Some(slot) = cached.groups.get_mut(group) else { return };
        *slot = Some(CachedColumn::Plain(values.clone()));
        let unpacked = slot.as_ref().map_or(0, CachedColumn::unpacked);
        cached.bytes += bytes;
        state.bytes += bytes;
        state.unpacked += unpacked;
    }

    /// Counts a plan, which begins.
    pub(super) fn plan(&self) {
        if let Some(mut state) = self.state() {
            state.plans += 1;
        }
    }

    pub(super) fn limit(&self, bytes: usize) {
        if let Some(mut state) = self.state() {
            state.limit = bytes;
            while state.bytes > bytes
                && let Some(at) = state.column_to_evict(None)
            {
                state.evict_last_group(at);
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.state().map_or(0, |state| state.bytes)
    }

    /// Whether columns of a row group that the last plan did not use are to be packed.
    pub(super) fn is_packing_due(&self, group: usize) -> bool {
        self.state().is_some_and(|state| state.unpacked > PACK_ABOVE_BYTES && state.to_pack(Some(group)).is_some())
    }

    /// Packs the columns of a row group that the last plan did not use; all columns if `None`.
    pub(super) fn pack(&self, group: Option<usize>) {
        // The lock is not held while a column is packed.
        while let Some((column, group, values)) = self.state().and_then(|state| state.to_pack(group)) {
            let packed = Packed::of(&values).ok();
            let _plain = self.state().and_then(|mut state| state.replace(&column, group, packed));
        }
    }

    /// The state; `None` in a forked child if the lock is held, maybe for ever: nothing is cached then.
    fn state(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => {
                (std::process::id() == self.pid).then(|| self.state.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }
}

impl State {
    /// A column that could be packed: one of row group `group` that the last plan did not use; any column if `None`.
    fn to_pack(&self, group: Option<usize>) -> Option<(IndexColumn, usize, Values)> {
        let columns = self.columns.iter().filter(|cached| group.is_none() || cached.last_used_plan < self.plans);
        columns.into_iter().find_map(|cached| {
            let mut groups = cached.groups.iter().enumerate().filter(|(at, _)| group.is_none_or(|group| group == *at));
            groups.find_map(|(at, column)| match column {
                Some(CachedColumn::Plain(values)) if column.as_ref().is_some_and(|column| column.unpacked() > 0) => {
                    Some((cached.column.clone(), at, values.clone()))
                }
                _ => None,
            })
        })
    }

    /// Replaces a plain column by its packed form, unless the plain one is gone. Returns the plain one, to be freed without
    /// the lock. A column that cannot be packed is dropped, since it could not be read either.
    fn replace(&mut self, column: &IndexColumn, group: usize, packed: Option<Packed>) -> Option<CachedColumn> {
        let cached = self.columns.iter_mut().find(|c| c.column == *column)?;
        let slot = cached.groups.get_mut(group)?;
        let plain = slot.take_if(|column| column.unpacked() > 0)?;
        self.unpacked = self.unpacked.saturating_sub(plain.unpacked());
        *slot = packed.map(|packed| CachedColumn::Packed(Arc::new(packed)));
        let (before, after) = (plain.bytes(), slot.as_ref().map_or(0, CachedColumn::bytes));
        cached.bytes = (cached.bytes + after).saturating_sub(before);
        self.bytes = (self.bytes + after).saturating_sub(before);
        Some(plain)
    }

    /// Evicts row groups of columns until `bytes` more bytes of `column` fit. Returns false if `column` itself would be the
    /// next.
    fn make_room(&mut self, column: &IndexColumn, bytes: usize) -> bool {
        while self.bytes.saturating_add(bytes) > self.limit {
            match self.column_to_evict(Some((column, bytes))) {
                Some(at) if self.columns.get(at).is_some_and(|cached| cached.column != *column) => {
                    self.evict_last_group(at)
                }
                _ => return false,
            }
        }
        true
    }

    /// The column to evict: one that was not used for long, else the largest, so that most others stay. `added`: bytes to be
    /// added to a column.
    fn column_to_evict(&self, added: Option<(&IndexColumn, usize)>) -> Option<usize> {
        let added =
            |cached: &Cached| added.filter(|(column, _)| cached.column == **column).map_or(0, |(_, bytes)| bytes);
        let order = |cached: &Cached| {
            (cached.last_used_plan + EVICT_AFTER_PLANS < self.plans, cached.bytes.saturating_add(added(cached)))
        };
        self.columns.iter().enumerate().max_by_key(|(_, cached)| order(cached)).map(|(at, _)| at)
    }

    /// Evicts the last row group of a column.
    fn evict_last_group(&mut self, at: usize) {
        let Some(cached) = self.columns.get_mut(at) else { return };
        let last = std::iter::from_fn(|| cached.groups.pop()).flatten().next();
        let bytes = last.as_ref().map_or(cached.bytes, CachedColumn::bytes);
        cached.bytes = cached.bytes.saturating_sub(bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.unpacked = self.unpacked.saturating_sub(last.as_ref().map_or(0, CachedColumn::unpacked));
        if cached.bytes == 0 {
            self.columns.swap_remove(at);
        }
    }
}

/// Whether a cached column has all that is wanted: bounds with counts also serve where no counts are needed.
fn serves(cached: &IndexColumn, wanted: &IndexColumn) -> bool {
    match (cached, wanted) {
        (IndexColumn::Bounds { leaf, with_counts: true }, IndexColumn::Bounds { leaf: wanted, with_counts: false }) => {
            leaf == wanted
        }
        (cached, wanted) => cached == wanted,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use arrow_array::{ArrayRef, Int64Array, cast::AsArray, types::Int64Type};

    use super::super::encoded::EncodedColumn;
    use super::super::encoded::some_strings;
    use super::*;

    fn numbers(from: i64) -> Values {
        Values::Array(Arc::new(Int64Array::from_iter_values(from..from + 10_000)) as ArrayRef)
    }

    fn value(column: &CachedColumn, row: usize) -> i64 {
        match column.range(row, 1).unwrap() {
            Values::Array(array) => array.as_primitive::<Int64Type>().value(0),
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn columns_that_a_plan_does_not_use_are_packed_beyond_a_bound() {
        let cache = Cache::default();
        let many = |from: i64| {
            let count = (PACK_ABOVE_BYTES / 17) as i64;
            Values::Array(Arc::new(Int64Array::from_iter_values(from..from + count)) as ArrayRef)
        };
        cache.plan();
        for group in 0..2 {
            cache.put(&IndexColumn::Size, group, &many(group as i64));
        }
        cache.put(&IndexColumn::Path, 0, &Values::Encoded(EncodedColumn::Strings(Arc::new(some_strings(1_000)))));
        assert!(!cache.is_packing_due(0));
        cache.put(&IndexColumn::ModificationTime, 0, &many(0));
        // What this plan uses stays as it is.
        assert!(!cache.is_packing_due(0));
        cache.plan();
        assert!(cache.get(&IndexColumn::ModificationTime, 0).is_some());
        let plain = cache.bytes();
        assert!(cache.is_packing_due(0));
        cache.pack(Some(0));
        assert!(cache.bytes() < plain && !cache.is_packing_due(0) && !cache.is_packing_due(1));
        let held = |column: &IndexColumn, group: usize| cache.get(column, group).unwrap();
        assert!(held(&IndexColumn::Size, 0).is_packed() && !held(&IndexColumn::Size, 1).is_packed());
        // Front-coded strings are kept as they are.
        assert!(!held(&IndexColumn::ModificationTime, 0).is_packed() && !held(&IndexColumn::Path, 0).is_packed());
        assert_eq!(value(&held(&IndexColumn::Size, 0), 7_777), 7_777);
        cache.pack(None);
        assert!(held(&IndexColumn::Size, 1).is_packed());
        assert_eq!(cache.state().unwrap().unpacked, 0);
        cache.limit(100);
        assert_eq!((cache.bytes(), cache.get(&IndexColumn::Size, 0).is_none()), (0, true));
    }

    #[test]
    fn the_largest_column_goes_first_and_before_it_one_that_nobody_uses() {
        let cache = Cache::default();
        let has = |column: &IndexColumn, group: usize| cache.get(column, group).is_some();
        let (size, time) = (&IndexColumn::Size, &IndexColumn::ModificationTime);
        // Room for two and a half.
        cache.limit(200_000);
        cache.put(time, 0, &numbers(0));
        for plan in 0..EVICT_AFTER_PLANS + 3 {
            cache.plan();
            cache.put(size, 0, &numbers(0));
            cache.put(size, 1, &numbers(1));
            // What the largest has stays, though no more of it fits until the other is old.
            assert!(has(size, 0) && cache.bytes() < 200_000);
            assert_eq!(has(size, 1), plan >= EVICT_AFTER_PLANS, "{plan}");
        }
        // One that is smaller takes the place of some of it at once.
        cache.put(time, 0, &numbers(0));
        assert!(has(time, 0) && has(size, 0) && !has(size, 1));
        cache.limit(100_000);
        assert_eq!(usize::from(has(time, 0)) + usize::from(has(size, 0)), 1);
        cache.limit(10_000);
        assert!(!has(time, 0) && !has(size, 0) && cache.bytes() == 0);
    }

    #[test]
    fn memory_that_two_share_counts_once() {
        let shared = arrow_buffer::Buffer::from_vec((0..20_000_i64).collect::<Vec<_>>());
        let half = |at: usize| {
            let numbers = arrow_buffer::ScalarBuffer::new(shared.clone(), at * 10_000, 10_000);
            Arc::new(Int64Array::new(numbers, None)) as ArrayRef
        };
        let bytes = Values::Bounds { min: half(0), max: half(1), counts: None }.bytes();
        assert!((shared.len()..shared.len() + 1_000).contains(&bytes), "{bytes} of {}", shared.len());
    }

    /// As in a child that was forked while a thread had the lock: nothing is cached, and no thread waits.
    #[test]
    fn a_lock_that_another_process_holds_is_not_waited_for() {
        let cache = Cache { pid: std::process::id() + 1, ..Cache::default() };
        cache.put(&IndexColumn::Size, 0, &numbers(0));
        assert!(cache.get(&IndexColumn::Size, 0).is_some());
        let held = cache.state.lock().unwrap();
        cache.put(&IndexColumn::Size, 1, &numbers(1));
        cache.limit(7);
        cache.pack(None);
        assert!(cache.get(&IndexColumn::Size, 0).is_none() && !cache.has_room_for(0) && cache.bytes() == 0);
        drop(held);
        assert!(cache.get(&IndexColumn::Size, 0).is_some() && cache.get(&IndexColumn::Size, 1).is_none());
    }
}
