//! Columns of files of which few are wanted, kept much as they stand in the checkpoint.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};

use super::decode::broken;
use crate::checkpoint::leaf::{Coded, Decoded, Stop, Trimmed};
use crate::error::{Error, Result};

/// One value a row. Whether it can be read is seen when it is wanted.
#[derive(Debug, Clone)]
pub(super) enum Few {
    Texts(Arc<Trimmed>),
    Numbers(Arc<Coded>),
}

impl Few {
    /// How many rows there are.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Texts(texts) => texts.len(),
            Self::Numbers(numbers) => numbers.len(),
        }
    }

    /// Memory held.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Texts(texts) => texts.bytes(),
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
            Self::Texts(texts) => read(texts.whole(rows, count)),
            Self::Numbers(numbers) => read(numbers.numbers(rows, count)),
        }
    }
}

fn read(values: Decoded<impl Array + 'static>) -> Result<ArrayRef> {
    match values {
        Ok(values) => Ok(Arc::new(values)),
        Err(Stop::Broken(what)) => Err(broken(what)),
        Err(Stop::Rare) => Err(Error::internal("values were kept that cannot be read")),
    }
}
