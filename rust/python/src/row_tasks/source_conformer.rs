//! The rows of a merge's source in a table's types.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_schema::SchemaRef;
use deltic_entry::entry;
use deltic_protocol::error::Error;
use deltic_table::dml::SourceConformer as CoreConformer;
use pyo3::prelude::*;

use crate::arrow::{ArrowBatch, ArrowSchema, check_announced, reader_from_py, schema_from_py};
use crate::errors::Result;

/// Converts the rows of a merge's source to a table's types, batch by batch.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct SourceConformer {
    announced: SchemaRef,
    core: Mutex<CoreConformer>,
}

#[entry]
#[pymethods]
impl SourceConformer {
    #[new]
    #[pyo3(signature = (schema, memory_limit = None))]
    fn new(schema: &Bound<'_, PyAny>, memory_limit: Option<u64>) -> Result<Self> {
        let announced = Arc::new(schema_from_py(schema)?);
        let core = Mutex::new(CoreConformer::new(&announced, memory_limit)?);
        Ok(Self { announced, core })
    }

    /// The columns of converted rows.
    #[getter]
    fn schema(&self) -> ArrowSchema {
        ArrowSchema::new(Arc::clone(self.core().schema()))
    }

    /// How many bytes of rows may be in memory.
    #[getter]
    fn memory_limit(&self) -> u64 {
        self.core().memory_limit()
    }

    /// The rows of the next batch, converted and cut into pieces of about a quarter of the memory limit, at most 16 MiB.
    fn conform(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> Result<Vec<ArrowBatch>> {
        let mut rows = reader_from_py(batch)?;
        let mut conformed = Vec::new();
        while let Some(batch) = rows.pull(py)? {
            check_batch(&batch.schema(), &self.announced)?;
            conformed.extend(py.detach(|| self.core().conform(&batch))?.into_iter().map(ArrowBatch::new));
        }
        Ok(conformed)
    }
}

impl SourceConformer {
    fn core(&self) -> MutexGuard<'_, CoreConformer> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses a batch whose columns are not those that the source announced.
fn check_batch(schema: &SchemaRef, announced: &SchemaRef) -> Result<()> {
    check_announced(schema, announced)?;
    match schema.fields().iter().zip(announced.fields()).find(|(found, wanted)| found.name() != wanted.name()) {
        None => Ok(()),
        Some((found, wanted)) => {
            let (found, wanted) = (found.name(), wanted.name());
            Err(Error::invalid(format!("a batch has the column `{found}` where its reader announced `{wanted}`"))
                .into())
        }
    }
}
