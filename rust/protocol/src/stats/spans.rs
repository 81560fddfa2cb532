//! Finds the wanted statistics inside a JSON string.
//!
//! One walk over the members records the position of each value. Nothing is copied; other members are skipped by their
//! brackets. The caller, which knows the types, parses the values.
//!
//! PROTOCOL.md: "Per-file Statistics".

use std::cell::Cell;

use super::leaf::Leaf;
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

/// The numbers of statistics among the spans of a file.
pub(super) const NUM_RECORDS: usize = 0;
pub(super) const TIGHT_BOUNDS: usize = 1;
const OF_FILE: usize = 2;
const OF_LEAF: usize = 3;

/// The number of a column's statistic among the spans of a file.
pub(super) fn number_of(leaf: usize, member: Member) -> usize {
    OF_FILE + OF_LEAF * leaf + member as usize
}

/// The position of a value in the JSON, with its quotes; it has no bytes if there is no value.
#[derive(Clone, Copy)]
pub(super) struct ValueSpan {
    start: u32,
    length: u32,
    escapes: Escapes,
}

impl ValueSpan {
    const NONE: Self = Self { start: 0, length: 0, escapes: Escapes::None };

    /// The span of a value without escapes. A value that is too far from the beginning is ignored.
    pub(super) fn plain(start: usize, length: usize) -> Self {
        Self::new(start, length, Escapes::None)
    }

    fn of(value: Quoted<'_>) -> Self {
        Self::new(value.start, value.literal.len(), value.escapes)
    }

    fn new(start: usize, length: usize, escapes: Escapes) -> Self {
        match (u32::try_from(start), u32::try_from(length)) {
            (Ok(start), Ok(length)) => Self { start, length, escapes },
            _ => Self::NONE,
        }
    }
}

/// A value that was found in a string.
#[derive(Clone, Copy)]
pub(super) struct StatsValue<'t> {
    text: &'t str,
    span: ValueSpan,
}

impl<'t> StatsValue<'t> {
    /// The bytes from its beginning on, and how many of them are its own.
    #[inline]
    pub(super) fn bytes(&self) -> (&'t [u8], usize) {
        let bytes = self.text.as_bytes().get(self.span.start as usize..).unwrap_or_default();
        (bytes, self.span.length as usize)
    }

    /// The value as written.
    pub(super) fn quoted(&self) -> Option<Quoted<'t>> {
        let ValueSpan { start, length, escapes } = self.span;
        let start = start as usize;
        Some(Quoted { literal: self.text.get(start..start + length as usize)?, start, escapes })
    }
}

/// The spans that were found for some files, one file after the other.
pub(super) struct ValueSpans {
    /// For each statistic, the spans for all files.
    spans: Vec<ValueSpan>,
    files: usize,
    /// The file whose spans are being recorded.
    file: usize,
    /// How many of its least and greatest values are not found yet.
    missing_bounds: usize,
    leaves: usize,
}

impl ValueSpans {
    /// Spans for at most `files` files.
    pub(super) fn new(leaves: usize, files: usize) -> Self {
        let spans = vec![ValueSpan::NONE; files * (OF_FILE + OF_LEAF * leaves)];
        Self { spans, files, file: 0, missing_bounds: 2 * leaves, leaves }
    }

    /// Begins a file.
    pub(super) fn begin(&mut self, file: usize) {
        self.file = file;
        self.clear();
    }

    /// Forgets everything that was found for the current file.
    pub(super) fn clear(&mut self) {
        self.spans.iter_mut().skip(self.file).step_by(self.files.max(1)).for_each(|span| *span = ValueSpan::NONE);
        self.missing_bounds = 2 * self.leaves;
    }

    /// The statistic of this number for each of the files, given the strings that it was found in.
    #[inline]
    pub(super) fn values<'t>(&self, number: usize, texts: &[&'t str]) -> impl Iterator<Item = Option<StatsValue<'t>>> {
        let spans = self.spans.get(number * self.files..).unwrap_or_default();
        let value =
            |(span, text): (&ValueSpan, &&'t str)| (span.length > 0).then_some(StatsValue { text, span: *span });
        spans.iter().zip(texts).map(value)
    }

    pub(super) fn put(&mut self, number: usize, span: ValueSpan) {
        if let Some(found) = self.spans.get_mut(number * self.files + self.file) {
            *found = span;
        }
    }

    /// Records a value. If a bound is there twice, the first counts; of all else the last.
    fn note(&mut self, leaf: usize, member: Member, value: Quoted<'_>) {
        let number = number_of(leaf, member);
        if member != Member::NullCount {
            if self.spans.get(number * self.files + self.file).is_none_or(|span| span.length > 0) {
                return;
            }
            self.missing_bounds -= 1;
        }
        self.put(number, ValueSpan::of(value));
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
    /// The name as written in a string, unless it has escapes there.
    key: Option<Key>,
    /// Which child followed it in the last text: writers do not change the order of columns from file to file.
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

    /// The wanted leaves below a name.
    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        self.position(name).ok().and_then(|at| self.children.get(at)).map(|child| &child.tree)
    }

    /// Skips the next key; `Some(None)` after the last one, `Some(Some(None))` if it is not the key of a child.
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
    pub(super) fn find(&self, mut json: Scanner<'_>, spans: &mut ValueSpans, to_the_end: bool) -> Option<()> {
        json.open()?;
        let mut first = true;
        while let Some(key) = json.key(first)? {
            first = false;
            let Some(member) = Member::of(&key) else {
                let value = json.quoted_or_not()?;
                match key.as_ref() {
                    "numRecords" => spans.put(NUM_RECORDS, ValueSpan::of(value)),
                    "tightBounds" => spans.put(TIGHT_BOUNDS, ValueSpan::of(value)),
                    _ => {}
                }
                continue;
            };
            match json.peek()? {
                b'{' => self.branch(&mut json, member, spans, to_the_end)?,
                _ => (json.value()? == "null").then_some(())?,
            }
            if !to_the_end && spans.has_all_bounds() {
                // The rest is not read, but a string that was cut off is not trusted.
                return json.ends_with_bracket().then_some(());
            }
        }
        json.is_at_end().then_some(())
    }

    /// Reads `minValues`, `maxValues`, `nullCount` or a struct inside one of them, at most as deep as the schema.
    fn branch(&self, json: &mut Scanner<'_>, member: Member, spans: &mut ValueSpans, to_the_end: bool) -> Option<()> {
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
                        spans.note(leaf, member, value);
                        wanted -= 1;
                    }
                }
                None => match json.peek()? {
                    b'{' => {
                        child.tree.branch(json, member, spans, to_the_end)?;
                        wanted -= 1;
                    }
                    _ => (json.value()? == "null").then_some(())?,
                },
            }
            if !to_the_end && spans.has_all_bounds() {
                return Some(());
            }
        }
        json.leave()
    }
}
