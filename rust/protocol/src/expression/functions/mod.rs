//! The functions: by which names they are called, what they take and give, and what they compute.
//!
//! Arguments come in the types that their slots ask for; a row with a null among them gives null, unless a function
//! says otherwise.

mod hash;
mod math;
mod moment;
mod pattern;
mod text;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int32Type};
use arrow_array::{ArrayRef, PrimitiveArray, StringArray};

use super::ast::Expression;
use super::bind::{self, Typed};
use super::evaluate::{Evaluated, each, unexpected};
use crate::error::{Error, Result};
use crate::scalar::Scalar;
use crate::schema::PrimitiveType;

/// What an argument must be, and is cast to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// Any primitive type.
    Any,
    /// The type that all arguments have in common; stands alone.
    Common,
    Text,
    TextOrBytes,
    Bytes,
    Int,
    Double,
    /// Any number.
    Number,
    Date,
    /// A timestamp, with or without a zone.
    Moment,
}

type TypeOf = fn(&[PrimitiveType], &[Option<&Scalar>]) -> std::result::Result<PrimitiveType, String>;

/// The type of the result.
pub(crate) enum Gives {
    Fixed(PrimitiveType),
    /// That of the first argument.
    First,
    /// By the types of the arguments and the values of those that are literals.
    With(TypeOf),
}

/// A function.
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    /// Fewest arguments.
    pub(crate) least: usize,
    /// Of each argument; the last one holds for more.
    pub(crate) slots: &'static [Slot],
    /// Whether there may be more arguments than slots.
    pub(crate) repeats: bool,
    pub(crate) gives: Gives,
    pub(crate) run: fn(&Arguments<'_>) -> Evaluated,
}

impl Definition {
    /// Most arguments.
    pub(crate) fn most(&self) -> usize {
        if self.repeats { usize::MAX } else { self.slots.len() }
    }
}

impl PartialEq for Definition {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl std::fmt::Debug for Definition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The values of a call's arguments.
pub(crate) struct Arguments<'a> {
    pub(crate) arrays: Vec<ArrayRef>,
    pub(crate) rows: usize,
    /// The type of the result.
    pub(crate) gives: &'a PrimitiveType,
}

impl Arguments<'_> {
    fn array(&self, at: usize) -> Result<&ArrayRef> {
        self.arrays.get(at).ok_or_else(|| Error::internal("a function misses an argument"))
    }

    fn text(&self, at: usize) -> Result<&StringArray> {
        let array = self.array(at)?;
        array.as_string_opt::<i32>().ok_or_else(|| unexpected(array))
    }

    fn primitive<T: ArrowPrimitiveType>(&self, at: usize) -> Result<&PrimitiveArray<T>> {
        let array = self.array(at)?;
        array.as_primitive_opt::<T>().ok_or_else(|| unexpected(array))
    }

    fn int(&self, at: usize) -> Result<&PrimitiveArray<Int32Type>> {
        self.primitive::<Int32Type>(at)
    }

    /// One value for each row in which no argument is null.
    fn each<T, A: FromIterator<Option<T>>>(
        &self,
        value: impl FnMut(usize) -> std::result::Result<Option<T>, String>,
    ) -> Evaluated<A> {
        each(&self.arrays.iter().collect::<Vec<_>>(), self.rows, value)
    }
}

/// Other names of the same function.
const ALIASES: [(&str, &str); 15] = [
    ("char_length", "length"),
    ("character_length", "length"),
    ("len", "length"),
    ("ucase", "upper"),
    ("lcase", "lower"),
    ("substr", "substring"),
    ("ceiling", "ceil"),
    ("pow", "power"),
    ("signum", "sign"),
    ("day", "dayofmonth"),
    ("dateadd", "date_add"),
    ("date_diff", "datediff"),
    ("to_timestamp_ltz", "to_timestamp"),
    ("trim", "btrim"),
    ("week", "weekofyear"),
];

/// The function of a name.
pub(crate) fn find(name: &str) -> Option<&'static Definition> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
    [text::FUNCTIONS, math::FUNCTIONS, moment::FUNCTIONS, hash::FUNCTIONS]
        .into_iter()
        .flatten()
        .find(|function| function.name == name)
}

/// A call of a function that is known to exist.
pub(crate) fn call(name: &str, arguments: Vec<Typed>, whole: &Expression) -> Result<Typed> {
    let function = find(name).ok_or_else(|| Error::internal(format!("the function {name} is missing")))?;
    bind::call(function, arguments, whole)
}

/// The names of all functions, for the documentation.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = [text::FUNCTIONS, math::FUNCTIONS, moment::FUNCTIONS, hash::FUNCTIONS]
        .into_iter()
        .flatten()
        .map(|function| function.name)
        .chain(ALIASES.iter().map(|(alias, _)| *alias))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}
