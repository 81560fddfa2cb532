//! Where the statistics that are wanted stand in a text.
//!
//! One walk over the text's members notes a place for each; nothing is copied, and what nobody asks for is stepped over by
//! its brackets. What stands there is looked at by whoever knows the types.
//!
//! PROTOCOL.md: "Per-file Statistics".

use std::cell::Cell;

use super::read::Leaf;
use crate::json::{Escapes, Key, Quoted, Scanner};

/// A statistic of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Member {
    Min,
    Max,
    NullCount,
}

impl Member {
    /// `None` for other members of the statistics.
    pub(super) fn of(key: &str) -> Option<Self> {
        match key {
            "minValues" => Some(Self::Min),
            "maxValues" => Some(Self::Max),
            "nullCount" => Some(Self::NullCount),
            _ => None,
        }
    }
}

/// The numbers of statistics among the places of a file.
pub(super) const NUM_RECORDS: usize = 0;
pub(super) const TIGHT_BOUNDS: usize = 1;
const OF_FILE: usize = 2;
const OF_LEAF: usize = 3;

/// The number of a column's statistic among the places of a file.
pub(super) fn number_of(leaf: usize, member: Member) -> usize {
    OF_FILE + OF_LEAF * leaf + member as usize
}

/// Where a value stands, quotes with it.
#[derive(Clone, Copy)]
pub(super) struct Place {
    start: usize,
    length: usize,
    escapes: Escapes,
}

impl Place {
    /// Without escapes.
    pub(super) fn plain(start: usize, length: usize) -> Self {
        Self { start, length, escapes: Escapes::None }
    }

    fn of(value: Quoted<'_>) -> Self {
        Self { start: value.start, length: value.literal.len(), escapes: value.escapes }
    }

    fn value<'t>(&self, text: &'t str) -> Option<Quoted<'t>> {
        let literal = text.get(self.start..self.start + self.length)?;
        Some(Quoted { literal, start: self.start, escapes: self.escapes })
    }
}

/// What was found for one file.
pub(super) struct Places {
    places: Vec<Option<Place>>,
    /// Least and greatest values not found yet.
    missing_bounds: usize,
    leaves: usize,
}

impl Places {
    pub(super) fn new(leaves: usize) -> Self {
        Self { places: vec![None; OF_FILE + OF_LEAF * leaves], missing_bounds: 2 * leaves, leaves }
    }

    /// Forgets them all.
    pub(super) fn clear(&mut self) {
        self.places.fill(None);
        self.missing_bounds = 2 * self.leaves;
    }

    /// The one of this number, in the text that it was found in.
    pub(super) fn value<'t>(&self, number: usize, text: &'t str) -> Option<Quoted<'t>> {
        self.places.get(number)?.as_ref()?.value(text)
    }

    pub(super) fn put(&mut self, number: usize, place: Place) {
        if let Some(found) = self.places.get_mut(number) {
            *found = Some(place);
        }
    }

    /// The first of two bounds holds, and the last of all else.
    fn note(&mut self, leaf: usize, member: Member, value: Quoted<'_>) {
        let number = number_of(leaf, member);
        if member != Member::NullCount {
            if self.places.get(number).is_none_or(Option::is_some) {
                return;
            }
            self.missing_bounds -= 1;
        }
        self.put(number, Place::of(value));
    }

    fn has_all_bounds(&self) -> bool {
        self.missing_bounds == 0
    }
}

/// The wanted leaves by name, level by level.
#[derive(Default)]
pub(super) struct Tree {
    /// Sorted by name.
    children: Vec<Child>,
    pub(super) leaf: Option<usize>,
    /// Which child came first in the last text.
    first: Cell<usize>,
}

struct Child {
    name: String,
    /// How the name stands in a text, unless it has escapes there.
    key: Option<Key>,
    /// Which child came behind it in the last text: writers do not change the order of columns from file to file.
    following: Cell<usize>,
    tree: Tree,
}

