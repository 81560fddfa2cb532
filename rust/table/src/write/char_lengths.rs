//! Holding rows to the lengths of `char(n)` and `varchar(n)` columns, at every depth.
//!
//! Characters are code points, as Spark counts them. A longer string is refused; a shorter one of a `char(n)` ends with
//! spaces, as Spark stores it, and spaces beyond its length are dropped.
//!
//! Invariant: what comes out has no string that is longer than its column allows (`write::char_lengths`).

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ListArray, MapArray, RecordBatch, StringArray, StructArray};
use arrow_buffer::OffsetBuffer;
use deltic_protocol::error::{Error, Result};
use deltic_protocol::schema::StructType;
use deltic_protocol::schema::char_length::{CharLength, Lengths};

/// The columns of a table that have lengths.
#[derive(Debug)]
pub(super) struct CharLengths(Vec<(usize, String, Lengths)>);

/// A string that does not fit.
struct TooLong {
    /// Position in the array; of the row in the end.
    at: usize,
    characters: usize,
    length: CharLength,
    /// Where below the column it is.
    path: String,
}

impl TooLong {
    /// As seen from outside: the position there, and the name on the way.
    fn outside(self, at: impl Fn(usize) -> usize, name: &str) -> Failure {
        let path = format!(".{name}{}", self.path);
        Failure::TooLong(Self { at: at(self.at), path, ..self })
    }
}

enum Failure {
    TooLong(TooLong),
    Other(Error),
}

impl From<arrow_schema::ArrowError> for Failure {
    fn from(error: arrow_schema::ArrowError) -> Self {
        Self::Other(error.into())
    }
}

impl CharLengths {
    /// Those of the columns of `schema`: logical names, and no columns that are not stored.
    pub(super) fn of(schema: &StructType) -> Result<Self> {
        let mut columns = Vec::new();
        for (index, field) in schema.fields.iter().enumerate() {
            columns.extend(Lengths::of(field)?.map(|lengths| (index, field.name.clone(), lengths)));
        }
        Ok(Self(columns))
    }

    /// The rows as they are stored. `first` is the number of the first of them.
    ///
    /// # Errors
    /// `Invalid`, naming column, row and length, if a string is too long.
    pub(super) fn fit(&self, batch: RecordBatch, first: u64) -> Result<RecordBatch> {
        if self.0.is_empty() {
            return Ok(batch);
        }
        let mut columns = batch.columns().to_vec();
        for (index, name, lengths) in &self.0 {
            let Some(column) = columns.get_mut(*index) else { continue };
            match fit(column, lengths, true) {
                Ok(fitted) => *column = fitted,
                Err(Failure::Other(error)) => return Err(error),
                Err(Failure::TooLong(TooLong { at, characters, length, path })) => {
                    return Err(Error::invalid(format!(
                        "the column `{name}{path}` is {length}, and row {} (counted from 0) has a string of {characters} \
                         characters; shorten it, or write to a column that takes it",
                        first.saturating_add(at as u64)
                    )));
                }
            }
        }
        Ok(RecordBatch::try_new(batch.schema(), columns)?)
    }
}

/// Rows were brought into the table's types before.
fn foreign() -> Failure {
    Failure::Other(Error::internal("a column with lengths holds something else than its type"))
}

/// `pads`: whether short strings of a `char(n)` get their spaces.
fn fit(array: &ArrayRef, lengths: &Lengths, pads: bool) -> Result<ArrayRef, Failure> {
    match lengths {
        Lengths::String(length) => {
            let strings = array.as_string_opt::<i32>().ok_or_else(foreign)?;
            match *length {
                CharLength::Varchar(n) => check(strings, n, *length).map(|()| Arc::clone(array)),
                CharLength::Char(n) if pads => Ok(Arc::new(pad(strings, n)?)),
                CharLength::Char(n) => exact(strings, n).map(|()| Arc::clone(array)),
            }
        }
        Lengths::Struct(fields) => fit_struct(array.as_struct_opt().ok_or_else(foreign)?, fields, pads),
        Lengths::Array(inner) => {
            let (field, offsets, values, nulls) = array.as_list_opt::<i32>().ok_or_else(foreign)?.clone().into_parts();
            let values = fit(&values, inner, pads).map_err(|e| outside(e, &offsets, "element"))?;
            Ok(Arc::new(ListArray::try_new(field, offsets, values, nulls)?))
        }
        Lengths::Map(key, value) => {
            let (field, offsets, entries, nulls, ordered) =
                array.as_map_opt().ok_or_else(foreign)?.clone().into_parts();
            let (fields, mut columns, within) = entries.into_parts();
            // Keys that differ in their spaces only would become one.
            for (column, inner, name, pads) in [(0, key, "key", false), (1, value, "value", pads)] {
                let (Some(inner), Some(column)) = (inner, columns.get_mut(column)) else { continue };
                *column = fit(column, inner, pads).map_err(|e| outside(e, &offsets, name))?;
            }
            let entries = StructArray::try_new(fields, columns, within)?;
            Ok(Arc::new(MapArray::try_new(field, offsets, entries, nulls, ordered)?))
        }
    }
}

