//! Columns that were decoded, kept up to a limit; and packed, once nobody asks for any for a while.
//!
//! A column goes as a whole, the one unused for longest first: half a column would have to be decoded again by the next
//! query anyway. Packing costs more than most queries, so that none waits for it; rows of a packed column are unpacked
//! for the query alone that wants them.

use std::hint::black_box;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use arrow_array::BooleanArray;
use arrow_buffer::BooleanBuffer;
use arrow_select::filter::filter;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::Column;
use super::decode::Values;
use super::packed::Packed;
use crate::checkpoint::leaf;
use crate::error::{Error, Result};
use crate::storage::pool;

/// Bytes kept by default: what a table of some millions of files needs for its paths and a few columns.
pub const DEFAULT_LIMIT: usize = 512 * 1024 * 1024;
/// A column that so many plans had no use for is let go before all others.
const PLANS: u64 = 8;
/// How long nobody must have asked for a column before one is packed.
const REST: Duration = Duration::from_millis(500);

/// Enough that an allocator does not have it lying about.
const NUDGE_BYTES: usize = 4 * 1024 * 1024;
/// When threads that decoded columns have ended, and with them their claims to memory: a little after the runtime's ten
/// seconds.
const THREADS_END: Duration = Duration::from_secs(11);

#[derive(Debug)]
pub(super) struct Cache {
    state: Arc<Mutex<State>>,
    /// The process that made it. In a child the lock may be held for ever, by a thread that `fork` did not take along: who
    /// packs takes it when nobody else is about.
    pid: u32,
}

#[derive(Debug)]
struct State {
    limit: usize,
    bytes: usize,
    /// Plans so far.
    plans: u64,
    last_use: Instant,
    columns: Vec<Cached>,
    /// The process in which a task will pack what is not packed yet. A child that was forked has no such task.
    tended_by: Option<u32>,
}

#[derive(Debug)]
struct Cached {
    column: Column,
    groups: Vec<Option<Held>>,
    bytes: usize,
    /// The plan that used it last.
    used: u64,
}

/// A column of a row group, with all rows in their places.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "there is one for each column of a row group")]
pub(super) enum Held {
    /// As it was decoded; values of rows that nobody asked for may be missing.
    Plain(Values),
    Packed(Arc<Packed>),
}

impl Held {
    fn bytes(&self) -> usize {
        match self {
            Self::Plain(values) => values.bytes(),
            Self::Packed(packed) => packed.bytes(),
        }
    }

    /// Whether rows cost something to have.
    pub(super) fn is_packed(&self) -> bool {
        matches!(self, Self::Packed(_))
    }

    /// So many rows from `start` on.
    pub(super) fn range(&self, start: usize, length: usize) -> Result<Values> {
        match self {
            Self::Plain(values) => values.slice(start, length),
            Self::Packed(packed) => packed.range(start, length),
        }
    }

    /// Those of `rows`, which are as many as the row group has; of a column with one value a file.
    pub(super) fn chosen(&self, rows: &BooleanBuffer) -> Result<Values> {
        match self {
            held if rows.count_set_bits() == rows.len() => held.range(0, rows.len()),
            Self::Plain(Values::Array(array)) => {
                Ok(Values::Array(filter(array, &BooleanArray::new(rows.clone(), None))?))
            }
            Self::Plain(Values::Few(few)) => Ok(Values::Array(few.array(rows.set_indices(), rows.count_set_bits())?)),
            Self::Plain(_) => Err(Error::internal("only columns with one value a file are filtered")),
            Self::Packed(packed) => packed.chosen(rows),
        }
    }
}

impl Default for Cache {
    fn default() -> Self {
        let last_use = Instant::now();
        let state = State { limit: DEFAULT_LIMIT, bytes: 0, plans: 0, last_use, columns: Vec::new(), tended_by: None };
        Self { state: Arc::new(Mutex::new(state)), pid: std::process::id() }
    }
}

