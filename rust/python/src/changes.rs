//! `_deltic.Changes`: the change data feed of a table.

use std::num::NonZeroUsize;

use deltic_entry::entry;
use deltic_protocol::error::Error;
use deltic_table::changes::{Bound, ChangeFeed};
use deltic_table::log::LogSource;
use deltic_table::scan::read::ReadOptions;
use pyo3::prelude::*;

use crate::arrow::{ArrowSchema, ArrowStream};
use crate::errors::Result;
use crate::runtime::{Runtime, run};

/// The changes between two versions.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct Changes(ChangeFeed);

/// One end of a range, as a version or as milliseconds since the epoch.
pub(crate) type End = (Option<u64>, Option<i64>);

fn bound(end: End) -> Result<Option<Bound>, Error> {
    match end {
        (None, None) => Ok(None),
        (Some(version), None) => Ok(Some(Bound::Version(version))),
        (None, Some(time)) => Ok(Some(Bound::Time(time))),
        (Some(_), Some(_)) => Err(Error::invalid("give a version or a time, not both")),
    }
}

impl Changes {
    /// Plans the feed from `start` to `end`.
    pub(crate) fn plan(
        py: Python<'_>,
        log: &LogSource,
        start: End,
        end: End,
        columns: Option<&[String]>,
        filter: Option<&str>,
    ) -> Result<Self> {
        let (start, end) = (bound(start)?, bound(end)?);
        Ok(Self(run(py, ChangeFeed::plan(log, start, end, columns, filter))?))
    }
}

#[entry]
#[pymethods]
impl Changes {
    #[getter]
    fn versions(&self) -> Option<(u64, u64)> {
        self.0.versions().map(std::ops::RangeInclusive::into_inner)
    }

    fn schema(&self) -> ArrowSchema {
        ArrowSchema::new(self.0.schema())
    }

    #[pyo3(signature = (batch_size = None))]
    fn read(&self, py: Python<'_>, batch_size: Option<NonZeroUsize>) -> Result<ArrowStream> {
        let mut options = ReadOptions::default();
        if let Some(rows) = batch_size {
            options.batch_rows = rows.get();
        }
        Ok(ArrowStream::from_stream(self.0.schema(), self.0.read(options)?, Runtime::of_process(py)?))
    }
}
