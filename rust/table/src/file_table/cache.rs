//! Decoded columns, kept up to a limit.
//!
//! A column goes as a whole, the one unused for longest first: half a column would have to be decoded again by the next
//! query anyway.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Column;
use super::decode::Values;

/// Bytes kept by default: what a table of some millions of files needs for its paths and a few columns.
pub const DEFAULT_LIMIT: usize = 512 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Cache(Mutex<State>);

#[derive(Debug)]
struct State {
    limit: usize,
    bytes: usize,
    /// Counts uses.
    clock: u64,
    columns: Vec<Cached>,
}

#[derive(Debug)]
struct Cached {
    column: Column,
    groups: Vec<Option<Values>>,
    bytes: usize,
    used: u64,
}

impl Default for Cache {
    fn default() -> Self {
        Self(Mutex::new(State { limit: DEFAULT_LIMIT, bytes: 0, clock: 0, columns: Vec::new() }))
    }
}

impl Cache {
    pub(super) fn get(&self, column: &Column, group: usize) -> Option<Values> {
        let mut state = self.state();
        state.clock += 1;
        let clock = state.clock;
        let cached = state.columns.iter_mut().find(|c| serves(&c.column, column))?;
        cached.used = clock;
        cached.groups.get(group).cloned().flatten()
    }

    /// Whether what comes from so many fetched bytes is likely to be kept.
    pub(super) fn takes(&self, bytes: usize) -> bool {
        bytes <= self.state().limit
    }

    pub(super) fn put(&self, column: &Column, group: usize, values: &Values) {
        let mut state = self.state();
        let bytes = values.bytes();
        if bytes > state.limit {
            return;
        }
        state.clock += 1;
        let clock = state.clock;
        let at = match state.columns.iter().position(|c| c.column == *column) {
            Some(at) => at,
            None => {
                state.columns.push(Cached { column: column.clone(), groups: Vec::new(), bytes: 0, used: clock });
                state.columns.len() - 1
            }
        };
        let Some(cached) = state.columns.get_mut(at) else { return };
        cached.used = clock;
        if cached.groups.len() <= group {
            cached.groups.resize(group + 1, None);
        }
        let Some(slot) = cached.groups.get_mut(group).filter(|slot| slot.is_none()) else { return };
        *slot = Some(values.clone());
        cached.bytes += bytes;
        state.bytes += bytes;
        state.shrink();
    }

    pub(super) fn limit(&self, bytes: usize) {
        let mut state = self.state();
        state.limit = bytes;
        state.shrink();
    }

    pub(super) fn bytes(&self) -> usize {
        self.state().bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn shrink(&mut self) {
        while self.bytes > self.limit {
            let oldest = self.columns.iter().enumerate().min_by_key(|(_, c)| c.used).map(|(at, _)| at);
            let Some(oldest) = oldest else { return };
            self.bytes -= self.columns.swap_remove(oldest).bytes;
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
