//! The types of functions' arguments and results.

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int32Type};
use arrow_array::{ArrayRef, BinaryArray, PrimitiveArray, StringArray};

use crate::error::{Error, Result};
use crate::expression::kernel::{Evaluated, bounded, each, unexpected};
use crate::scalar::Scalar;
use crate::schema::PrimitiveType;

/// The type that an argument must have or is cast to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// Any primitive type.
    Any,
    /// The common type of all arguments. It is the only slot of its function.
    Common,
    String,
    StringOrBytes,
    Bytes,
    Int,
    Long,
    /// A whole number as a long, anything else as bytes.
    LongOrBytes,
    Double,
    /// Any number.
    Number,
    /// An array.
    Array,
    /// A map.
    Map,
    /// An array or a map.
    Collection,
    /// The key of the map before it, or the position in the array.
    Key,
    /// A value of the type of the array's elements.
    Element,
    Date,
    /// A timestamp, with or without a zone.
    Moment,
}

type TypeOf = fn(&[PrimitiveType], Second<'_>) -> std::result::Result<PrimitiveType, String>;

/// The second argument, as far as it is known without rows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Second<'a> {
    Missing,
    Value(&'a Scalar),
    Computed,
}

/// The type of the result.
pub(crate) enum ResultType {
    Fixed(PrimitiveType),
    /// That of the first argument.
    First,
    /// That of the elements of an array, or of the values of a map.
    Element,
    /// Computed from the types of the arguments and the value of the second.
    With(TypeOf),
}

/// A function.
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    /// Fewest arguments.
    pub(crate) least: usize,
    /// One for each argument. The last one is also for further arguments.
    pub(crate) slots: &'static [Slot],
    /// Whether there may be more arguments than slots.
    pub(crate) repeats: bool,
    pub(crate) result_type: ResultType,
    pub(crate) run: fn(&Arguments<'_>) -> Evaluated,
}

impl Definition {
    /// A function with a fixed number of arguments and one result type.
    pub(crate) const fn fixed(
        name: &'static str,
        slots: &'static [Slot],
        result_type: PrimitiveType,
        run: fn(&Arguments<'_>) -> Evaluated,
    ) -> Self {
        Self { name, least: slots.len(), slots, repeats: false, result_type: ResultType::Fixed(result_type), run }
    }

    /// Whether the last argument is the divisor of the first. Then it is computed first, as in Spark.
    pub(crate) fn divides(&self) -> bool {
        self.name == "pmod"
    }

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
    pub(crate) result_type: &'a PrimitiveType,
}

impl Arguments<'_> {
    pub(super) fn array(&self, at: usize) -> Result<&ArrayRef> {
        self.arrays.get(at).ok_or_else(|| Error::internal("a function misses an argument"))
    }

    pub(super) fn string(&self, at: usize) -> Result<&StringArray> {
        let array = self.array(at)?;
        array.as_string_opt::<i32>().ok_or_else(|| unexpected(array))
    }

    pub(super) fn primitive<T: ArrowPrimitiveType>(&self, at: usize) -> Result<&PrimitiveArray<T>> {
        let array = self.array(at)?;
        array.as_primitive_opt::<T>().ok_or_else(|| unexpected(array))
    }

    pub(super) fn int(&self, at: usize) -> Result<&PrimitiveArray<Int32Type>> {
        self.primitive::<Int32Type>(at)
    }

    /// One value for each row in which no argument is null.
    pub(super) fn each<T, A: FromIterator<Option<T>>>(
        &self,
        value: impl FnMut(usize) -> std::result::Result<Option<T>, String>,
    ) -> Evaluated<A> {
        each(&self.arrays.iter().collect::<Vec<_>>(), self.rows, value)
    }

    /// One string for each row in which no argument is null.
    pub(super) fn strings(
        &self,
        mut value: impl FnMut(usize) -> std::result::Result<String, String>,
    ) -> Evaluated<StringArray> {
        let mut total = 0_usize;
        self.each(|row| {
            let value = value(row)?;
            total = total.saturating_add(value.len());
            bounded(total).map(|()| Some(value))
        })
    }

    /// Bytes for each row in which no argument is null.
    pub(super) fn bytes(&self, value: impl Fn(usize) -> Vec<u8>) -> Evaluated<BinaryArray> {
        let mut total = 0_usize;
        self.each(|row| {
            let value = value(row);
            total = total.saturating_add(value.len());
            bounded(total).map(|()| Some(value))
        })
    }
}