impl Tree {
    pub(super) fn new(leaves: &[Leaf]) -> Self {
        let mut tree = Self::default();
        leaves.iter().enumerate().for_each(|(index, leaf)| tree.insert(&leaf.path, index));
        tree
    }

    fn insert(&mut self, path: &[String], index: usize) {
        let Some((name, rest)) = path.split_first() else {
            self.leaf = Some(index);
            return;
        };
        let at = match self.position(name) {
            Ok(at) => at,
            Err(at) => {
                let (following, tree) = (Cell::new(usize::MAX), Self::default());
                self.children.insert(at, Child { name: name.clone(), key: Key::of(name), following, tree });
                at
            }
        };
        if let Some(child) = self.children.get_mut(at) {
            child.tree.insert(rest, index);
        }
    }

    fn position(&self, name: &str) -> std::result::Result<usize, usize> {
        self.children.binary_search_by(|child| child.name.as_str().cmp(name))
    }

    /// What is wanted below a name.
    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        self.position(name).ok().and_then(|at| self.children.get(at)).map(|child| &child.tree)
    }

    /// Steps over the next key; `Some(None)` behind the last one, `Some(Some(None))` if it is of no child.
    fn key(&self, json: &mut Scanner<'_>, last: Option<&Child>, first: bool) -> Option<Option<Option<&Child>>> {
        let guess = last.map_or(&self.first, |last| &last.following);
        if let Some(child) = self.children.get(guess.get())
            && child.key.as_ref().is_some_and(|key| json.skip_key(first, key))
        {
            return Some(Some(Some(child)));
        }
        let Some(key) = json.key(first)? else { return Some(None) };
        let at = self.position(&key).ok();
        if let Some(at) = at {
            guess.set(at);
        }
        Some(Some(at.and_then(|at| self.children.get(at))))
    }

    /// Walks the whole statistics object, or as far as needed. `None` if it is malformed.
    pub(super) fn find(&self, mut json: Scanner<'_>, places: &mut Places, to_the_end: bool) -> Option<()> {
        json.open()?;
        let mut first = true;
        while let Some(key) = json.key(first)? {
            first = false;
            let Some(member) = Member::of(&key) else {
                let value = json.quoted_or_not()?;
                match key.as_ref() {
                    "numRecords" => places.put(NUM_RECORDS, Place::of(value)),
                    "tightBounds" => places.put(TIGHT_BOUNDS, Place::of(value)),
                    _ => {}
                }
                continue;
            };
            match json.peek()? {
                b'{' => self.branch(&mut json, member, places, to_the_end)?,
                _ => (json.value()? == "null").then_some(())?,
            }
            if !to_the_end && places.has_all_bounds() {
                // What is left is not looked at, but a text that was cut off is not trusted.
                return json.ends_with_bracket().then_some(());
            }
        }
        json.is_at_end().then_some(())
    }

    /// `minValues`, `maxValues`, `nullCount` or a struct inside one of them. As deep as the schema at most.
    fn branch(&self, json: &mut Scanner<'_>, member: Member, places: &mut Places, to_the_end: bool) -> Option<()> {
        json.open()?;
        let (mut first, mut wanted, mut last) = (true, self.children.len(), None);
        while wanted > 0 {
            let Some(key) = self.key(json, last, first)? else { return Some(()) };
            first = false;
            let Some(child) = key else {
                json.value()?;
                continue;
            };
            last = Some(child);
            match child.tree.leaf {
                Some(leaf) => {
                    let value = json.quoted_or_not()?;
                    if value.literal != "null" {
                        places.note(leaf, member, value);
                        wanted -= 1;
                    }
                }
                None => match json.peek()? {
                    b'{' => {
                        child.tree.branch(json, member, places, to_the_end)?;
                        wanted -= 1;
                    }
                    _ => (json.value()? == "null").then_some(())?,
                },
            }
            if !to_the_end && places.has_all_bounds() {
                return Some(());
            }
        }
        json.leave()
    }
}
