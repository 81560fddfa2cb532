//! The values of some keys in a map of strings: the value of each partition column in each row.
//!
//! Keys and values are two leaves with the same slots. Distinct values are numbered, so that each is parsed only once.
//!
//! PROTOCOL.md: "Add File and Remove File" (partitionValues).

use std::collections::HashMap;

use arrow_buffer::BooleanBuffer;
use parquet::basic::Type as PhysicalType;

use super::chunk::{Chunk, Decoded, Failure, NOT_UTF8, Scratch, with_scratch};
use super::page::{Encoding, Page, open_dictionary, take_data_page};
use super::values::{StringDictionary, StringValues, Value, spread};

const OTHER_SLOTS: Failure = Failure::Corrupt("keys and values of a map do not go together");
/// How many entries all maps may have, however small the file, and how many more for each row. All are in memory at once;
/// with more, the parquet crate is used, which takes some rows at a time.
const BASE_SLOTS: usize = 1 << 20;
const SLOTS_PER_ROW: usize = 16;

/// The values of one key.
#[derive(Debug, Default)]
pub struct Entries {
    /// The distinct values, in the order of their first row; those of a dictionary may occur twice.
    pub strings: Vec<String>,
    /// For each row, the index of its value, or [`NONE`].
    pub codes: Vec<u32>,
}

/// No value.
pub const NONE: u32 = u32::MAX;

/// Which of the two names of a column a key is, if one.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Rank {
    Other,
    Second,
    First,
}

impl Rank {
    fn of(key: &[u8], [first, second]: [&str; 2]) -> Self {
        match key {
            key if key == first.as_bytes() => Self::First,
            key if key == second.as_bytes() => Self::Second,
            _ => Self::Other,
        }
    }
}

/// For each pair of keys, the values of the first key, or, in rows that do not have it, of the second. If a key occurs
/// twice, the last entry counts.
pub fn entries(keys: Chunk<'_>, values: Chunk<'_>, sought: &[[&str; 2]]) -> Decoded<Vec<Entries>> {
    let is_string = |chunk: &Chunk<'_>| chunk.physical == PhysicalType::BYTE_ARRAY && chunk.max_repetition == 1;
    if !is_string(&keys) || !is_string(&values) {
        return Err(Failure::Unsupported);
    }
    let Some(key) = sole_key(keys)? else { return of_any_keys(keys, values, sought) };
    let of_one = |pair: &[&str; 2]| {
        let mut distinct = Distinct::default();
        let codes = match Rank::of(&key, *pair) {
            Rank::Other => vec![NONE; keys.rows],
            Rank::First | Rank::Second => of_sole_key(values, &mut distinct)?,
        };
        Ok(Entries { strings: distinct.strings, codes })
    };
    sought.iter().map(of_one).collect()
}

/// The key of all entries, if there is only one key and no row has more than one entry, as with one partition column.
fn sole_key(keys: Chunk<'_>) -> Decoded<Option<Vec<u8>>> {
    with_scratch(|scratch| {
        let mut rest = keys.bytes;
        let dictionary = open_dictionary(&mut rest, keys, &mut scratch.dictionary)?;
        let Some(dictionary) = dictionary.filter(|page| page.values == 1) else { return Ok(None) };
        let mut slots = 0_usize;
        while let Some(compressed) = take_data_page(&mut rest)? {
            slots = slots.saturating_add(compressed.values);
            if slots > keys.rows {
                return Ok(None);
            }
            let page = compressed.open(keys, &mut scratch.page)?;
            if page.encoding != Encoding::Dictionary || page.repeated(keys)?.count_set_bits() > 0 {
                return Ok(None);
            }
        }
        if slots != keys.rows {
            return Err(OTHER_SLOTS);
        }
        let key = StringValues::of(&dictionary, 1, None, &mut scratch.codes)?.string()?;
        Ok(Some(key.to_vec()))
    })
}

/// The values if every slot is a row, and has this key if it has any.
fn of_sole_key(values: Chunk<'_>, distinct: &mut Distinct) -> Decoded<Vec<u32>> {
    let mut codes = Vec::with_capacity(values.rows);
    each_page(values, |page, continues, defined, mut strings| {
        if continues.count_set_bits() > 0 {
            return Err(OTHER_SLOTS);
        }
        let start = codes.len();
        match strings {
            StringValues::Coded(of_page, dictionary, bytes) => {
                for code in of_page {
                    codes.push(match distinct.by_code.get(*code as usize) {
                        Some(known) if *known != NONE => *known,
                        _ => distinct.number(&Value::Coded(*code, dictionary, bytes))?,
                    });
                }
            }
            StringValues::Plain(_) => {
                for _ in 0..defined.count_set_bits() {
                    codes.push(distinct.number(&strings.next()?)?);
                }
            }
        }
        if codes.len() - start < page.values {
            spread(&mut codes, start, defined, NONE);
        }
        Ok(())
    })?;
    if codes.len() == values.rows { Ok(codes) } else { Err(OTHER_SLOTS) }
}

