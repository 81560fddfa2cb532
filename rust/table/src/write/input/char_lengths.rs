//! Checks the lengths of `char(n)` and `varchar(n)` columns, at every depth.
//!
//! Characters are code points, as in Spark. A longer string is refused; all others are stored unchanged: Spark
//! adds the spaces of a `char(n)` when it reads.
//!
//! Invariant: rows that pass have no string that is longer than its column allows (`write::char_lengths`).

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, StringArray, StructArray};
use arrow_buffer::OffsetBuffer;
use deltic_protocol::error::{Error, Result};
use deltic_protocol::schema::StructType;
use deltic_protocol::schema::char_length::{CharLength, Lengths};

/// The columns of a table that have lengths.
#[derive(Debug, Default)]
pub(crate) struct CharLengths(Vec<(usize, String, Lengths)>);

/// A string that is too long.
struct TooLong {
    /// Its position in the array; at the top level, that of the row.
    at: usize,
    characters: usize,
    length: CharLength,
    /// Its path below the column.
    path: String,
}

impl TooLong {
    /// The same failure for the array around it, with the position there and the longer path.
    fn outside(self, at: impl Fn(usize) -> usize, name: &str) -> Failure {
        let path = format!(".{name}{}", self.path);
        Failure::TooLong(Self { at: at(self.at), path, ..self })
    }
}

enum Failure {
    TooLong(TooLong),
    Other(Error),
}

impl CharLengths {
    /// The lengths of the columns of `schema`, which has logical names and only stored columns.
    pub(crate) fn of(schema: &StructType) -> Result<Self> {
        let mut columns = Vec::new();
        for (index, field) in schema.fields.iter().enumerate() {
            columns.extend(Lengths::of(field)?.map(|lengths| (index, field.name.clone(), lengths)));
        }
        Ok(Self(columns))
    }

    /// Positions of the columns that have lengths.
    pub(crate) fn columns(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|(index, ..)| *index)
    }

    /// Checks rows as they are stored. `first` is the number of the first of them.
    ///
    /// # Errors
    /// `Invalid`, naming column, row and length, if a string is too long.
    pub(crate) fn check(&self, batch: &RecordBatch, first: u64) -> Result<()> {
        for (index, name, lengths) in &self.0 {
            let Some(column) = batch.columns().get(*index) else { continue };
            match check(column, lengths) {
                Ok(()) => {}
                Err(Failure::Other(error)) => return Err(error),
                Err(Failure::TooLong(TooLong { at, characters, length, path })) => {
                    return Err(Error::invalid(format!(
                        "the column `{name}{path}` is {length}, and row {} (the first is 0) has a string of {characters} \
                         characters; shorten it, or write to a column that takes it",
                        first.saturating_add(at as u64)
                    )));
                }
            }
        }
        Ok(())
    }
}

/// An array of another type, which conforming rules out.
fn foreign() -> Failure {
    Failure::Other(Error::internal("a column with lengths holds something else than its type"))
}

fn check(array: &ArrayRef, lengths: &Lengths) -> Result<(), Failure> {
    match lengths {
        Lengths::String(length) => check_strings(array.as_string_opt::<i32>().ok_or_else(foreign)?, *length),
        Lengths::Struct(fields) => check_struct(array.as_struct_opt().ok_or_else(foreign)?, fields),
        Lengths::Array(inner) => {
            let list = array.as_list_opt::<i32>().ok_or_else(foreign)?;
            check_inside(list.values(), inner, (list.offsets(), "element"))
        }
        Lengths::Map(key, value) => {
            let map = array.as_map_opt().ok_or_else(foreign)?;
            for (column, inner, name) in [(map.keys(), key, "key"), (map.values(), value, "value")] {
                let Some(inner) = inner else { continue };
                check_inside(column, inner, (map.offsets(), name))?;
            }
            Ok(())
        }
    }
}

fn check_struct(array: &StructArray, lengths: &[(usize, Lengths)]) -> Result<(), Failure> {
    for (index, inner) in lengths {
        let (Some(field), Some(column)) = (array.fields().get(*index), array.columns().get(*index)) else { continue };
        check(column, inner).map_err(|failure| match failure {
            Failure::TooLong(found) => found.outside(|at| at, field.name()),
            Failure::Other(error) => Failure::Other(error),
        })?;
    }
    Ok(())
}

/// Checks the elements of lists or maps. The array of elements of a sliced list has others, too.
fn check_inside(
    values: &ArrayRef,
    lengths: &Lengths,
    (offsets, name): (&OffsetBuffer<i32>, &str),
) -> Result<(), Failure> {
    let place = |offset: i32| usize::try_from(offset).unwrap_or_default();
    let (first, end) = (place(offsets.first()), place(offsets.last()));
    let list = |at: usize| offsets.partition_point(|end| usize::try_from(*end).is_ok_and(|end| end <= at));
    check(&values.slice(first, end.saturating_sub(first)), lengths).map_err(|failure| match failure {
        Failure::TooLong(found) => found.outside(|at| list(first.saturating_add(at)).saturating_sub(1), name),
        Failure::Other(error) => Failure::Other(error),
    })
}

fn check_strings(strings: &StringArray, length: CharLength) -> Result<(), Failure> {
    let (CharLength::Char(most) | CharLength::Varchar(most)) = length;
    // No string has more characters than bytes.
    let fits = |string: &str| string.len() <= most || string.chars().nth(most).is_none();
    match strings.iter().enumerate().find(|(_, string)| string.is_some_and(|string| !fits(string))) {
        Some((at, string)) => {
            let characters = string.unwrap_or_default().chars().count();
            Err(Failure::TooLong(TooLong { at, characters, length, path: String::new() }))
        }
        None => Ok(()),
    }
}