impl Cache {
    pub(super) fn get(&self, column: &Column, group: usize) -> Option<Held> {
        let mut state = self.state()?;
        let plan = state.used();
        let cached = state.columns.iter_mut().find(|c| serves(&c.column, column))?;
        cached.used = plan;
        cached.groups.get(group).cloned().flatten()
    }

    /// Whether what comes from so many fetched bytes is likely to be kept.
    pub(super) fn takes(&self, bytes: usize) -> bool {
        self.state().is_some_and(|state| bytes <= state.limit)
    }

    /// Columns of a row group that were decoded together. What few are wanted of may lie in one piece of memory, so that
    /// nothing of it is gained where some is let go: all of it is kept, or none.
    pub(super) fn put_all<'c>(&self, group: usize, columns: impl Iterator<Item = (&'c Column, &'c Values)>) {
        let (few, others): (Vec<_>, Vec<_>) = columns.partition(|(_, values)| matches!(values, Values::Few(_)));
        for (column, values) in others {
            self.put(column, group, values);
        }
        let has = |column: &Column| self.state().is_some_and(|state| state.has(column, group));
        let fits = |(column, values): &(&Column, &Values)| {
            self.put(column, group, values);
            has(column)
        };
        // One that was put may have had to go for one that followed.
        if !(few.iter().all(fits) && few.iter().all(|(column, _)| has(column)))
            && let Some(mut state) = self.state()
        {
            state.let_few_go(group);
        }
    }

    fn put(&self, column: &Column, group: usize, values: &Values) {
        let Some(mut state) = self.state() else { return };
        let bytes = values.bytes();
        if bytes > state.limit {
            return;
        }
        let plan = state.used();
        match state.columns.iter_mut().find(|c| c.column == *column) {
            // Two plans at once may have decoded the same.
            Some(cached) if matches!(cached.groups.get(group), Some(Some(_))) => return,
            Some(cached) => cached.used = plan,
            None => state.columns.push(Cached { column: column.clone(), groups: Vec::new(), bytes: 0, used: plan }),
        }
        if !state.makes_room(column, bytes) {
            return;
        }
        let Some(cached) = state.columns.iter_mut().find(|c| c.column == *column) else { return };
        if cached.groups.len() <= group {
            cached.groups.resize(group + 1, None);
        }
        let Some(slot) = cached.groups.get_mut(group) else { return };
        *slot = Some(Held::Plain(values.clone()));
        cached.bytes += bytes;
        state.bytes += bytes;
        let pid = std::process::id();
        if let (true, Ok(runtime)) = (state.tended_by != Some(pid), Handle::try_current()) {
            state.tended_by = Some(pid);
            runtime.spawn(tend(Tender { cache: Arc::downgrade(&self.state), pid, is_done: false }));
        }
    }

    /// A plan begins.
    pub(super) fn plan(&self) {
        if let Some(mut state) = self.state() {
            state.plans += 1;
        }
    }

    pub(super) fn limit(&self, bytes: usize) {
        if let Some(mut state) = self.state() {
            state.limit = bytes;
            while state.bytes > bytes
                && let Some(at) = state.first_to_go(None)
            {
                state.let_go(at);
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.state().map_or(0, |state| state.bytes)
    }

    /// Packs all that is not packed yet.
    pub(super) fn pack(&self) {
        // The lock is not held while a column is packed.
        while let Some((column, group, values)) = self.state().and_then(|state| state.unpacked()) {
            let packed = Packed::of(&values).ok();
            let _plain = self.state().and_then(|mut state| state.replace(&column, group, packed));
        }
    }

    /// `None` where waiting for the lock might never end: nothing is cached then.
    fn state(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => (std::process::id() == self.pid).then(|| locked(&self.state)),
        }
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who packs columns. When it ends before its work is done, or is dropped with its runtime, another may begin.
struct Tender {
    cache: Weak<Mutex<State>>,
    pid: u32,
    is_done: bool,
}

impl Drop for Tender {
    fn drop(&mut self) {
        if self.is_done || self.pid != std::process::id() {
            return;
        }
        if let Some(state) = self.cache.upgrade() {
            locked(&state).tended_by = None;
        }
    }
}

/// Packs what is not packed yet whenever nobody asks for any.
async fn tend(mut tender: Tender) {
    let mut rest = REST;
    loop {
        sleep(rest).await;
        let cache = tender.cache.clone();
        // In one go, and so on one thread: each that packs keeps memory of its own.
        match spawn_blocking(move || pack_while_at_rest(&cache)).await {
            Ok(Due::Rest(longer)) => rest = longer,
            Ok(_) => {
                tender.is_done = true;
                return give_back().await;
            }
            Err(_) => return,
        }
    }
}

/// One column of a row group after the other, until that is no longer due.
fn pack_while_at_rest(cache: &Weak<Mutex<State>>) -> Due {
    let mut has_packed = false;
    loop {
        let Some(state) = cache.upgrade() else { return Due::Nothing };
        let due = locked(&state).due();
        drop(state);
        let Due::Pack(column, group, values) = due else {
            if has_packed {
                nudge();
            }
            return due;
        };
        has_packed = true;
        let packed = Packed::of(&values).ok();
        drop(values);
        let Some(state) = cache.upgrade() else { return Due::Nothing };
        let _plain = locked(&state).replace(&column, group, packed);
    }
}

/// Gives memory back that nobody uses at rest.
async fn give_back() {
    pool::clear();
    leaf::clear_scratch();
    for pause in [REST / 2, REST / 2, REST / 2, REST / 2, THREADS_END] {
        sleep(pause).await;
        nudge();
    }
}

/// An allocator that keeps for a while what is freed looks for what is due only when more is freed, here and there.
fn nudge() {
    drop(black_box(vec![0_u8; NUDGE_BYTES]));
}

/// What there is to do for who packs columns.
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
enum Due {
    Rest(Duration),
    Nothing,
    Pack(Column, usize, Values),
}

impl State {
    /// A column is used by the plan that is returned.
    fn used(&mut self) -> u64 {
        self.last_use = Instant::now();
        self.plans
    }

    fn due(&mut self) -> Due {
        let rest = REST.saturating_sub(self.last_use.elapsed());
        if !rest.is_zero() {
            return Due::Rest(rest);
        }
        match self.unpacked() {
            Some((column, group, values)) => Due::Pack(column, group, values),
            None => {
                self.tended_by = None;
                Due::Nothing
            }
        }
    }

    fn unpacked<'s>(&'s self) -> Option<(Column, usize, Values)> {
        let groups = |cached: &'s Cached| cached.groups.iter().enumerate().map(|held| (&cached.column, held));
        self.columns.iter().flat_map(groups).find_map(|(column, (group, held))| match held {
            Some(Held::Plain(values)) => Some((column.clone(), group, values.clone())),
            _ => None,
        })
    }

    /// Puts a packed column in the place of the plain one, which is returned to be freed without the lock; unless that is
    /// gone. One that cannot be packed is forgotten, as it could not be read.
    fn replace(&mut self, column: &Column, group: usize, packed: Option<Packed>) -> Option<Held> {
        let cached = self.columns.iter_mut().find(|c| c.column == *column)?;
        let slot = cached.groups.get_mut(group)?;
        let plain = slot.take_if(|held| !held.is_packed())?;
        *slot = packed.map(|packed| Held::Packed(Arc::new(packed)));
        let (before, after) = (plain.bytes(), slot.as_ref().map_or(0, Held::bytes));
        cached.bytes = (cached.bytes + after).saturating_sub(before);
        self.bytes = (self.bytes + after).saturating_sub(before);
        Some(plain)
    }

    /// Lets row groups of columns go until so many bytes more fit; not if `column`, which they are of, is the next to go.
    fn makes_room(&mut self, column: &Column, bytes: usize) -> bool {
        while self.bytes.saturating_add(bytes) > self.limit {
            match self.first_to_go(Some((column, bytes))) {
                Some(at) if self.columns.get(at).is_some_and(|cached| cached.column != *column) => self.let_go(at),
                _ => return false,
            }
        }
        true
    }

    /// A column that was not used for long, else the largest, which spares most of the others, if one of them had so many
    /// bytes more.
    fn first_to_go(&self, more: Option<(&Column, usize)>) -> Option<usize> {
        let more = |cached: &Cached| more.filter(|(column, _)| cached.column == **column).map_or(0, |(_, bytes)| bytes);
        let order = |cached: &Cached| (cached.used + PLANS < self.plans, cached.bytes.saturating_add(more(cached)));
        self.columns.iter().enumerate().max_by_key(|(_, cached)| order(cached)).map(|(at, _)| at)
    }

    fn has(&self, column: &Column, group: usize) -> bool {
        self.columns.iter().any(|c| c.column == *column && matches!(c.groups.get(group), Some(Some(_))))
    }

    /// Lets the last row group of a column go, and what may share its memory.
    fn let_go(&mut self, at: usize) {
        let Some(cached) = self.columns.get_mut(at) else { return };
        let last = std::iter::from_fn(|| cached.groups.pop()).flatten().next();
        let (bytes, group) = (last.as_ref().map_or(cached.bytes, Held::bytes), cached.groups.len());
        cached.bytes = cached.bytes.saturating_sub(bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
        if cached.bytes == 0 {
            self.columns.swap_remove(at);
        }
        if let Some(Held::Plain(Values::Few(_))) = last {
            self.let_few_go(group);
        }
    }

    /// Lets all go of a row group that few are wanted of.
    fn let_few_go(&mut self, group: usize) {
        for cached in &mut self.columns {
            let slot = cached.groups.get_mut(group);
            let few = slot.and_then(|slot| slot.take_if(|held| matches!(held, Held::Plain(Values::Few(_)))));
            let bytes = few.map_or(0, |few| few.bytes());
            cached.bytes = cached.bytes.saturating_sub(bytes);
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }
}

/// Bounds with counts serve who needs no counts.
fn serves(cached: &Column, wanted: &Column) -> bool {
    match (cached, wanted) {
        (Column::Bounds { leaf, counted: true }, Column::Bounds { leaf: wanted, counted: false }) => leaf == wanted,
        (cached, wanted) => cached == wanted,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use arrow_array::{ArrayRef, Int64Array, cast::AsArray, types::Int64Type};

    use super::super::few::Few;
    use super::*;
    use crate::checkpoint::leaf::tests::claims::some_trimmed;

    fn numbers(from: i64) -> Values {
        Values::Array(Arc::new(Int64Array::from_iter_values(from..from + 10_000)) as ArrayRef)
    }

    fn value(held: &Held, row: usize) -> i64 {
        match held.range(row, 1).unwrap() {
            Values::Array(array) => array.as_primitive::<Int64Type>().value(0),
            other => unreachable!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn columns_are_packed_when_nobody_asks_for_any() {
        let cache = Cache::default();
        for group in 0..3 {
            cache.put(&Column::Size, group, &numbers(group as i64));
        }
        let plain = cache.bytes();
        assert!(!cache.get(&Column::Size, 2).unwrap().is_packed());
        let started = Instant::now();
        while cache.state().unwrap().tended_by.is_some() && started.elapsed() < 100 * REST {
            sleep(REST / 10).await;
        }
        assert!(cache.bytes() * 3 < plain, "{} of {plain}", cache.bytes());
        for group in 0..3 {
            let held = cache.get(&Column::Size, group).unwrap();
            assert!(held.is_packed());
            assert_eq!(value(&held, 7_777), group as i64 + 7_777);
        }
        // What comes later is packed, too, and what is packed goes like anything else.
        cache.put(&Column::Size, 3, &numbers(3));
        assert!(!cache.get(&Column::Size, 3).unwrap().is_packed());
        cache.pack();
        assert!(cache.get(&Column::Size, 3).unwrap().is_packed());
        cache.limit(100);
        assert_eq!((cache.bytes(), cache.get(&Column::Size, 0).is_none()), (0, true));
    }

    #[test]
    fn another_begins_where_who_packs_is_gone() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let own = Some(std::process::id());
        let cache = Cache::default();
        let first = runtime();
        first.block_on(async { cache.put(&Column::Size, 0, &numbers(0)) });
        assert_eq!(cache.state().unwrap().tended_by, own);
        // The runtime ends with the task.
        drop(first);
        assert_eq!(cache.state().unwrap().tended_by, None);
        // As in a child that was forked, with the parent's task in mind.
        cache.state().unwrap().tended_by = Some(std::process::id() + 1);
        runtime().block_on(async {
            cache.put(&Column::Size, 1, &numbers(1));
            assert_eq!(cache.state().unwrap().tended_by, own);
            let started = Instant::now();
            while cache.state().unwrap().tended_by.is_some() && started.elapsed() < 100 * REST {
                sleep(REST / 10).await;
            }
        });
        assert!((0..2).all(|group| cache.get(&Column::Size, group).unwrap().is_packed()));
    }

    #[test]
    fn the_largest_column_goes_first_and_before_it_one_that_nobody_uses() {
        let cache = Cache::default();
        let has = |column: &Column, group: usize| cache.get(column, group).is_some();
        let (size, time) = (&Column::Size, &Column::ModificationTime);
        // Room for two and a half.
        cache.limit(200_000);
        cache.put(time, 0, &numbers(0));
        for plan in 0..PLANS + 3 {
            cache.plan();
            cache.put(size, 0, &numbers(0));
            cache.put(size, 1, &numbers(1));
            // What the largest has stays, though no more of it fits until the other is old.
            assert!(has(size, 0) && cache.bytes() < 200_000);
            assert_eq!(has(size, 1), plan >= PLANS, "{plan}");
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
    fn what_shares_memory_is_kept_together_or_not_at_all() {
        let few = |texts: usize| Values::Few(Few::Texts(Arc::new(some_trimmed(texts))));
        let (path, size) = (few(3_000), few(1_000));
        let [of_path, of_size] = [&path, &size].map(Values::bytes);
        let kept = |cache: &Cache, group: usize| {
            [&Column::Path, &Column::Size].map(|column| cache.get(column, group).is_some())
        };
        for (limit, kept_groups) in [
            (0, 0),
            (of_size, 0),
            (of_path, 0),
            (of_path + of_size - 1, 0),
            (of_path + of_size, 1),
            (2 * of_path + of_size, 1),
            (2 * (of_path + of_size), 2),
        ] {
            let cache = Cache::default();
            let put = |group| cache.put_all(group, [(&Column::Path, &path), (&Column::Size, &size)].into_iter());
            cache.limit(limit);
            (0..3).for_each(put);
            let whole = (0..3).filter(|group| kept(&cache, *group) == [true; 2]).count();
            let none = (0..3).filter(|group| kept(&cache, *group) == [false; 2]).count();
            assert_eq!((whole, none), (kept_groups, 3 - kept_groups), "{limit}");
            assert_eq!(cache.bytes(), kept_groups * (of_path + of_size));
            // So it is when others take their room.
            cache.limit(of_path + 2 * of_size);
            (0..3).for_each(put);
            cache.limit(of_path);
            assert_eq!((cache.bytes(), (0..3).any(|group| kept(&cache, group) != [false; 2])), (0, false));
        }
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

    /// As in a child that was forked while a thread had the lock: nothing is cached, and nobody waits.
    #[test]
    fn a_lock_that_another_process_holds_is_not_waited_for() {
        let cache = Cache { pid: std::process::id() + 1, ..Cache::default() };
        cache.put(&Column::Size, 0, &numbers(0));
        assert!(cache.get(&Column::Size, 0).is_some());
        let held = cache.state.lock().unwrap();
        cache.put(&Column::Size, 1, &numbers(1));
        cache.limit(7);
        cache.pack();
        assert!(cache.get(&Column::Size, 0).is_none() && !cache.takes(0) && cache.bytes() == 0);
        drop(held);
        assert!(cache.get(&Column::Size, 0).is_some() && cache.get(&Column::Size, 1).is_none());
    }
}