fn of_any_keys(keys: Chunk<'_>, values: Chunk<'_>, sought: &[[&str; 2]]) -> Decoded<Vec<Entries>> {
    // For each slot, whether it begins a row, and the number of its key.
    let mut slots: Vec<(bool, u32)> = Vec::with_capacity(keys.rows);
    let mut names = Distinct::default();
    each_slot(keys, |begins, key| {
        slots.push((begins, key.map_or(Ok(NONE), |key| names.number(&key))?));
        Ok(())
    })?;
    let mut columns: Vec<Column> = sought.iter().map(|pair| Column::of(*pair, &names, keys.rows)).collect();
    let mut slots = slots.into_iter();
    each_slot(values, |begins, value| {
        let (key_begins, key) = slots.next().ok_or(OTHER_SLOTS)?;
        if begins != key_begins {
            return Err(OTHER_SLOTS);
        }
        columns.iter_mut().try_for_each(|column| column.take(begins, key, value.as_ref()))
    })?;
    if slots.len() > 0 || columns.iter().any(|column| column.codes.len() != keys.rows) {
        return Err(OTHER_SLOTS);
    }
    Ok(columns.into_iter().map(|column| Entries { strings: column.distinct.strings, codes: column.codes }).collect())
}

/// The values of one pair of keys, as they are collected.
struct Column {
    /// The rank of each key, by its number.
    ranks: Vec<Rank>,
    /// The rank of the key whose value the row has so far.
    best: Rank,
    distinct: Distinct,
    codes: Vec<u32>,
}

impl Column {
    fn of(pair: [&str; 2], names: &Distinct, rows: usize) -> Self {
        let ranks = names.strings.iter().map(|name| Rank::of(name.as_bytes(), pair)).collect();
        Self { ranks, best: Rank::Other, distinct: Distinct::default(), codes: Vec::with_capacity(rows) }
    }

    fn take(&mut self, begins: bool, key: u32, value: Option<&Value<'_>>) -> Decoded<()> {
        if begins {
            self.codes.push(NONE);
            self.best = Rank::Other;
        }
        let rank = self.ranks.get(key as usize).copied().unwrap_or(Rank::Other);
        if rank != Rank::Other && rank >= self.best {
            self.best = rank;
            let code = value.map_or(Ok(NONE), |value| self.distinct.number(value))?;
            *self.codes.last_mut().ok_or(OTHER_SLOTS)? = code;
        }
        Ok(())
    }
}

/// Numbers for distinct strings.
#[derive(Default)]
struct Distinct {
    strings: Vec<String>,
    by_string: HashMap<String, u32>,
    /// How many of the strings are in it: those that existed when the last string outside of a dictionary was looked up.
    entered: usize,
    /// The number of each code of the dictionary, or [`NONE`].
    by_code: Vec<u32>,
}

impl Distinct {
    fn number(&mut self, value: &Value<'_>) -> Decoded<u32> {
        let Some(code) = value.code().map(|code| code as usize) else { return self.number_of_plain(value.string()?) };
        if let Some(known) = self.by_code.get(code).filter(|known| **known != NONE) {
            return Ok(*known);
        }
        // A string with a code gets a number of its own, even if an equal string has one.
        let number = self.new_number(value.string()?)?;
        // A code is less than the number of strings in the dictionary: otherwise it would have had no string.
        self.by_code.resize(self.by_code.len().max(code + 1), NONE);
        if let Some(slot) = self.by_code.get_mut(code) {
            *slot = number;
        }
        Ok(number)
    }

    fn number_of_plain(&mut self, string: &[u8]) -> Decoded<u32> {
        let new = self.strings.get(self.entered..).unwrap_or_default();
        self.by_string.extend(new.iter().cloned().zip(self.entered as u32..));
        self.entered = self.strings.len();
        if let Some(known) = std::str::from_utf8(string).ok().and_then(|string| self.by_string.get(string)) {
            return Ok(*known);
        }
        self.new_number(string)
    }

    fn new_number(&mut self, string: &[u8]) -> Decoded<u32> {
        let string = std::str::from_utf8(string).map_err(|_| NOT_UTF8)?;
        let number =
            u32::try_from(self.strings.len()).ok().filter(|number| *number < NONE).ok_or(Failure::Unsupported)?;
        self.strings.push(string.to_owned());
        Ok(number)
    }
}

/// Calls `show` for every slot: with whether it begins a row, and its value if it has one.
fn each_slot(chunk: Chunk<'_>, mut show: impl FnMut(bool, Option<Value<'_>>) -> Decoded<()>) -> Decoded<()> {
    each_page(chunk, |page, continues, defined, mut values| {
        for slot in 0..page.values {
            let value = if defined.value(slot) { Some(values.next()?) } else { None };
            show(!continues.value(slot), value)?;
        }
        Ok(())
    })
}

/// Calls `show` for every page: with the slots that belong to the same row as the slot before, those that have a value, and
/// the values.
fn each_page(
    chunk: Chunk<'_>,
    mut show: impl FnMut(&Page<'_>, &BooleanBuffer, &BooleanBuffer, StringValues<'_>) -> Decoded<()>,
) -> Decoded<()> {
    with_scratch(|scratch| {
        let Scratch { page: buffer, dictionary: dictionary_buffer, codes } = scratch;
        let mut rest = chunk.bytes;
        let dictionary = open_dictionary(&mut rest, chunk, dictionary_buffer)?;
        let strings = dictionary.as_ref().map(StringDictionary::of).transpose()?;
        let known = strings.as_ref().zip(dictionary.as_ref().map(|page| page.data));
        let mut left = BASE_SLOTS.saturating_add(chunk.rows.saturating_mul(SLOTS_PER_ROW));
        while let Some(compressed) = take_data_page(&mut rest)? {
            left = left.checked_sub(compressed.values).ok_or(Failure::Unsupported)?;
            let page = compressed.open(chunk, buffer)?;
            let (continues, defined) = (page.repeated(chunk)?, page.defined(chunk, chunk.max_definition)?);
            let values = StringValues::of(&page, defined.count_set_bits(), known, codes)?;
            show(&page, &continues, &defined, values)?;
        }
        Ok(())
    })
}