fn fit_struct(array: &StructArray, lengths: &[(usize, Lengths)], pads: bool) -> Result<ArrayRef, Failure> {
    let (fields, mut columns, nulls) = array.clone().into_parts();
    for (index, inner) in lengths {
        let (Some(field), Some(column)) = (fields.get(*index), columns.get_mut(*index)) else { continue };
        *column = fit(column, inner, pads).map_err(|failure| match failure {
            Failure::TooLong(found) => found.outside(|at| at, field.name()),
            Failure::Other(error) => Failure::Other(error),
        })?;
    }
    Ok(Arc::new(StructArray::try_new(fields, columns, nulls)?))
}

/// The list that an element is in.
fn outside(failure: Failure, offsets: &OffsetBuffer<i32>, name: &str) -> Failure {
    let list = |at: usize| offsets.partition_point(|end| usize::try_from(*end).is_ok_and(|end| end <= at));
    match failure {
        Failure::TooLong(found) => found.outside(|at| list(at).saturating_sub(1), name),
        Failure::Other(error) => Failure::Other(error),
    }
}

fn too_long(at: usize, string: &str, length: CharLength) -> Failure {
    Failure::TooLong(TooLong { at, characters: string.chars().count(), length, path: String::new() })
}

fn check(strings: &StringArray, most: usize, length: CharLength) -> Result<(), Failure> {
    // No string has more characters than bytes.
    let fits = |string: &str| string.len() <= most || string.chars().nth(most).is_none();
    match strings.iter().enumerate().find(|(_, string)| string.is_some_and(|string| !fits(string))) {
        Some((at, string)) => Err(too_long(at, string.unwrap_or_default(), length)),
        None => Ok(()),
    }
}

/// Keys of maps, to which no spaces are added.
fn exact(strings: &StringArray, n: usize) -> Result<(), Failure> {
    check(strings, n, CharLength::Char(n))?;
    match strings.iter().flatten().find(|string| string.chars().count() < n) {
        Some(_) => Err(Failure::Other(Error::invalid(format!(
            "a key of a map is char({n}) and has fewer characters; fill it up with spaces"
        )))),
        None => Ok(()),
    }
}

fn pad(strings: &StringArray, n: usize) -> Result<StringArray, Failure> {
    // The length comes from the table's metadata, and may be anything.
    let spaces = |string: &str| n.saturating_sub(string.chars().count());
    let bytes = |sum: usize, string: &str| sum.saturating_add(string.len()).saturating_add(spaces(string));
    let bytes = strings.iter().flatten().fold(0_usize, bytes);
    if i32::try_from(bytes).is_err() {
        let message =
            format!("values of a char({n}) column have more than 2 GiB with their spaces; pass smaller batches");
        return Err(Failure::Other(Error::invalid(message)));
    }
    let mut padded = StringBuilder::with_capacity(strings.len(), bytes);
    let mut buffer = String::new();
    for (at, string) in strings.iter().enumerate() {
        let Some(string) = string else {
            padded.append_null();
            continue;
        };
        let end = string.char_indices().nth(n).map_or(string.len(), |(end, _)| end);
        let (kept, rest) = string.split_at(end);
        if rest.bytes().any(|byte| byte != b' ') {
            return Err(too_long(at, string, CharLength::Char(n)));
        }
        buffer.clear();
        buffer.push_str(kept);
        buffer.extend(std::iter::repeat_n(' ', spaces(kept)));
        padded.append_value(&buffer);
    }
    Ok(padded.finish())
}
