//! Columns of which a query needs few rows, kept encoded much as they are in the checkpoint.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use deltic_pages::decode::{Decoded, DictionaryEncoded, Failure, FrontCodedStrings};

use super::part_columns::broken;
use crate::error::{Error, Result};

/// One encoded value for each row. A value that cannot be read is an error only when it is requested.
#[derive(Debug, Clone)]
pub(super) enum EncodedColumn {
    Strings(Arc<FrontCodedStrings>),
    Numbers(Arc<DictionaryEncoded>),
}

impl EncodedColumn {
    /// How many rows there are.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Strings(strings) => strings.rows(),
            Self::Numbers(numbers) => numbers.rows(),
        }
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Strings(strings) => strings.bytes(),
            Self::Numbers(numbers) => numbers.bytes(),
        }
    }

    /// The values of all rows.
    pub(super) fn all(&self) -> Result<ArrayRef> {
        self.array(0..self.len(), self.len())
    }

    /// The values of so many `rows`, which ascend.
    pub(super) fn array(&self, rows: impl Iterator<Item = usize>, count: usize) -> Result<ArrayRef> {
        match self {
            Self::Strings(strings) => read(strings.strings(rows, count)),
            Self::Numbers(numbers) => read(numbers.numbers(rows, count)),
        }
    }
}

/// `count` strings, for tests.
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) fn some_strings(count: usize) -> FrontCodedStrings {
    let strings: arrow_array::StringArray = (0..count).map(|number| Some(format!("string {number}"))).collect();
    FrontCodedStrings::of(&strings).unwrap()
}

fn read(values: Decoded<impl Array + 'static>) -> Result<ArrayRef> {
    match values {
        Ok(values) => Ok(Arc::new(values)),
        Err(Failure::Corrupt(what)) => Err(broken(what)),
        Err(Failure::Unsupported) => Err(Error::internal("values were kept that cannot be read")),
    }
}
